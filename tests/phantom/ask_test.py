#!/usr/bin/env python3
"""phantom/ask.py against a server that knows the answers, and against one that is wrong, cut off or broken in known places.

Usage: ask_test.py ROOT
"""

import contextlib
import http.server
import io
import json
import pathlib
import sys
import tempfile
import threading
import unittest

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "phantom"))
import ask  # noqa: E402
import tasks  # noqa: E402

TASKS, LENGTHS, SEEDS = ("single", "turns", "often"), (256, 1024), range(1, 9)


class Oracle:
    """Answers by the prompt; `spoil(message, choice)` may change what it says."""

    def __init__(self, spoil=None):
        self.known, self.asked = {}, []
        for task in TASKS:
            for length in LENGTHS:
                for seed in SEEDS:
                    sample = ask.conversation(task, length, "train", seed)
                    for i in range(len(sample.answers)):
                        request, expected = tasks.prompt(sample, i)
                        self.known[json.dumps(request["messages"])] = expected
        oracle = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.reply(200, {"data": [{"id": "served"}]} if self.path == "/v1/models" else {})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                oracle.asked.append((self.path, body))
                message = {"role": "assistant", "reasoning_content": "anything", **oracle.known[json.dumps(body["messages"])]}
                choice = {
                    "index": 0,
                    "message": dict(message),
                    "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
                }
                status = (spoil(choice["message"], choice) if spoil else None) or 200
                self.reply(status, {"choices": [choice]})

            def reply(self, status, document):
                text = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def run(oracle, *options):
    """Exit status, what was printed, and the cells."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "cells.json"
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            status = ask.main(
                [
                    f"http://127.0.0.1:{oracle.server.server_port}",
                    "--tasks",
                    ",".join(TASKS),
                    "--lengths",
                    ",".join(map(str, LENGTHS)),
                    "--count",
                    str(len(SEEDS)),
                    "--json",
                    str(path),
                    *options,
                ]
            )
        return status, printed.getvalue(), json.loads(path.read_text())


class Ask(unittest.TestCase):
    def test_right_answers_are_right(self):
        with Oracle() as oracle:
            status, printed, cells = run(oracle, "--at-least", "1")
            self.assertEqual(status, 0)
            self.assertEqual(len(cells), len(TASKS) * len(LENGTHS))
            self.assertEqual(sum(cell["asked"] for cell in cells), len(oracle.asked))
            self.assertTrue(all(cell["right"] == cell["asked"] > 0 and not cell["wrong"] for cell in cells))
            self.assertNotIn("expected", printed)
            for path, body in oracle.asked:
                self.assertEqual((path, body["temperature"], body["model"]), ("/v1/chat/completions", 0, "served"))
                self.assertLess(body["max_tokens"], 400)
                self.assertNotEqual("reasoning_effort" in body, body.get("chat_template_kwargs") == {"thinking": False})
            self.assertTrue(any(body.get("tools") for _, body in oracle.asked))

    def test_wrong_answers_are_listed_by_seed(self):
        def spoil(message, choice):
            if message.get("tool_calls"):
                message["tool_calls"] = [{"function": {"name": "save", "arguments": "{broken"}}]
            elif len(message["content"]) % 3 == 0:
                message["content"] += " "
            elif len(message["content"]) % 3 == 1:
                choice["finish_reason"] = "length"
            else:
                message["content"] = ""

        with Oracle(spoil) as oracle:
            status, printed, cells = run(oracle, "--at-least", "0.01")
            self.assertEqual(status, 1)
            self.assertEqual(sum(cell["right"] for cell in cells), 0)
            self.assertGreater(sum(cell["no_answer"] for cell in cells), 0)
            for cell in cells:
                self.assertEqual(len(cell["wrong"]), cell["asked"])
                for wrong in cell["wrong"]:
                    sample = ask.conversation(cell["task"], cell["length"], "train", wrong["seed"])
                    _, expected = tasks.prompt(sample, wrong["answer"])
                    self.assertEqual(wrong["expected"][0], expected["content"])
                    self.assertIn(f'"seed": {wrong["seed"]}', printed)

    def test_a_refusal_is_no_wrong_answer(self):
        with Oracle(lambda message, choice: 503) as oracle, self.assertRaisesRegex(RuntimeError, "HTTP 503"):
            run(oracle)

    def test_an_unknown_task_is_refused(self):
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as printed:
            ask.main(["http://127.0.0.1:1", "--tasks", "nothing"])
        self.assertIn("no task nothing", printed.getvalue())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
