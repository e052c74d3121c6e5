#!/usr/bin/env python3
"""`plumb export`: its forms load again, its JSON says what was written, and what it refuses it refuses in plain words.

Usage: export_test.py BUILD_DIR ROOT
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

BUILD, ROOT = (pathlib.Path(arg).resolve() for arg in sys.argv[1:3])
TINY = ROOT / "tests/golden/tiny-random-a"


def run(*args):
    done = subprocess.run([BUILD / "plumb", *map(str, args)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


class Export(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def refused(self, *args, says):
        code, out, err = run("export", *args)
        self.assertEqual((code, out), (3, ""), err)
        self.assertIn(says, err)

    def test_each_form_is_a_checkpoint_of_its_own(self):
        ids = self.folder / "ids.json"
        ids.write_text("[5, 6, 7]")
        sizes = {}
        for form, formats in (
            ("release", {"ids (I64)", "F32", "BF16"}),
            ("release-fp8-fp4", {"ids (I64)", "F32", "BF16", "fp8", "mxfp4"}),
            ("nvfp4", {"ids (I64)", "F32", "BF16", "fp8", "nvfp4"}),
        ):
            folder = self.folder / form
            code, out, err = run("export", TINY, "--to", form, "--out", folder, "--json")
            self.assertEqual(code, 0, err)
            said = json.loads(out)
            self.assertEqual((said["folder"], said["form"]), (str(folder), form))
            self.assertEqual({part["format"] for part in said["parts"]}, formats)
            # The card's parameters, and what is none: two tables of ids, four layers' correction biases.
            self.assertEqual(sum(part["weights"] for part in said["parts"]), 557457 + 2 * 256 * 2 + 4 * 8)
            sizes[form] = said["bytes"]
            self.assertEqual((folder / "hf_quant_config.json").exists(), form == "nvfp4")
            code, _, err = run("golden", folder, "--ids", ids, "-o", self.folder / f"{form}.safetensors")
            self.assertEqual(code, 0, err)
        self.assertLess(sizes["release-fp8-fp4"], sizes["release"])

    def test_refusals(self):
        to = self.folder / "out"
        self.refused(TINY, "--to", "gguf", "--out", to, says="--to is release, release-fp8-fp4 or nvfp4")
        self.refused(TINY, "--to", "nvfp4", "--out", "", says="the name of the folder is empty")
        self.refused(TINY, "--to", "nvfp4", says="--out")
        self.refused(self.folder / "none", "--to", "nvfp4", "--out", to, says="none")
        self.assertFalse(to.exists())
        to.mkdir()
        (to / "note").write_text("mine")
        self.refused(TINY, "--to", "nvfp4", "--out", to, says="holds files already")
        self.assertEqual([file.name for file in to.iterdir()], ["note"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
