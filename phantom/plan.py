"""The plan of training: phases of lengths and tasks, and what the learning rate does. Data: changing it changes the model.

65,536 tokens a step: 600 + 900 + 1100 + 6000 steps are 39 + 59 + 72 + 393 = 564 million tokens.
"""
import dataclasses

TOKENS_PER_STEP = 65536
WARM_UP_STEPS = 100
DECAY_SHARE = 0.4  # of all steps, at the end: linear to FINAL_FACTOR
FINAL_FACTOR = 0.02
OTHER_WEIGHT = 0.05  # loss weight of tokens that are no answer
INDEX_OTHER_WEIGHT = 1 / 51  # the same in the indexer's loss


# How often each task is drawn. Copying needs most of the practice; the choices are few bits an answer.
MIX = {"single": 1, "multi": 2.5, "dense": 4, "turns": 3.5, "update": 2, "verbatim": 2, "long_code": 1.5, "place": 1,
       "often": 0.7, "later": 0.5, "lookup": 0.7}


@dataclasses.dataclass(frozen=True)
class Phase:
    name: str
    steps: int
    lengths: dict  # length -> share of the steps
    dense: bool = False  # attend to all rows while the indexer learns to tell them apart


PLAN = (
    Phase("short", 600, {256: 1.0}, dense=True),
    Phase("medium", 900, {256: 0.1, 512: 0.2, 1024: 0.7}, dense=True),
    Phase("sparse", 1100, {256: 0.05, 512: 0.1, 1024: 0.35, 2048: 0.25, 4096: 0.25}),
    Phase("long", 6000, {256: 0.06, 512: 0.06, 1024: 0.14, 2048: 0.14, 4096: 0.24, 8192: 0.16, 16384: 0.12, 32768: 0.08}),
)


def total_steps(plan=PLAN):
    return sum(phase.steps for phase in plan)


def phase_at(step, plan=PLAN):
    for phase in plan:
        if step < phase.steps:
            return phase
        step -= phase.steps
    return plan[-1]


def rate_factor(step, total):
    warm = min(1.0, (step + 1) / WARM_UP_STEPS)
    left = (total - step) / (DECAY_SHARE * total)
    return warm * max(FINAL_FACTOR, min(1.0, left))
