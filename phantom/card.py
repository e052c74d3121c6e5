#!/usr/bin/env python3
"""Measures a checkpoint and writes its card: recall of every task and length, held-out forms, and what faults do to it.

Usage: python3 phantom/card.py CHECKPOINT --out DIR [--seconds N] [--lengths 256,...] [--f32] [--no-faults]

CHECKPOINT has model.safetensors (bf16) and config.json. DIR gets card.md and card.json. Row r of a cell is
`tasks.sample(numpy.random.default_rng([SEED, first + r]), task, length, split)`: so anyone can repeat it. --f32 computes in
f32 (the weights stay bf16), as the C++ engine does; otherwise products are bf16. --seconds stops between two cells.
"""
import argparse
import json
import math
import os
import pathlib
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch

import data
import evaluate
import export
import faults
import tasks

LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
FAULT_LENGTHS = (1024, 4096)
FAULT_TASKS = ("multi", "turns", "dense", "update", "verbatim", "often")
HELD_OUT_UP_TO = 4096
TARGETS = {"single": 0.995, "multi": 0.995, "turns": 0.995, "dense": 0.97, "update": 0.97, "long_code": 0.97, "verbatim": 0.97}
HELD_OUT_TARGET = 0.95


def trials(length):
    """Conversations a cell: at least a batch of 65,536 tokens, more where a batch holds few."""
    return min(256, max(32, 131072 // length))


def lower_bound(right, asked, z=1.96):
    """Wilson's lower bound of a share."""
    if not asked:
        return 0.0
    p = right / asked
    return (p + z * z / (2 * asked) - z * math.sqrt(p * (1 - p) / asked + z * z / (4 * asked ** 2))) / (1 + z * z / asked)


def verdicts(scores):
    """Lines on each target: met where the share itself is at least the target, with the cells that fall short."""
    lines = []
    for task, target in TARGETS.items():
        cells = {n: s for (t, n, split), s in scores.items() if t == task and split == "train"}
        short = {n: s for n, s in cells.items() if s.exact < target}
        text = "met" if not short else "missed at " + ", ".join(f"{n} ({s.exact:.3f})" for n, s in sorted(short.items()))
        lines.append(f"- {task} ≥ {target:.1%}: {text} of {len(cells)} lengths")
    for task in TARGETS:
        cells = [s for (t, _, split), s in scores.items() if t == task and split == "held_out"]
        right, asked = sum(s.right for s in cells), sum(s.asked for s in cells)
        if asked:
            lines.append(f"- {task}, held-out forms ≥ {HELD_OUT_TARGET:.0%}: {'met' if right / asked >= HELD_OUT_TARGET else 'missed'} "
                         f"({right}/{asked} = {right / asked:.3f}, at least {lower_bound(right, asked):.3f})")
    return lines


def write(folder, scores, fault_rows, about):
    folder.mkdir(parents=True, exist_ok=True)
    cells = [dict(task=t, length=n, split=s, right=v.right, asked=v.asked, nats=v.nats) for (t, n, s), v in scores.items()]
    names = "fault task length asked right lost won nats p".split()
    (folder / "card.json").write_text(json.dumps(dict(about=about, cells=cells, faults=[dict(zip(names, r)) for r in fault_rows]), indent=1))
    text = ["# The phantom's card", "", "Written by `python3 phantom/card.py`; the same figures are in card.json.", "",
            *(f"- {k}: {v}" for k, v in about.items()), "", "## Recall: exact match of whole answers", "",
            evaluate.table(scores), "", "### Held-out wordings, alphabets and separators", "", evaluate.table(scores, "held_out"),
            "", "### Against the targets", "", *verdicts(scores), "", "## Faults", "",
            "Paired on the same answers: lost are right without the fault and wrong with it, won the reverse; nats: by how much less",
            "likely the right answer became, mean over answers; p: two-sided sign test of lost against won.", "", faults.table(fault_rows), ""]
    (folder / "card.md").write_text("\n".join(text))


def measure(checkpoint, out, lengths=LENGTHS, seconds=math.inf, workers=1, device="cpu", f32=False, with_faults=True,
            training=None):
    """Measures and writes the card. Past `seconds` no further cell is begun; the card then has those that were measured.

    training: what the card is to say of how the checkpoint was made.
    """
    began = time.monotonic()
    model = export.load(checkpoint, torch.float32 if f32 else torch.bfloat16).to(device)
    tokens = 65536 if device != "cpu" else 4096
    scores, fault_rows = {}, []
    with torch.no_grad():
        if with_faults:
            wanted = evaluate.cells(FAULT_TASKS, [n for n in FAULT_LENGTHS if n in lengths], lambda n: 1, tokens=tokens)
            batches = data.loader(data.EvaluationBatches(evaluate.EVALUATION_SEED + 1, wanted), workers)
            fault_rows = faults.measure(model, batches, device)
        wanted = evaluate.cells(tasks.TASKS, lengths, trials, ("train",), tokens)
        wanted += evaluate.cells(TARGETS, [n for n in lengths if n <= HELD_OUT_UP_TO], trials, ("held_out",), tokens)
        for batch in data.loader(data.EvaluationBatches(evaluate.EVALUATION_SEED, wanted), workers):
            if time.monotonic() - began > seconds:
                print("time is up: the card has the cells measured so far", flush=True)
                break
            for key, score in evaluate.evaluate(model, [batch], device=device).items():
                total = scores.setdefault(key, evaluate.Score())
                total.right, total.asked, total.nats = total.right + score.right, total.asked + score.asked, total.nats + score.nats
    about = {**(training or {}), "parameters": sum(t.numel() for t in model.parameters()), "seed of the prompts": evaluate.EVALUATION_SEED,
             "seed of the prompts with faults": evaluate.EVALUATION_SEED + 1,
             "arithmetic": "f32" if f32 else "bf16 products, all else f32", "weights": "bf16"}
    write(pathlib.Path(out), scores, fault_rows, about)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("checkpoint", type=pathlib.Path)
    p.add_argument("--out", type=pathlib.Path, required=True)
    p.add_argument("--seconds", type=float, default=math.inf)
    p.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    p.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--f32", action="store_true")
    p.add_argument("--no-faults", action="store_true")
    args = p.parse_args()
    measure(args.checkpoint, args.out, [int(n) for n in args.lengths.split(",")], args.seconds, args.workers, args.device,
            args.f32, not args.no_faults)
    print((args.out / "card.md").read_text())


if __name__ == "__main__":
    main()
