#!/usr/bin/env python3
"""Makes answers.safetensors: what transformers answers with phantom/checkpoint, in f32 on the CPU.

    pip install torch==2.11.0 transformers==5.17.0
    python3 tests/golden/phantom-v4/make_answers.py [--check]

One conversation of each row of CASES, drawn by phantom/tasks.py. Stored of each: its ids and, for the tokens of its answers,
the positions that predict them and their logits, as transformers' own forward pass of the whole conversation gives them. Run it
again when the checkpoint changes; --check compares instead of writing, logits within 1e-5 of their norm.
"""

import argparse
import json
import pathlib
import random
import struct
import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "phantom"))
import tasks  # noqa: E402

# Tasks with every form of question, up to twice the length at which YaRN begins to stretch.
CASES = [
    ("single", 256),
    ("turns", 256),
    ("update", 256),
    ("turns", 1024),
    ("multi", 1024),
    ("verbatim", 1024),
    ("turns", 4096),
    ("single", 8192),
]
MOST_ROWS = 96  # of a case: more say the same again
FILE = HERE / "answers.safetensors"


def conversation(task, length):
    """Ids and the positions whose logits predict tokens of answers."""
    sample = tasks.sample(random.Random(f"golden {task} {length}"), task, length)
    rows = [position - 1 for begin, end in sample.answers for position in range(begin, end)]
    return np.array(sample.ids, np.int32), np.array(rows[-MOST_ROWS:], np.int32)


def vectors():
    """name -> array of all cases."""
    model = AutoModelForCausalLM.from_pretrained(
        ROOT / "phantom" / "checkpoint", dtype=torch.float32, attn_implementation="eager"
    ).eval()
    out = {}
    for task, length in CASES:
        ids, rows = conversation(task, length)
        with torch.no_grad():
            logits = model(torch.tensor(ids, dtype=torch.long)[None], logits_to_keep=torch.tensor(rows, dtype=torch.long)).logits[0]
        name = f"{task}-{length}"
        out |= {f"{name}.ids": ids, f"{name}.rows": rows, f"{name}.logits": logits.numpy().astype(np.float32)}
        right = logits.numpy().argmax(-1) == ids[rows + 1]
        print(f"{name}: {len(ids)} tokens, {right.sum()} of {len(rows)} answer tokens are the greedy ones", flush=True)
    return out


def write(path, arrays):
    header, at = {}, 0
    for name, array in arrays.items():
        code = {"int32": "I32", "float32": "F32"}[str(array.dtype)]
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(array.tobytes() for array in arrays.values()))


def read(path):
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    kinds = {"I32": np.int32, "F32": np.float32}
    return {
        name: np.frombuffer(raw, kinds[entry["dtype"]], np.prod(entry["shape"], dtype=int), 8 + size + entry["data_offsets"][0])
        .reshape(entry["shape"])
        for name, entry in json.loads(raw[8 : 8 + size]).items()
    }


def main():
    parser = argparse.ArgumentParser(description="golden answers of phantom/checkpoint by transformers")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    made = vectors()
    if not arguments.check:
        write(FILE, made)
        print(f"{FILE.stat().st_size} bytes")
        return 0
    stored = read(FILE)
    bad = set(made) ^ set(stored)
    for name in set(made) & set(stored):
        difference = np.linalg.norm(made[name].astype(float) - stored[name]) if made[name].shape == stored[name].shape else np.inf
        if difference > (1e-5 * np.linalg.norm(stored[name]) if name.endswith(".logits") else 0):
            bad.add(name)
    print("differs: " + ", ".join(sorted(bad)) if bad else "equal")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
