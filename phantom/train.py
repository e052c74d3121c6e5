#!/usr/bin/env python3
"""Trains the phantom from nothing on one GPU; the same command again goes on where it stopped.

Usage: python3 phantom/train.py --out DIR [--seed N] [--resume] [--minutes M] [--optimizer muon|adamw] [--steps N]

DIR gets state.pt (weights and optimiser, for --resume), curve.csv, recall.csv and checkpoint/ (model.safetensors,
config.json, tokenizer.json); when the plan is done, the card, too. --minutes ends a piece early, between two
steps, with its state saved; --steps scales the plan to so many steps. Needs PyTorch and NumPy.
"""
import argparse
import csv
import json
import math
import os
import pathlib
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch

import card
import data
import evaluate
import export
import plan
import talk
import tasks
from config import Config
from model import Phantom, initialise
from optimizer import Optimizer

MUON_LR, ADAM_LR = 5e-3, 2e-3
ROUTER_STEP = 2e-3  # of the correction bias, towards balanced loads
REPORT_EVERY = 50
RECALL_EVERY = 500
SAVE_EVERY_SECONDS = 120


def scaled(phases, steps):
    """The plan at another total of steps, phases in proportion."""
    total = plan.total_steps(phases)
    return tuple(plan.Phase(p.name, max(1, round(p.steps * steps / total)), p.lengths, p.dense) for p in phases)


def index_weights(answer):
    """Weights of tokens in the indexer's loss; a little noise makes the sample of long sequences a random one."""
    weights = torch.where(answer > 0, 1.0, plan.INDEX_OTHER_WEIGHT)
    return (weights * (1 + 0.01 * torch.rand_like(weights))).flatten()


def balance(model, loads):
    """Moves each scored layer's correction bias against its experts' loads."""
    scored = model.model.layers[model.config.num_hash_layers:]
    biases = [layer.mlp.gate.e_score_correction_bias for layer in scored]
    loads = torch.stack(loads).float()
    steps = ROUTER_STEP * torch.sign(loads.mean(1, keepdim=True) - loads)
    torch._foreach_add_(biases, list(steps.unbind(0)))


def train_step(model, optimizer, ids, answer, dense, factor):
    """One step; returns tensors (loss, index loss, answers' loss, share of answer tokens right, clamp hits, gradient norm)."""
    ids, targets = ids.long(), ids.roll(-1, 1).long()
    weights = torch.where(answer > 0, 1.0, plan.OTHER_WEIGHT) * (answer >= 0)
    loss, logp, right, trace = model.loss(ids, targets, weights, dense=dense, index_weights=index_weights(answer))
    (loss + trace.index_loss).backward()
    norm = optimizer.step(factor)
    balance(model, trace.loads)
    asked = (answer > 0).float()
    count = asked.sum().clamp(min=1)
    return torch.stack([loss.detach(), trace.index_loss.detach(), -(logp * asked).sum() / count,
                        (right * asked).sum() / count, torch.stack(trace.clamp_hits).mean(), norm])


class Table:
    """A CSV file that grows."""

    def __init__(self, path, header, fresh):
        self.file = open(path, "w" if fresh else "a", newline="", buffering=1)
        self.writer = csv.writer(self.file)
        if fresh:
            self.writer.writerow(header)

    def row(self, *values):
        self.writer.writerow([f"{v:.6g}" if isinstance(v, float) else v for v in values])


def save(path, model, optimizer, step, seconds):
    """Written whole or not at all."""
    torch.save(dict(model=model.state_dict(), optimizer=optimizer.state_dict(), step=step, seconds=seconds), f"{path}.new")
    os.replace(f"{path}.new", path)


def probe_batches(workers):
    """The fixed conversations that recall is measured on while training: every task at three lengths, and held-out forms."""
    wanted = evaluate.cells(tasks.TASKS, (256, 1024, 4096), lambda n: 1, tokens=16384)
    wanted += evaluate.cells(card.TARGETS, (1024,), lambda n: 1, ("held_out",), tokens=16384)
    return list(data.loader(data.EvaluationBatches(evaluate.EVALUATION_SEED, wanted), workers))


def merged(batches):
    """Batches of one length laid together to 65,536 tokens, so that the compiled code fits: (length, ids, answer, cells)."""
    groups = {}
    for task, length, split, _, ids, answer in batches:
        groups.setdefault(length, []).append((task, split, ids, answer))
    for length, members in groups.items():
        per = plan.TOKENS_PER_STEP // length
        rows = [(t, s, i[r], a[r]) for t, s, i, a in members for r in range(len(i))]
        for begin in range(0, len(rows), per):
            part = rows[begin:begin + per]
            part = part + [part[-1]] * (per - len(part)) if len(part) < per else part
            yield length, part, min(per, len(rows) - begin)


