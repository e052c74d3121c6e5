#!/usr/bin/env python3
"""`plumb tokenize` with a folder that has a tokenizer.json: the golden ids, from -p and from standard input.

Usage: tokenize_test.py BUILD_DIR ROOT
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

BUILD = ROOT = None
TIMEOUT_S = 60


def tokenize(*args, text=b""):
    return subprocess.run([str(BUILD / "plumb"), "tokenize", *map(str, args)], input=text, capture_output=True,
                          timeout=TIMEOUT_S, check=False)


class Tokenize(unittest.TestCase):
    def test_ids_are_the_golden_ones(self):
        folder = ROOT / "tests/golden/tokenizer"
        vectors = json.loads((folder / "encode.json").read_text())
        for vector in vectors[:60]:
            done = tokenize(folder, text=vector["text"].encode())
            self.assertEqual(done.stdout.split(), [b"%d" % i for i in vector["parse"]], vector["text"])
        spoken = next(vector for vector in vectors if vector["text"].startswith("<｜User｜>"))
        done = tokenize(folder, "--json", "-p", spoken["text"])
        self.assertEqual(json.loads(done.stdout), {"ids": spoken["parse"], "count": len(spoken["parse"])})

    def test_a_file_it_cannot_use_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tokenizer.json"
            path.write_text('{"version": "1.0", "normalizer": {"type": "NFKC"}}')
            done = tokenize(folder, "-p", "x")
            self.assertEqual(done.returncode, 3)
            self.assertIn('normalizer.type is "NFKC"', done.stderr.decode())
            self.assertEqual(done.stdout, b"")


if __name__ == "__main__":
    BUILD, ROOT = (pathlib.Path(arg).resolve() for arg in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1])
