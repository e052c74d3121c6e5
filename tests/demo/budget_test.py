#!/usr/bin/env python3
"""A plant that loses no answer is found as over budget; honest switches that round to bf16 are within theirs.

Usage: budget_test.py BUILD SOURCE
"""
import json
import pathlib
import subprocess
import sys
import tempfile

from demo_support import FACTS, RUN_TIMEOUT_S, Build, Demo, write_envelope

HONEST = ("attention.q_bf16", "mhc.bf16_mix", "prefix_cache")


def plant_over_budget(build, folder):
    table = subprocess.run([build.faulty, "faults", "--json"], check=True, capture_output=True).stdout
    plant = next(p for p in json.loads(table)["plants"] if (p["kind"], p["form"]) == ("sink-dropped", "once-per-split"))
    case = folder / "plant"
    write_envelope(case, 5, {"severity": 1, "layers": "all", **plant})
    code, result, err = Demo(build, case, "--resume").finish()
    if result is None:
        return [f"exit {code} without a result\n{err}"]
    print(f"plant: {result['verdict']} {result['culprits']}, {result['seconds']:.0f} s", flush=True)
    culprits = [(c["switch"], c["side"], c["word"]) for c in result["culprits"]]
    problems = []
    if (result["verdict"], code, culprits) != ("confirmed", 1, [("attention.split_k", "on", "over budget")]):
        problems.append(f"verdict {result['verdict']}, exit {code}, culprits {culprits}\n{err}")
    report = json.loads((case / "report.json").read_text())["report"]["distance"]
    over = report["over_budget"]
    if not report["measured"] or len(over) != 1 or not over[0]["d_mean"] > over[0]["shift"]:
        problems.append(f"distance {report}")
    floor = next(row for row in report["variants"] if row["word"] == "floor")
    if any(view["d_largest"] != 0 for view in floor["texts"]):
        problems.append(f"a floor that is not zero: {floor}")
    if "moves log-probabilities beyond its budget" not in (case / "report.md").read_text():
        problems.append("report.md does not say so")
    return problems


def honest_switches(build, source, folder):
    table = json.loads(subprocess.run([build.plumb, "switches", "--json"], check=True, capture_output=True).stdout)
    shifts = {entry["name"]: entry["shift"] for entry in table["switches"]}
    text = f"""[[process]]
name = "server"
command = [{json.dumps(build.plumb)}, "serve", {json.dumps(str(source / "phantom" / "checkpoint"))}, "--port", "{{port:server}}"]
[[endpoint]]
url = "http://127.0.0.1:{{port:server}}"
{FACTS}"""
    for name in HONEST:
        text += f"""[[switch]]
name = "{name}"
shift = {float(shifts[name])}
sides = {{off = {{args = ["--set", "{name}=off"]}}, on = {{args = ["--set", "{name}=on"]}}}}
"""
    file = folder / "honest.toml"
    file.write_text(text)
    done = subprocess.run([build.plumb, "investigate", str(file), "--case", str(folder / "honest"), "--json"],
                          capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
    if not done.stdout.strip():
        return [f"exit {done.returncode}\n{done.stderr}"]
    result = json.loads(done.stdout)
    print(f"honest: {result['verdict']} {result['culprits']}", flush=True)
    problems = []
    if (result["verdict"], result["culprits"], done.returncode) != ("clean", [], 0):
        problems.append(f"honest: {result['verdict']}, culprits {result['culprits']}, exit {done.returncode}\n"
                        f"{done.stderr}")
    rows = json.loads((folder / "honest" / "report.json").read_text())["report"]["distance"]["variants"]
    alone = {tuple(n for n, side in row["sides"].items() if side == "on"): row for row in rows}
    for name in HONEST[:2]:
        row = alone.get((name,))
        if row is None or row["word"] != "difference" or row["shift"] != shifts[name]:
            problems.append(f"{name} alone: {row}")
    return problems


def main():
    build = Build(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        problems = plant_over_budget(build, folder) + honest_switches(build, pathlib.Path(sys.argv[2]), folder)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


sys.exit(main())
