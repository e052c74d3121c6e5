"""Exact match of whole answers, teacher-forced: equal to greedy decoding, answer by answer, as earlier answers are right.

An answer is right when every id of it, its end token included, is the most likely one.
"""
import collections
import dataclasses

import torch

import data
import plan
from model import RIGHT

EVALUATION_SEED = 1_000_000_007  # never a training seed


@dataclasses.dataclass
class Score:
    right: int = 0
    asked: int = 0
    nats: float = 0.0  # sum over answers of -log p(answer)

    @property
    def exact(self):
        return self.right / max(1, self.asked)


def cells(names, lengths, trials, splits=("train",), tokens=plan.TOKENS_PER_STEP):
    """Cells of one batch each: every task, length and split, at least `trials` conversations where that many fit a batch."""
    out = []
    for split in splits:
        for length in lengths:
            rows = tokens // length
            for task in names:
                for first in range(0, max(trials(length), 1), rows):
                    out.append((task, length, split, first, rows))
    return out


def answers(logp, right, answer):
    """Per answer of a batch: (all ids right, log-probability). answer [B, S]: number of the answer of each target."""
    index = answer.long().clamp(min=0) + torch.arange(len(answer), device=answer.device)[:, None] * 4096
    used = answer > 0
    _, group = index[used].unique(return_inverse=True)
    count = int(group.max()) + 1 if group.numel() else 0
    wrong = torch.zeros(count, device=logp.device).index_add_(0, group, (~right[used]).float())
    total = torch.zeros(count, device=logp.device).index_add_(0, group, logp[used].float())
    return wrong == 0, total


def score_batch(model, ids, answer, faults=RIGHT):
    """(right [n], log-probability [n]) of the answers of a batch. Gradients stay on: the compiled code is then training's."""
    targets = ids.roll(-1, 1).long()
    _, logp, right, _ = model.loss(ids.long(), targets, (answer > 0).float() + 1e-6, faults)
    return answers(logp, right, answer)


def evaluate(model, batches, faults=RIGHT, device="cuda"):
    """(task, length, split) -> Score."""
    scores = collections.defaultdict(Score)
    for task, length, split, _, ids, answer in batches:
        right, logp = score_batch(model, ids.to(device), answer.to(device), faults)
        score = scores[task, length, split]
        score.right += int(right.sum())
        score.asked += right.numel()
        score.nats -= float(logp.sum())
    return dict(scores)


def table(scores, split="train"):
    """Markdown: a task a line, a length a column."""
    names = list(dict.fromkeys(t for t, _, s in scores if s == split))
    lengths = sorted({n for _, n, s in scores if s == split})
    lines = ["| task | " + " | ".join(map(str, lengths)) + " |", "|---|" + "---|" * len(lengths)]
    for name in names:
        row = [scores.get((name, n, split)) for n in lengths]
        lines.append(f"| {name} | " + " | ".join("–" if s is None else f"{s.right}/{s.asked}" for s in row) + " |")
    return "\n".join(lines)
