#!/usr/bin/env python3
"""What happens when a stream or a file of a command breaks: input that cannot be read, a log that nobody reads any more, a
file that may not grow.

Usage: streams_test.py BUILD_DIR ROOT
"""
import http.client
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

BUILD = ROOT = MODEL = None
TIMEOUT_S = 60


def run(*args, stdin=subprocess.DEVNULL, before=None):
    done = subprocess.run([str(BUILD / "plumb"), *map(str, args)], stdin=stdin, capture_output=True, timeout=TIMEOUT_S,
                          check=False, preexec_fn=before)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Streams(unittest.TestCase):
    def test_input_that_cannot_be_read_is_an_error(self):
        folder = os.open("/", os.O_RDONLY)
        write_only = os.open("/dev/null", os.O_WRONLY)
        self.addCleanup(os.close, folder)
        self.addCleanup(os.close, write_only)
        for arguments in ({"stdin": folder}, {"stdin": write_only}, {"before": lambda: os.close(0)}):
            code, out, err = run("tokenize", MODEL, **arguments)
            self.assertEqual((code, out), (3, ""), err)
            self.assertIn("standard input cannot be read: ", err)
        code, out, _ = run("tokenize", MODEL, "--json")
        self.assertEqual((code, json.loads(out)), (0, {"ids": [], "count": 0}))  # an empty text is one

    def test_a_file_that_may_not_grow_is_an_error_and_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            prompt = pathlib.Path(folder, "prompt.txt")
            prompt.write_text("<｜User｜>hello.<｜Assistant｜></think>" * 20)
            code, _, err = run("golden", MODEL, "--prompt", prompt, "-o", pathlib.Path(folder, "out"),
                               before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (102400, 102400)))
            self.assertEqual(code, 3, err)
            self.assertIn("File too large", err)
            self.assertEqual(os.listdir(folder), ["prompt.txt"])

    def test_a_server_whose_log_nobody_reads_serves_on_and_ends_clean(self):
        reading, writing = os.pipe()
        server = subprocess.Popen([str(BUILD / "plumb"), "serve", str(MODEL), "--port", "0"],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=writing)
        os.close(writing)
        self.addCleanup(lambda: server.poll() is None and server.kill())
        log = b""
        while not (found := re.search(rb"http://127\.0\.0\.1:(\d+)", log)):
            part = os.read(reading, 4096)
            self.assertTrue(part, log)
            log += part
        os.close(reading)
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=TIMEOUT_S)
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": "<｜User｜>hello.<｜Assistant｜></think>", "max_tokens": 100, "ignore_eos": True, "stream": True}))
        reply = connection.getresponse()
        self.assertTrue(reply.readline().startswith(b"data: "))
        server.send_signal(signal.SIGTERM)  # which is logged
        rest = reply.read()
        self.assertTrue(rest.rstrip().endswith(b"data: [DONE]"), rest[-300:])
        self.assertEqual(server.wait(TIMEOUT_S), 0)


if __name__ == "__main__":
    BUILD, ROOT = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    MODEL = ROOT / "phantom/checkpoint"
    unittest.main(argv=sys.argv[:1])
