#!/usr/bin/env python3
"""Encoding speed of Plumb's tokenizer beside Hugging Face's tokenizers, with DeepSeek-V4's vocabulary, in one run.

Usage: build/peers/bin/python bench/tokenizer.py [BUILD_DIR] [--rounds N]     (./test --peers makes that Python)

Each text is cut into documents of 64 KiB at most. Both encode them one by one on one thread, in turn, N times; stated are
median rates per second of processor time, which a busy machine disturbs least. encode_batch_fast, tokenizers' way without
offsets, gets one document at a time, too. The ids are compared first.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/peers"))
import peer_tokenizer as peer  # noqa: E402

DOCUMENT = 64 * 1024


def documents(text):
    return [text[i:i + DOCUMENT] for i in range(0, len(text), DOCUMENT)]


def seconds(encode, texts):
    start = time.process_time()
    for text in texts:
        encode(text)
    return time.process_time() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default=str(peer.ROOT / "build/release"))
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    theirs = peer.theirs()
    project = peer.project_text()
    texts = {
        "the project's documents and sources": project,
        "multilingual, random tokens": peer.multilingual_text(theirs, 150000, 7),
        "digits and punctuation": "".join(c if not c.isalpha() else str(ord(c) % 10) for c in project[:400000]),
    }
    print("| text | MB | tokens | Plumb MB/s | tokenizers encode MB/s | encode_batch_fast MB/s | ratio to the faster one |")
    print("|---|---|---|---|---|---|---|")
    loads = []
    for name, text in texts.items():
        parts = documents(text)
        ids, _ = peer.ours(args.build, parts)
        if ids != [theirs.encode(part, add_special_tokens=False).ids for part in parts]:
            raise SystemExit(f"{name}: the ids differ")
        rates = {"ours": [], "encode": [], "fast": []}
        size = len(text.encode()) / 1e6
        for _ in range(args.rounds):
            _, figures = peer.ours(args.build, parts)
            loads.append(figures["load_s"])
            rates["ours"].append(size / figures["encode_s"])
            rates["encode"].append(size / seconds(lambda part: theirs.encode(part, add_special_tokens=False), parts))
            rates["fast"].append(
                size / seconds(lambda part: theirs.encode_batch_fast([part], add_special_tokens=False), parts))
        ours, encode, fast = (statistics.median(rates[key]) for key in ("ours", "encode", "fast"))
        print(f"| {name} | {size:.2f} | {figures['tokens']} | {ours:.1f} | {encode:.2f} | {fast:.2f} | "
              f"{ours / max(encode, fast):.1f} |", flush=True)
    start = time.process_time()
    peer.theirs()
    print(f"\nLoading tokenizer.json: Plumb {statistics.median(loads):.2f} s, tokenizers {time.process_time() - start:.2f} s.")


if __name__ == "__main__":
    main()
