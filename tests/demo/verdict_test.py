#!/usr/bin/env python3
"""The demo names what was planted: for each plant, and for clean runs.

Usage: verdict_test.py BUILD [--kind KIND | --clean] [--seeds N] [--max-seconds S]
"""
import argparse
import pathlib
import sys
import tempfile
import time

from demo_support import Build, Demo, host_of


def run_one(build, folder, seed, kind, max_seconds):
    started = time.monotonic()
    case = pathlib.Path(folder) / f"{kind or 'clean'}-{seed}"
    code, result, err = Demo(build, case, "--seed", seed, "--faults", 1 if kind else 0).finish()
    seconds = time.monotonic() - started
    if result is None:
        return f"seed {seed}: exit {code} without a result\n{err}"
    problems = []
    if kind:
        culprits = [(c["switch"], c["side"]) for c in result["culprits"]]
        if (result["verdict"], culprits, code) != ("confirmed", [(host_of(build, kind), "on")], 1):
            problems.append(f"verdict {result['verdict']}, culprits {culprits}, exit {code}")
    elif (result["verdict"], result["culprits"], code) != ("clean", [], 0):
        problems.append(f"verdict {result['verdict']}, culprits {result['culprits']}, exit {code}, not covered "
                        f"{result['not_covered']}")
    if result["planted"]["kind"] != (kind or "none") or result["match"] is not True:
        problems.append(f"planted {result['planted']}, match {result['match']}")
    if seconds > max_seconds:
        problems.append(f"took {seconds:.0f} s")
    for name in ("report.md", "report.json", "verdict.json", "journal.sqlite"):
        if not (case / name).is_file():
            problems.append(f"no {name}")
    print(f"{kind or 'clean'} seed {seed}: {result['verdict']}, exit {code}, {seconds:.0f} s, {result['trials']} trials",
          flush=True)
    return "; ".join(problems) and f"{kind or 'clean'} seed {seed}: {'; '.join(problems)}\n{err}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--kind", action="append", default=[])
    parser.add_argument("--clean", action="store_true")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--max-seconds", type=float, default=300)
    args = parser.parse_args()
    build = Build(args.build)
    seeds = build.seeds(args.seeds)
    runs = [(kind, seed) for kind in args.kind for seed in seeds[kind]]
    if args.clean:
        runs += [(None, seed) for seed in range(args.seeds)]
    with tempfile.TemporaryDirectory() as folder:
        problems = [p for kind, seed in runs if (p := run_one(build, folder, seed, kind, args.max_seconds))]
    for problem in problems:
        print(problem)
    return 1 if problems or not runs else 0


sys.exit(main())
