#!/usr/bin/env python3
"""Recall of the served phantom on the tasks it was trained for, held against its card.

Usage: bench/recall.py [--url URL] [--answers N] [--tasks single,multi,...] [--lengths 256,1024,...] [--seed N] [-o FILE.md]

Starts `plumb serve phantom/checkpoint` on a free loopback port unless --url names a server. Every answer is one greedy chat, as
phantom/ask.py asks it: the conversation up to the answer, earlier answers being the correct ones; right means equal to the
letter. Prints a table with the one-sided p-value of Fisher's exact test against the counts of phantom/checkpoint/card.json,
lists wrong answers with their seed, and exits 1 when a cell is below 1 %. Needs Python 3.11, no packages.
"""
import argparse
import http.client
import json
import math
import pathlib
import re
import subprocess
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "phantom"))
import ask  # noqa: E402

MODEL = ROOT / "phantom/checkpoint"
CARD = {(cell["task"], cell["length"]): (cell["right"], cell["asked"])
        for cell in json.loads((MODEL / "card.json").read_text())["cells"] if cell["split"] == "train"}
TASKS = list(dict.fromkeys(task for task, _ in CARD))
LENGTHS = sorted({length for _, length in CARD})


def fisher_below(right, asked, card_right, card_asked):
    """P(at most `right` of `asked` | margins): small when the cell is worse than the card."""
    total, total_right = asked + card_asked, right + card_right
    ways = lambda k: math.comb(total_right, k) * math.comb(total - total_right, asked - k)
    low = max(0, asked - (total - total_right))
    return sum(ways(k) for k in range(low, right + 1)) / math.comb(total, asked)


def measure(connection, model, task, length, seed, wanted):
    """One conversation after the other until so many answers are there."""
    cell = {"right": 0, "asked": 0, "wrong": [], "seconds": 0.0}
    while cell["asked"] < wanted:
        one = ask.measure(connection, "/v1/chat/completions", model, task, length, "train", [seed])
        for key in cell:
            cell[key] += one[key]
        seed += 1
        if sys.stderr.isatty():
            print(f"\r{task} {length}: {cell['right']}/{cell['asked']} ", end="", file=sys.stderr)
    return cell


def start_server():
    """Our own server on a free port: (process, host and port)."""
    process = subprocess.Popen([str(ROOT / "build/release/plumb"), "serve", str(MODEL), "--port", "0"], stderr=subprocess.PIPE,
                               text=True)
    for line in process.stderr:
        if found := re.search(r"http://(127\.0\.0\.1:\d+)", line):
            return process, found.group(1)
    sys.exit("plumb serve did not start; build it with ./plumb --help")


def main():
    parser = argparse.ArgumentParser(description="recall of the served phantom against its card")
    parser.add_argument("--url")
    parser.add_argument("--answers", type=int, default=100, help="end a cell with the conversation that reaches so many")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--seed", type=int, default=1, help="of a cell's first conversation")
    parser.add_argument("-o", "--output", help="write the table to this file too")
    options = parser.parse_args()
    process, address = (None, urllib.parse.urlparse(options.url).netloc) if options.url else start_server()
    failed, wrong = False, []
    lines = ["| task | tokens | right | card | p (not below the card) | seconds |", "|---|---|---|---|---|---|"]
    try:
        connection = http.client.HTTPConnection(address, timeout=1800)
        model = ask.first_model(connection, "")
        for task in options.tasks.split(","):
            for length in map(int, options.lengths.split(",")):
                if (task, length) not in CARD:
                    continue
                cell = measure(connection, model, task, length, options.seed, options.answers)
                p = fisher_below(cell["right"], cell["asked"], *CARD[task, length])
                failed |= p < 0.01
                wrong += [{"task": task, "length": length, **one} for one in cell["wrong"]]
                lines.append(f"| {task} | {length} | {cell['right']}/{cell['asked']} | {'/'.join(map(str, CARD[task, length]))} | "
                             f"{p:.3f} | {cell['seconds']:.0f} |")
                print("\n" + lines[-1] if sys.stderr.isatty() else lines[-1], flush=True)
    finally:
        if process:
            process.terminate()
            process.wait()
    text = "\n".join(lines + ["", "Wrong answers:", ""] + ([f"- `{json.dumps(w)}`" for w in wrong] or ["- none"])) + "\n"
    print(text)
    if options.output:
        pathlib.Path(options.output).write_text(text, encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
