#!/usr/bin/env python3
"""Writes questions.json.gz: conversations of the phantom's tasks with their exact answers, which `plumb-faulty faults` asks.

Usage: phantom/write_questions.py [--check]

They are of the tasks that feel quiet faults most, in groups of eight that are asked together (GROUP), at five lengths. Every
conversation is the body of a chat request that asks for its last answer; `answers` are the last MOST_ANSWERS, each with the number of
its message and all that the model writes, end of turn included. Conversation n of a length is tasks.sample(random.Random(f"{task} {length} questions {n}"),
task, length): the same bytes on every machine. --check compares instead of writing. Needs Python 3.11, no packages.
"""

import argparse
import gzip
import json
import pathlib
import random
import sys

import talk
import tasks

GROUP = ["verbatim", "dense", "turns", "update", "verbatim", "often", "lookup", "long_code"]
GROUPS = {256: 38, 1024: 15, 4096: 4, 8192: 2, 16384: 1}
MOST_ANSWERS = 3
PATH = pathlib.Path(__file__).resolve().parent / "questions.json.gz"


def conversation(task, length, number):
    made = tasks.sample(random.Random(f"{task} {length} questions {number}"), task, length)
    last = len(made.answers) - 1
    request, _ = tasks.prompt(made, last)
    answers = [
        {"message": answer["message"], "text": talk.TOKENIZER.decode(made.ids[begin:end])}
        for answer, (begin, end) in zip(made.meta["answers"], made.answers, strict=True)
    ]
    request.pop("temperature")
    return {"task": task, "tokens": len(made.ids), "answers": answers[-MOST_ANSWERS:], "request": request}


def document():
    lengths = []
    for length, groups in GROUPS.items():
        made = [conversation(GROUP[n % len(GROUP)], length, n) for n in range(groups * len(GROUP))]
        lengths.append({"tokens": length, "conversations": made})
    return json.dumps({"group": len(GROUP), "lengths": lengths}, ensure_ascii=False, separators=(",", ":"))


def main():
    parser = argparse.ArgumentParser(description="the questions that planted faults are measured with")
    parser.add_argument("--check", action="store_true", help="compare with the file; exit 1 if it differs")
    text = document()
    if parser.parse_args().check:
        same = gzip.decompress(PATH.read_bytes()).decode("utf-8") == text
        print("equal" if same else f"{PATH} differs: write it anew, and measure the faults again")
        return int(not same)
    with PATH.open("wb") as file, gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0, compresslevel=9) as packed:
        packed.write(text.encode("utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
