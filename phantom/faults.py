"""Cheap faults in PyTorch, measured while training: which kinds a checkpoint's answers feel. Candidates are chosen by it."""
import collections
import math

import evaluate
from model import RIGHT, Faults


def cases(config):
    """name -> Faults."""
    return {
        "none": RIGHT,
        "scale twice": Faults(scale_twice="all"),
        "scale twice, hash layers": Faults(scale_twice="hash"),
        "Sinkhorn 1": Faults(sinkhorn_iterations=1),
        "Sinkhorn 3": Faults(sinkhorn_iterations=3),
        "top-k half": Faults(index_topk=config.index_topk // 2),
        "top-k quarter": Faults(index_topk=config.index_topk // 4),
        "one row in 32 zero": Faults(zero_every=32),
        "window -16": Faults(window=config.sliding_window - 16),
        "no sink": Faults(no_sink=True),
        "HCA off": Faults(no_hca=True),
        "mHC in bf16": Faults(mhc_bf16=True),
        "experts unclamped": Faults(unclamped=True),
        "comb transposed": Faults(comb_transposed=True),
    }


def sign_test(lost, won):
    """Two-sided p-value of `lost` against `won` discordant answers under a fair coin."""
    n = lost + won
    if n == 0:
        return 1.0
    tail = sum(math.comb(n, k) for k in range(max(lost, won), n + 1)) / 2 ** n
    return min(1.0, 2 * tail)


def measure(model, batches, device="cuda"):
    """Rows (fault, task, length, asked, right, lost, won, nats, p): paired with the faultless pass on the same answers.

    lost: right without the fault, wrong with it; won: the reverse; nats: by how much less likely the right answer became.
    """
    truth, rows = {}, []
    batches = list(batches)
    for name, faults in cases(model.config).items():
        sums = collections.defaultdict(lambda: [0, 0, 0, 0, 0.0])
        for at, (task, length, _, _, ids, answer) in enumerate(batches):
            right, logp = evaluate.score_batch(model, ids.to(device), answer.to(device), faults)
            right, logp = right.detach(), logp.detach()
            if faults is RIGHT:
                truth[at] = right, logp
            base_right, base_logp = truth[at]
            cell = sums[task, length]
            for i, value in enumerate((right.numel(), right.sum(), (base_right & ~right).sum(), (~base_right & right).sum(),
                                       (base_logp - logp).sum())):
                cell[i] += float(value) if i == 4 else int(value)
        for (task, length), (asked, right, lost, won, nats) in sums.items():
            rows.append((name, task, length, asked, right, lost, won, nats / max(1, asked), sign_test(lost, won)))
    return rows


def table(rows):
    lines = ["| fault | task | length | right | lost | won | nats | p |", "|---|---|---|---|---|---|---|---|"]
    lines += [f"| {n} | {t} | {s} | {r}/{a} | {lost} | {won} | {nats:.4f} | {p:.2g} |" for n, t, s, a, r, lost, won, nats, p in rows]
    return "\n".join(lines)
