#!/usr/bin/env python3
"""phantom/encoding.py and phantom/tokenizer.py give the ids of the server: every prompt of the tasks, other conversations, and random
text.

Usage: encoding_test.py BUILD_DIR ROOT
"""

import json
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

BUILD, ROOT = (pathlib.Path(arg).resolve() for arg in sys.argv[1:3])
sys.path.insert(0, str(ROOT / "phantom"))
import encoding  # noqa: E402
import talk  # noqa: E402
import tasks  # noqa: E402
import tokenizer  # noqa: E402
import words  # noqa: E402

TIMEOUT_S = 100


def rendered(requests, config):
    """The server's ids of the prompts of chat requests."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(tokenizer.PATH, folder)
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        done = subprocess.run(
            [BUILD / "tests/render_requests", folder],
            input="\n".join(map(json.dumps, requests)) + "\n",
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [list(map(int, line.split())) for line in done.stdout.splitlines()]


def encoded(texts, specials):
    """The C++ tokenizer's ids of texts."""
    records = [text.encode() for text in texts]
    done = subprocess.run(
        [BUILD / "tests/encode_records", tokenizer.PATH, specials],
        capture_output=True,
        timeout=TIMEOUT_S,
        check=True,
        input=b"".join(struct.pack("<I", len(record)) + record for record in records),
    )
    ids, at = [], 0
    for _ in records:
        (count,) = struct.unpack_from("<I", done.stdout, at)
        ids.append(list(struct.unpack_from(f"<{count}i", done.stdout, at + 4)))
        at += 4 + 4 * count
    return ids


class EqualsTheServer(unittest.TestCase):
    def check(self, requests, expected):
        for config in ({"dspark_layers": 1}, {}):  # both profiles
            for request, ours, theirs in zip(requests, expected, rendered(requests, config), strict=True):
                self.assertEqual(ours, theirs, talk.TOKENIZER.decode(theirs)[-300:])

    def test_prompts_of_the_tasks(self):
        requests, expected = [], []
        modes = set()
        for task in tasks.TASKS:
            for length in (256, 512, 2048):
                for seed in range(12):
                    sample = tasks.sample(random.Random(seed), task, length, "held_out" if seed % 3 == 0 else "train")
                    for i in {0, len(sample.answers) - 1}:
                        request, message = tasks.prompt(sample, i)
                        requests.append(request)
                        expected.append(list(sample.ids[: sample.answers[i][0]]))
                        modes.add((bool(sample.meta["tools"]), sample.meta["thinking"], bool(message.get("tool_calls"))))
        self.assertEqual(
            modes,
            {
                (False, False, False),
                (False, True, False),
                (True, False, False),
                (True, True, False),
                (True, False, True),
                (True, True, True),
            },
        )
        self.check(requests, expected)

    def test_other_conversations(self):
        rng = random.Random(7)
        requests, expected = [], []

        def text():
            return "".join(
                rng.choice(["so ", "tool", " é", "\n", "<think>", "漢", "12345", "｜DSML｜", " the", "\n\n"])
                for _ in range(rng.randrange(6))
            )

        for _ in range(300):
            messages, number = [], 0
            if rng.random() < 0.5:
                messages.append({"role": "system", "content": text()})
            for _ in range(rng.randrange(4)):
                messages += [{"role": "user", "content": text()} for _ in range(rng.randrange(1, 3))]
                answer = {"role": "assistant", "content": text()}
                if rng.random() < 0.7:
                    answer["reasoning_content"] = text()
                if rng.random() < 0.5:
                    answer["tool_calls"] = []
                    for _ in range(rng.randrange(1, 3)):
                        number += 1
                        arguments = {
                            key: rng.choice([text(), 7, 2.5, True, None, [1, "a"]])
                            for key in rng.sample(["key", "value", "n"], rng.randrange(4))
                        }
                        answer["tool_calls"].append(talk.call(rng.choice(["get", "save"]), number, **arguments))
                messages.append(answer)
                for made in answer.get("tool_calls", ()):
                    messages.append({"role": "tool", "tool_call_id": made["id"], "content": text()})
            messages.append({"role": "user", "content": text()})
            tools = words.TOOLS[: rng.randrange(3)]
            thinking = rng.random() < 0.5
            request = {"messages": messages, **({"tools": tools} if tools else {})}
            request.update({"reasoning_effort": "low"} if thinking else {"thinking": {"type": "disabled"}})
            requests.append(request)
            expected.append(encoding.to_ids(talk.TOKENIZER, encoding.render(messages, tools, thinking)))
        self.check(requests, expected)

    def test_random_text(self):
        rng = random.Random(8)
        parts = [
            " the",
            " tool",
            "tool",
            "_calls",
            "parameter",
            ">\n",
            "\n\n",
            " ",
            "\t",
            "\r\n",
            "é",
            "漢",
            "ぁ",
            "😀",
            "\u0301",
            "\u00a0",
            "7",
            "½",
            "<think>",
            "｜DSML｜",
            "!",
            '"',
            "x",
        ]
        texts = ["".join(rng.choice(parts) for _ in range(rng.randrange(40))) for _ in range(3000)]
        for specials, ours in (("plain", talk.TOKENIZER.encode), ("parse", talk.TOKENIZER.encode_marked)):
            for text, ids in zip(texts, encoded(texts, specials), strict=True):
                self.assertEqual(ours(text), ids, text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
