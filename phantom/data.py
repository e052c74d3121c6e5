"""Batches of the tasks: batch n of a seed is the same whatever the number of workers, so a run can stop and resume."""
import numpy as np
import torch

import plan
import tasks

PAD = 1  # the end-of-sequence id; what follows a conversation is never a target


def fill(samples, length):
    """Rows [B, length]: ids, and the number of the answer that the *next* id belongs to (0: none, -1: no target)."""
    ids = np.full((len(samples), length), PAD, np.int32)
    answer = np.full((len(samples), length), -1, np.int16)
    for row, sample in enumerate(samples):
        count = min(len(sample.ids), length)
        ids[row, :count] = sample.ids[:count]
        answer[row, :count - 1] = 0
        for number, (begin, end) in enumerate(sample.answers, 1):
            if end <= count:
                answer[row, begin - 1:end - 1] = number
    return torch.from_numpy(ids), torch.from_numpy(answer)


class TrainingBatches(torch.utils.data.Dataset):
    """Item n: the batch of step n, (length, ids [B, length], answer [B, length])."""

    def __init__(self, seed, phases, mix):
        self.seed, self.phases, self.mix = seed, phases, mix

    def __len__(self):
        return plan.total_steps(self.phases)

    def __getitem__(self, step):
        phase = plan.phase_at(step, self.phases)
        rng = np.random.default_rng([self.seed, step])
        shares = np.array(list(phase.lengths.values()))
        length = int(rng.choice(list(phase.lengths), p=shares / shares.sum()))
        names, weights = list(self.mix), np.array(list(self.mix.values()), float)
        names = rng.choice(names, plan.TOKENS_PER_STEP // length, p=weights / weights.sum())
        return length, *fill([tasks.sample(rng, str(name), length) for name in names], length)


class EvaluationBatches(torch.utils.data.Dataset):
    """Item i: (task, length, split, seeds, ids, answer) of `cells[i]` = (task, length, split, first, rows).

    Row r is tasks.sample(np.random.default_rng([seed, first + r]), task, length, split): the card names these seeds.
    """

    def __init__(self, seed, cells):
        self.seed, self.cells = seed, cells

    def __len__(self):
        return len(self.cells)

    def __getitem__(self, item):
        task, length, split, first, rows = self.cells[item]
        samples = [tasks.sample(np.random.default_rng([self.seed, first + r]), task, length, split) for r in range(rows)]
        return task, length, split, first, *fill(samples, length)


def loader(dataset, workers, begin=0):
    """Items from `begin` on, in order."""
    order = torch.utils.data.Subset(dataset, range(begin, len(dataset)))
    return torch.utils.data.DataLoader(order, batch_size=None, num_workers=workers, shuffle=False,
                                       prefetch_factor=4 if workers else None, pin_memory=torch.cuda.is_available())
