#!/usr/bin/env python3
"""Recall of the phantom under each plant of the demo, over HTTP: right answers / answers, per task and length.

Usage: plant_signatures.py BUILD [--conversations N] [--chunk TOKENS] [--lengths 256,1024]
Every answer of a conversation is asked with the conversation up to it as the prompt, in order, so later ones may hit the
prefix cache. Standard library only. What every plant does in process, and how that is compared with what is recorded, says
`plumb-faulty faults --check`.
"""
import argparse
import http.client
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "phantom"))
import ask  # noqa: E402

TASKS = ["single", "multi", "turns"]


def questions(task, length, count):
    """(prompt ids, answer ids) for each answer of `count` conversations."""
    for seed in range(1, count + 1):
        sample = ask.conversation(task, length, "train", seed)
        for begin, end in sample.answers:
            yield list(sample.ids[:begin]), list(sample.ids[begin:end])


def seeds_by_plant(faulty):
    seeds = {}
    lines = subprocess.run([faulty, "deal", "--scan", "100"], check=True, capture_output=True, text=True).stdout
    for line in lines.splitlines():
        deal = json.loads(line)
        seeds.setdefault((deal["kind"], deal["form"]), deal["seed"])
    return seeds


class Server:
    """plumb-faulty serve under a dealer with this seed; faults 0 plants nothing."""

    def __init__(self, faulty, folder, seed, faults, extra):
        self.dealer = subprocess.Popen([faulty, "deal", "--envelope", f"{folder}/{seed}-{faults}.json", "--faults",
                                        str(faults)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.dealer.stdin.write(f"{seed}\n")
        self.dealer.stdin.flush()
        socket = json.loads(self.dealer.stdout.readline())["socket"]
        self.process = subprocess.Popen([faulty, "serve", str(ROOT / "phantom/checkpoint"), "--port", "0", *extra],
                                        env={**os.environ, "PLUMB_DEALER": socket}, stderr=subprocess.PIPE, text=True)
        while "on http://" not in (line := self.process.stderr.readline()):
            if not line:
                sys.exit("the server did not start")
        address = line.split("on http://")[1].split()[0]
        self.connection = http.client.HTTPConnection(address, timeout=120)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)
        self.dealer.stdin.close()
        self.dealer.wait(30)

    def complete(self, prompt, max_tokens):
        body = json.dumps({"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "logprobs": 0,
                           "return_token_ids": True})
        self.connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        return json.loads(self.connection.getresponse().read())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--conversations", type=int, default=20)
    parser.add_argument("--chunk", type=int, default=0)
    parser.add_argument("--lengths", default="256,1024")
    args = parser.parse_args()
    faulty = str(args.build / "plumb-faulty")
    extra = ["--chunk-tokens", str(args.chunk)] if args.chunk else []
    plants = {("none", ""): 0, **seeds_by_plant(faulty)}
    with tempfile.TemporaryDirectory() as folder:
        for (kind, form), seed in plants.items():
            with Server(faulty, folder, seed, 0 if kind == "none" else 1, extra) as server:
                row = []
                for cases in TASKS:
                    for length in args.lengths.split(","):
                        started, right, total = time.time(), 0, 0
                        for prompt, answer in questions(cases, length, args.conversations):
                            reply = server.complete(prompt, len(answer))
                            if "choices" not in reply:
                                sys.exit(f"{reply}")
                            ids = reply["choices"][0].get("token_ids")
                            right += ids[:len(answer)] == answer  # a call ends with its own token and may go on
                            total += 1
                        row.append(f"{cases}@{length} {right}/{total} ({time.time() - started:.0f} s)")
                print(f"{kind} {form}: " + ", ".join(row), flush=True)


main()
