#!/usr/bin/env python3
"""`kill -9` of demos at random moments, then --resume: the verdict is the uninterrupted one's, no finished trial is lost or
repeated, no process is left.

A case is killed again and again, the first time while it is being sealed; when it comes to its end before the next kill,
another plant's case takes over until all kills were made. Usage: kill_test.py BUILD [--kills N] [--rng N] [--max-kill-s S]
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


def kill_case(build, case, seed, delays):
    """Kills the case after each of `delays` seconds until they run out or it ends; returns (kills made, what was wrong)."""
    problems = []
    for made, after_s in enumerate(delays):
        wrong = kill_once(build, case, seed, after_s)
        if wrong is None:
            return made, problems
        problems += wrong
    return len(delays), problems


def finish_case(build, case, seed, kind):
    """Resumes the case to its end; returns what was wrong."""
    before = journal_trials(case)
    demo = Demo(build, case, "--seed", seed, "--resume")
    code, result, err = demo.finish()
    wait_until(lambda: not demo.processes(), GONE_WITHIN_S, "every process gone at the end")
    after = journal_trials(case)
    if result is None:
        return [f"exit {code}\n{err}"]
    problems = []
    culprits = [(c["switch"], c["side"]) for c in result["culprits"]]
    if (code, result["verdict"], culprits) != (1, "confirmed", [(host_of(build, kind), "on")]):
        problems.append(f"{kind} seed {seed}: exit {code}, verdict {result['verdict']}, culprits {culprits}")
    if after[:len(before)] != before:
        problems.append("the last run lost or changed a trial")
    keys = [trial[:3] for trial in after]
    if len(set(keys)) != len(keys):
        problems.append("a trial is in the journal twice")
    print(f"{kind} seed {seed} ended: exit {code}, {result['verdict']}, {len(after)} trials, {len(before)} of them before the last kill",
          flush=True)
    return problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--rng", type=int, default=1)
    parser.add_argument("--max-kill-s", type=float, default=8)
    args = parser.parse_args()
    build = Build(args.build)
    seeds = build.seeds(3)
    cases = [(kind, seeds[kind][turn]) for turn in range(3) for kind in seeds]
    rng = random.Random(args.rng)
    delays = [rng.uniform(0.01, 0.5) if number % 5 == 0 else rng.uniform(0.5, args.max_kill_s) for number in range(args.kills)]
    problems, made = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for number, (kind, seed) in enumerate(cases):
            if made == args.kills:
                break
            case = pathlib.Path(folder) / f"case-{number}"
            kills, wrong = kill_case(build, case, seed, delays[made:])
            made += kills
            problems += wrong + finish_case(build, case, seed, kind)
    print(f"{made} kills")
    if made < args.kills:
        problems.append(f"only {made} of {args.kills} kills: the cases ended too soon; take a smaller --max-kill-s")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


sys.exit(main())