def probe(model, batches, device):
    """(task, length, split) -> [right, asked], on probe_batches."""
    sums = {}
    for length, rows, real in merged(batches):
        ids = torch.stack([r[2] for r in rows]).to(device)
        answer = torch.stack([r[3] for r in rows]).to(device)
        answer[real:] = 0
        targets = ids.roll(-1, 1).long()
        _, _, right, _ = model.loss(ids.long(), targets, (answer > 0).float() + 1e-6)
        index = answer.long().clamp(min=0)
        wrong = torch.zeros(len(rows), int(index.max()) + 1, device=device).scatter_add_(1, index, (~right).float())
        there = torch.zeros_like(wrong).scatter_(1, index, 1.0)
        wrong, there = wrong[:, 1:].cpu(), there[:, 1:].cpu()
        for r, (task, split, _, _) in enumerate(rows[:real]):
            cell = sums.setdefault((task, length, split), [0, 0])
            cell[0] += int(((wrong[r] == 0) & (there[r] > 0)).sum())
            cell[1] += int(there[r].sum())
    return sums


def parse():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--out", type=pathlib.Path, required=True)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--resume", action="store_true")
    p.add_argument("--minutes", type=float, default=math.inf)
    p.add_argument("--optimizer", choices=("muon", "adamw"), default="muon")
    p.add_argument("--steps", type=int, default=plan.total_steps())
    p.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return p.parse_args()


def main():
    args, began = parse(), time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    phases, state_path = scaled(plan.PLAN, args.steps), args.out / "state.pt"
    total = plan.total_steps(phases)
    torch.manual_seed(args.seed)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    config = Config(vocab_size=talk.TOKENIZER.size)
    model = Phantom(config, torch.bfloat16)
    initialise(model, args.seed)
    model.to(args.device)
    optimizer = Optimizer(model, args.optimizer, MUON_LR, ADAM_LR)
    step, before = 0, 0.0
    if args.resume and state_path.exists():
        state = torch.load(state_path, map_location=args.device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step, before = state["step"], state["seconds"]
    if args.device != "cpu":
        model.fuse()
    curve = Table(args.out / "curve.csv", "step phase length tokens seconds loss index_loss answer_loss answer_tokens_right "
                  "clamp_hits gradient_norm waited".split(), step == 0)
    recall = Table(args.out / "recall.csv", "step task length split right asked".split(), step == 0)
    batches = iter(data.loader(data.TrainingBatches(args.seed, phases, plan.MIX), args.workers, step))
    probes = probe_batches(min(args.workers, 4))
    waited, saved = 0.0, time.monotonic()

    def seconds():
        return before + time.monotonic() - began

    while step < total and time.monotonic() - began < args.minutes * 60:
        asked_at = time.monotonic()
        length, ids, answer = next(batches)
        waited += time.monotonic() - asked_at
        phase = plan.phase_at(step, phases)
        numbers = train_step(model, optimizer, ids.to(args.device, non_blocking=True), answer.to(args.device, non_blocking=True),
                             phase.dense, plan.rate_factor(step, total))
        step += 1
        if step % REPORT_EVERY == 0 or step == 1:
            values = numbers.tolist()
            if not math.isfinite(values[0]):
                print(f"step {step}: loss is {values[0]}; the state of the last save is kept", flush=True)
                return 1
            curve.row(step, phase.name, length, step * plan.TOKENS_PER_STEP, seconds(), *values, waited)
            print(f"{step}/{total} {phase.name} {length} {seconds():.0f} s, waited {waited:.0f}: loss {values[0]:.3f} "
                  f"index {values[1]:.3f} answers {values[2]:.4f} right {values[3]:.4f} clamped {values[4]:.4f}", flush=True)
            waited = 0.0
        if step % RECALL_EVERY == 0:
            sums = probe(model, probes, args.device)
            for (task, size, split), (right, asked) in sums.items():
                recall.row(step, task, size, split, right, asked)
            print("  " + " ".join(f"{t}/{n}{'h' if s == 'held_out' else ''} {r / max(1, a):.3f}" for (t, n, s), (r, a) in sums.items()),
                  flush=True)
        if time.monotonic() - saved > SAVE_EVERY_SECONDS:
            save(state_path, model, optimizer, step, seconds())
            saved = time.monotonic()
    save(state_path, model, optimizer, step, seconds())
    export.checkpoint(model, args.out / "checkpoint")
    if step >= total:
        card.measure(args.out / "checkpoint", args.out / "checkpoint", workers=args.workers, device=args.device,
                     training={"training seed": args.seed, "steps": step, "tokens": step * plan.TOKENS_PER_STEP,
                               "optimizer": args.optimizer, "seconds of training": round(seconds())})
    print(json.dumps(dict(step=step, of=total, seconds=round(seconds(), 1), done=step >= total)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
