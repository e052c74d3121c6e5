#!/usr/bin/env python3
"""`kill -9` of a demo at random moments, then --resume: the verdict is the uninterrupted one's, no finished trial is lost or
repeated, no process is left.

One case is killed again and again, the first time while it is being sealed. Usage: kill_test.py BUILD [--kills N] [--rng N]
"""
import argparse
import pathlib
import random
import sys
import tempfile
import time

from demo_support import Build, Demo, host_of, journal_trials, wait_until

GONE_WITHIN_S = 20


def kill_once(build, case, seed, after_s):
    """Runs the case for a while and kills it; returns what was wrong."""
    before = journal_trials(case)
    demo = Demo(build, case, "--seed", seed, "--resume")
    deadline = time.monotonic() + after_s
    while time.monotonic() < deadline and demo.process.poll() is None:
        time.sleep(0.005)
    if demo.process.poll() is not None:
        return None
    demo.kill()
    wait_until(lambda: not demo.processes(), GONE_WITHIN_S, f"every process gone; left: {demo.processes()}")
    after = journal_trials(case)
    if after[:len(before)] != before:
        return [f"killed after {after_s:.2f} s: the journal lost or changed a trial"]
    print(f"killed after {after_s:.2f} s: {len(before)} -> {len(after)} trials", flush=True)
    return []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--rng", type=int, default=1)
    parser.add_argument("--max-kill-s", type=float, default=25)
    args = parser.parse_args()
    build = Build(args.build)
    kind, seeds = next(iter(build.seeds(1).items()))
    rng = random.Random(args.rng)
    with tempfile.TemporaryDirectory() as folder:
        case = pathlib.Path(folder) / "case"
        problems = []
        for number in range(args.kills):
            after_s = rng.uniform(0.01, 0.5) if number % 5 == 0 else rng.uniform(0.5, args.max_kill_s)
            wrong = kill_once(build, case, seeds[0], after_s)
            if wrong is None:
                print(f"the case ended before kill {number + 1} of {args.kills}")
                break
            problems += wrong
        before = journal_trials(case)
        demo = Demo(build, case, "--seed", seeds[0], "--resume")
        code, result, err = demo.finish()
        wait_until(lambda: not demo.processes(), GONE_WITHIN_S, "every process gone at the end")
        after = journal_trials(case)
        keys = [trial[:3] for trial in after]
        if result is None:
            print(f"exit {code}\n{err}")
            return 1
        culprits = [(c["switch"], c["side"]) for c in result["culprits"]]
        if (code, result["verdict"], culprits) != (1, "confirmed", [(host_of(build, kind), "on")]):
            problems.append(f"exit {code}, verdict {result['verdict']}, culprits {culprits}")
        if after[:len(before)] != before:
            problems.append("the last run lost or changed a trial")
        if len(set(keys)) != len(keys):
            problems.append("a trial is in the journal twice")
        print(f"ended: exit {code}, {result['verdict']}, {len(after)} trials, {len(before)} of them before the last kill")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


sys.exit(main())
