#!/usr/bin/env python3
"""`plumb serve` of an untrained model with the phantom's tokenizer: it takes every request of ask.py, and its prompts are the ids of
the samples. And of the trained checkpoint: it recalls.

Usage: serve_test.py BUILD_DIR ROOT
"""

import http.client
import json
import pathlib
import shutil
import struct
import sys
import tempfile
import unittest

BUILD, ROOT = (pathlib.Path(arg).resolve() for arg in sys.argv[1:3])
sys.path[:0] = [str(ROOT / "phantom"), str(ROOT / "tests/clients")]
import ask  # noqa: E402
import talk  # noqa: E402
import tasks  # noqa: E402
import tokenizer  # noqa: E402
from server_process import Server  # noqa: E402

TINY = ROOT / "tests/golden/tiny-random-a"


def write_model(folder):
    """The tiny random model with its rows of the vocabulary said again until the phantom's tokenizer has as many."""
    config = json.loads((TINY / "config.json").read_text())
    times, rest = divmod(talk.TOKENIZER.size, config["vocab_size"])
    assert rest == 0
    data = (TINY / "model.safetensors").read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header, tensors, new, at = json.loads(data[8 : 8 + size]), [], {}, 0
    for name, entry in header.items():
        if name == "__metadata__":
            new[name] = entry
            continue
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        tensor, shape = data[begin:end], entry["shape"]
        if shape[0] == config["vocab_size"]:
            tensor, shape = tensor * times, [talk.TOKENIZER.size, *shape[1:]]
        new[name] = {"dtype": entry["dtype"], "shape": shape, "data_offsets": [at, at + len(tensor)]}
        tensors.append(tensor)
        at += len(tensor)
    text = json.dumps(new).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(tensors))
    config.update(vocab_size=talk.TOKENIZER.size, bos_token_id=0, eos_token_id=1)
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(tokenizer.PATH, folder)


class Serve(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        phantom = pathlib.Path(cls.folder.name) / "phantom/checkpoint"
        phantom.mkdir(parents=True)
        write_model(phantom)
        cls.server = Server(BUILD, cls.folder.name)
        cls.addClassCleanup(cls.server.stop)
        cls.connection = http.client.HTTPConnection("127.0.0.1", cls.server.port, timeout=60)
        cls.addClassCleanup(cls.connection.close)

    def test_prompts_have_the_samples_ids(self):
        seen = 0
        for task in tasks.TASKS:
            for length in (256, 2048):
                for seed in range(4):
                    sample = ask.conversation(task, length, "train", seed)
                    request, _ = tasks.prompt(sample, 0)
                    request.pop("temperature")
                    self.connection.request("POST", "/tokenize", json.dumps(request), {"Content-Type": "application/json"})
                    reply = self.connection.getresponse()
                    document = json.loads(reply.read())
                    self.assertEqual(reply.status, 200, document)
                    self.assertEqual(document["tokens"], list(sample.ids[: sample.answers[0][0]]))
                    seen += 1
        self.assertEqual(seen, 8 * len(tasks.TASKS))

    def test_an_untrained_model_answers_wrongly(self):
        model = ask.first_model(self.connection, "")
        for task, length in (("single", 256), ("turns", 1024), ("later", 256)):
            cell = ask.measure(self.connection, "/v1/chat/completions", model, task, length, "train", range(1, 4))
            self.assertGreaterEqual(cell["asked"], 3)
            self.assertLess(cell["right"], cell["asked"])
            self.assertEqual(len(cell["wrong"]), cell["asked"] - cell["right"])


class Checkpoint(unittest.TestCase):
    """The trained checkpoint knows what its card says it knows; fewer right answers than this are no bad luck."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server(BUILD, ROOT)
        cls.addClassCleanup(cls.server.stop)

    def test_it_recalls(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        self.addCleanup(connection.close)
        model = ask.first_model(connection, "")
        for task in ("single", "multi", "turns", "update", "verbatim", "long_code"):
            for length in (256, 1024):
                cell = ask.measure(connection, "/v1/chat/completions", model, task, length, "train", range(1, 16))
                self.assertGreaterEqual(cell["asked"], 15, task)
                self.assertGreaterEqual(cell["right"], cell["asked"] - 2, (task, length, cell["wrong"]))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
