#!/usr/bin/env python3
"""The demo on every sort of fault: how many verdicts are right, how many wrong, and how long they take.

Usage: strata.py BUILD --out FILE.md [--count 20] [--strata one,two] [--all-kinds] [--anonymous] [--jobs 1]

Each stratum is asked with seeds 0, 1, 2…; one JSON line a demo goes to FILE.jsonl, so that an interrupted run goes on where it
stopped and a larger --count adds to it. FILE.md has a line for each stratum and a list of what was not right. Right: the
verdict names what was planted. Wrong: another verdict that is not "inconclusive"; at 0.95: with a posterior of at least that.
Exits 1 when a stratum has less than nine tenths right, a wrong verdict was confirmed, or more than 1 in 140 is wrong at 0.95.
"""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "demo"))
from demo_support import Build, Demo  # noqa: E402

STRATA = ("one", "two", "stochastic", "no-switch", "off-side", "masked", "clean")


def ask(build, stratum, seed, options):
    """One demo as the line that is kept of it."""
    with tempfile.TemporaryDirectory(prefix="plumb-strata-") as folder:
        code, result, err = Demo(build, pathlib.Path(folder) / "case", "--seed", seed, "--stratum", stratum, *options).finish()
    line = {"stratum": stratum, "seed": seed, "exit": code}
    if result is None:
        return {**line, "error": err.strip().splitlines()[-1:]}
    keys = ("verdict", "culprits", "class", "posterior", "posterior_flat_prior", "launches", "trials", "planted", "match", "seconds")
    return {**line, **{key: result.get(key) for key in keys}}


def sure(line):
    return (line.get("posterior") or 0) >= 0.95


def table(lines, command):
    by = collections.defaultdict(list)
    for line in lines:
        by[line["stratum"]].append(line)
    text = ["# The demo on every sort of fault", "", f"`{command}`", "",
            "| stratum | demos | right | inconclusive | wrong | wrong and confirmed | wrong at 0.95 | seconds, median (largest) | launches, median |",
            "|---|---|---|---|---|---|---|---|---|"]
    failed = []
    for stratum in STRATA:
        if not (some := by.get(stratum)):
            continue
        right = [x for x in some if x.get("match")]
        open_ = [x for x in some if x.get("verdict") == "inconclusive"]
        wrong = [x for x in some if x not in right and x not in open_]
        seconds = [x["seconds"] for x in some if "seconds" in x] or [0]
        launches = [sum(v or 0 for v in x["launches"].values()) for x in some if x.get("launches")] or [0]
        confirmed = [x for x in wrong if x.get("verdict") == "confirmed"]
        text.append(f"| {stratum} | {len(some)} | {len(right)} | {len(open_)} | {len(wrong)} | {len(confirmed)} | {sum(map(sure, wrong))} "
                    f"| {statistics.median(seconds):.0f} ({max(seconds):.0f}) | {statistics.median(launches):.0f} |")
        if len(right) < 0.9 * len(some):
            failed.append(f"{stratum}: {len(right)} of {len(some)} are right")
        if confirmed:
            failed.append(f"{stratum}: {len(confirmed)} confirmed what was not planted")
    wrong = [x for x in lines if not x.get("match") and x.get("verdict") != "inconclusive"]
    if sum(map(sure, wrong)) > len(lines) / 140:
        failed.append(f"{sum(map(sure, wrong))} of {len(lines)} are wrong at 0.95")
    text += ["", "## Not right", "", "| stratum | seed | planted | verdict | culprits | posterior |", "|---|---|---|---|---|---|"]
    for x in lines:
        if x.get("match"):
            continue
        planted = x.get("planted") or {}
        names = " + ".join(f"{p['kind']} ({p['form']}) in {p['switch'] or 'no switch'}" for p in [planted, *planted.get("also", [])] if p)
        accused = ", ".join(f"{c['switch']} {c['side']}" for c in x.get("culprits") or []) or "none"
        text.append(f"| {x['stratum']} | {x['seed']} | {names} | {x.get('verdict', x.get('error'))} | {accused} | {x.get('posterior')} |")
    return "\n".join(text) + "\n", failed


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("build")
    p.add_argument("--out", type=pathlib.Path, required=True)
    p.add_argument("--count", type=int, default=20)
    p.add_argument("--strata", default=",".join(STRATA))
    p.add_argument("--all-kinds", action="store_true")
    p.add_argument("--anonymous", action="store_true")
    p.add_argument("--jobs", type=int, default=1)
    args = p.parse_args()
    strata = args.strata.split(",")
    if unknown := set(strata) - set(STRATA):
        p.error(f"unknown strata {', '.join(sorted(unknown))}; there are {', '.join(STRATA)}")
    options = [flag for flag, on in (("--all-kinds", args.all_kinds), ("--anonymous", args.anonymous)) if on]
    kept = args.out.with_suffix(".jsonl")
    lines = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    done = {(line["stratum"], line["seed"]) for line in lines}
    missing = [(s, seed) for seed in range(args.count) for s in strata if (s, seed) not in done]
    build = Build(args.build)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool, kept.open("a", buffering=1) as file:
        for line in pool.map(lambda item: ask(build, *item, options), missing):
            file.write(json.dumps(line) + "\n")
            lines.append(line)
            print(f"{len(lines)}: {line['stratum']} {line['seed']}: {line.get('verdict', line.get('error'))}, "
                  f"{'right' if line.get('match') else 'not right'}, {line.get('seconds', 0):.0f} s", flush=True)
    command = " ".join(["bench/strata.py", *sys.argv[1:]])
    text, failed = table(lines, command)
    args.out.write_text(text)
    print(text, *failed, sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
