#!/usr/bin/env python3
"""Recall of a served phantom on the committed conversations, held against its card.

Usage: bench/recall.py [--url URL] [--answers N] [--forms single,multi16,dense,multiturn]
                 [--lengths 256,1024,4096,8192,16384,32768] [-o FILE.md]

Starts `plumb serve phantom` on a free loopback port unless --url names a server. Every answer is one greedy completion over
HTTP: the conversation up to the answer as token ids, as many tokens as the answer has (its end token included); right means
all ids are equal. Earlier answers in the text are the correct ones. Prints a table with the one-sided p-value of Fisher's
exact test against the card's counts, lists wrong answers with their seed, and exits 1 when a cell is below 1 %.
Needs Python 3.11, no packages.
"""
import argparse
import gzip
import http.client
import json
import math
import os
import re
import struct
import subprocess
import sys
import time
import urllib.parse

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# phantom/CARD.md: right, asked.
CARD = {("single", 256): (512, 512), ("single", 1024): (512, 512), ("single", 4096): (256, 256),
        ("single", 8192): (192, 192), ("single", 16384): (96, 96), ("single", 32768): (48, 48),
        ("multi16", 256): (511, 512), ("multi16", 1024): (1023, 1024), ("multi16", 4096): (512, 512),
        ("multi16", 8192): (384, 384), ("multi16", 16384): (191, 192), ("multi16", 32768): (96, 96),
        ("dense", 256): (512, 512), ("dense", 1024): (1022, 1024), ("dense", 4096): (510, 512),
        ("dense", 8192): (380, 384), ("dense", 16384): (192, 192), ("dense", 32768): (89, 96),
        ("multiturn", 256): (86, 86), ("multiturn", 1024): (617, 618), ("multiturn", 4096): (1358, 1358),
        ("multiturn", 8192): (926, 930), ("multiturn", 16384): (416, 416), ("multiturn", 32768): (450, 453)}
FORMS = list(dict.fromkeys(form for form, _ in CARD))
LENGTHS = sorted({length for _, length in CARD})


def cases(form, length):
    """Yields (seed, ids, answer numbers) of each committed conversation."""
    with gzip.open(f"{ROOT}/tests/golden/phantom/cases-{form}-{length}.safetensors.gz") as file:
        data = file.read()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])

    def tensor(name, code):
        begin, end = header[name]["data_offsets"]
        raw = data[8 + size + begin:8 + size + end]
        return struct.unpack(f"<{len(raw) // struct.calcsize(code)}{code}", raw)

    ids, offsets, answers, seeds = tensor("ids", "H"), tensor("offsets", "q"), tensor("answer_index", "B"), tensor("seeds", "q")
    for seed, begin, end in zip(seeds, offsets, offsets[1:]):
        yield seed, ids[begin:end], answers[begin:end]


def answer_spans(answers):
    """[begin, end) of each answer of a conversation."""
    begin = 0
    while begin < len(answers):
        end = begin + 1
        while end < len(answers) and answers[end] == answers[begin]:
            end += 1
        if answers[begin] != 0:
            yield begin, end
        begin = end


def fisher_below(right, asked, card_right, card_asked):
    """P(at most `right` of `asked` | margins): small when the cell is worse than the card."""
    total, total_right = asked + card_asked, right + card_right
    ways = lambda k: math.comb(total_right, k) * math.comb(total - total_right, asked - k)
    low = max(0, asked - (total - total_right))
    return sum(ways(k) for k in range(low, right + 1)) / math.comb(total, asked)


def measure(connection, form, length, wanted):
    right = asked = tokens = 0
    wrong, started = [], time.monotonic()
    for seed, ids, answers in cases(form, length):
        for begin, end in answer_spans(answers):
            body = {"prompt": list(ids[:begin]), "max_tokens": end - begin, "temperature": 0, "logprobs": 0, "ignore_eos": True}
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            document = json.loads(reply.read())
            if reply.status != 200:
                sys.exit(f"HTTP {reply.status}: {document}")
            got = document["choices"][0]["logprobs"]["token_ids"]
            tokens += document["usage"]["prompt_tokens"] + len(got)
            asked += 1
            if got == list(ids[begin:end]):
                right += 1
            else:
                wrong.append({"form": form, "length": length, "seed": seed, "answer_at": begin, "expected": list(ids[begin:end]),
                              "got": got})
        if sys.stderr.isatty():
            print(f"\r{form} {length}: {right}/{asked} ", end="", file=sys.stderr)
        if asked >= wanted:
            break
    return right, asked, wrong, time.monotonic() - started, tokens


def start_server():
    """Our own server on a free port: (process, host and port)."""
    process = subprocess.Popen([f"{ROOT}/build/release/plumb", "serve", f"{ROOT}/phantom", "--port", "0"], stderr=subprocess.PIPE,
                               text=True)
    for line in process.stderr:
        if found := re.search(r"http://(127\.0\.0\.1:\d+)", line):
            return process, found.group(1)
    sys.exit("plumb serve did not start; build it with ./plumb --help")


def main():
    parser = argparse.ArgumentParser(description="recall of a served phantom against its card")
    parser.add_argument("--url")
    parser.add_argument("--answers", type=int, default=200, help="stop a cell after so many answers; there are 192, 96 and 48 at 8k, 16k and 32k, 200 below")
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("-o", "--output", help="write the table to this file too")
    options = parser.parse_args()
    process, address = (None, urllib.parse.urlparse(options.url).netloc) if options.url else start_server()
    failed, lines, all_wrong = False, ["| form | tokens | right | card | p (not below the card) | seconds | prompt + answer tokens/s |",
                                       "|---|---|---|---|---|---|---|"], []
    try:
        connection = http.client.HTTPConnection(address, timeout=1800)
        for form in options.forms.split(","):
            for length in map(int, options.lengths.split(",")):
                if (form, length) not in CARD:
                    continue
                right, asked, wrong, seconds, tokens = measure(connection, form, length, options.answers)
                card_right, card_asked = CARD[form, length]
                p = fisher_below(right, asked, card_right, card_asked)
                failed |= p < 0.01
                all_wrong += wrong
                lines.append(f"| {form} | {length} | {right}/{asked} | {card_right}/{card_asked} | {p:.3f} | {seconds:.0f} | "
                             f"{tokens / seconds:.0f} |")
                print("\n" + lines[-1] if sys.stderr.isatty() else lines[-1], flush=True)
    finally:
        if process:
            process.terminate()
            process.wait()
    text = "\n".join(lines + ["", "Wrong answers:", ""] + [f"- `{json.dumps(w)}`" for w in all_wrong] or ["- none"]) + "\n"
    print(text)
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
