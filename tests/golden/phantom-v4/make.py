#!/usr/bin/env python3
"""Makes encode.json: texts with the ids that Hugging Face's tokenizers gives them by phantom/v4/tokenizer.json.

    pip install tokenizers==0.23.3
    python3 tests/golden/phantom-v4/make.py

"parse" as is, "plain" with a copy that has no added tokens.
"""

import json
import pathlib
import random
import sys

from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "phantom"))
import talk  # noqa: E402
import tasks  # noqa: E402
import tokenizer  # noqa: E402

AWKWARD = list(" \t\r\n\u00a0\u3000\u0085\u200b\u0000!\"'.-(_abzAZ09½٣一龥龦ぁ゙゛・ーヿ゠\u3040\u3097😀\u0301éß") + [
    "<think>",
    "｜DSML｜",
    "<｜User｜>",
    "<｜",
    "｜>",
    "</think",
    "  ",
    "\n\n",
    " \n",
    " the",
    "tool",
    " tool",
    "_calls",
    "parameter",
    '">\n',
]


def random_text(rng):
    mix = rng.random()
    return "".join(
        (
            rng.choice(AWKWARD)
            if rng.random() < mix
            else chr(rng.choice([rng.randrange(0x20, 0x800), rng.randrange(0x2000, 0xD800)]))
        )
        for _ in range(rng.randrange(40))
    )


def main():
    file = json.loads(tokenizer.PATH.read_text())
    parse, plain = (Tokenizer.from_str(json.dumps(one)) for one in (file, {**file, "added_tokens": []}))
    rng = random.Random(20261130)
    texts = ["", " ", "a" * 300, "\n" * 50] + [random_text(rng) for _ in range(400)]
    for task in tasks.TASKS:
        for length in (256, 1024):
            texts.append(talk.TOKENIZER.decode(tasks.sample(rng, task, length, rng.choice(["train", "held_out"])).ids))
    vectors = [
        {
            "text": text,
            "parse": parse.encode(text, add_special_tokens=False).ids,
            "plain": plain.encode(text, add_special_tokens=False).ids,
        }
        for text in texts
    ]
    lines = ",\n".join(json.dumps(vector, separators=(",", ":")) for vector in vectors)
    (HERE / "encode.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
