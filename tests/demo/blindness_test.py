#!/usr/bin/env python3
"""Until the first reply, nothing that the investigator can read tells what was planted.

The same case is begun once for each plant and once with nothing planted, with one probe seed. As soon as the server
process exists the investigator is stopped (SIGSTOP); once the server listens, everything is read: argument lists and
environments of all processes, the case folder, the server's log, its switches, its metrics. All of it must be equal, but for
process ids, times, ports and the envelope's hash.

Usage: blindness_test.py BUILD       compares the runs
       blindness_test.py --self-test   the comparison finds one changed word in each source it reads
"""
import json
import os
import pathlib
import re
import signal
import sqlite3
import sys
import tempfile
import urllib.request

from demo_support import MARK, Build, Demo, wait_until, write_envelope

SEED = 77


def server_of(demo):
    return next((pid for pid, argv in demo.processes().items() if argv[1:2] == ["serve"]), None)


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as reply:
        return reply.read().decode()


def settle(value, moving):
    """The value with what may differ replaced in every string: `moving` (the hash, the mark, the port) and times."""
    if isinstance(value, dict):
        return {key: settle(entry, moving) for key, entry in value.items()}
    if isinstance(value, list):
        return [settle(entry, moving) for entry in value]
    for word in moving:
        value = value.replace(word, "<moving>")
    value = re.sub(r'"date": "[0-9-]+T[0-9:]+Z"', '"date": <time>', value)
    return re.sub(r'"(created|start_time|uptime_s|now)": ?[0-9.e+-]+', r'"\1":<time>', value)


def case_files(case):
    files = {}
    for path in sorted(case.rglob("*")):
        name = str(path.relative_to(case))
        if path.name.startswith("journal.sqlite-"):
            continue  # SQLite's own; its content is read through the database
        if path.suffix == ".sqlite":
            with sqlite3.connect(path) as db:
                rows = {table: db.execute(f"SELECT * FROM {table}").fetchall()
                        for table in ("identity", "launches", "trials", "scores")}
                columns = [c[1] for c in db.execute("PRAGMA table_info(launches)")]
            rows["launches"] = [[v for c, v in zip(columns, row) if c not in ("at_s", "ready_s")]
                                for row in rows["launches"]]
            files[name] = json.dumps(rows)
        elif path.is_file():
            files[name] = path.read_text()
        else:
            files[name] = "<folder>"
    return files


def metrics_that_may_not_tell(text):
    """Metric lines without those that measure time, memory or the connections of this test."""
    moving = re.compile(r"time|seconds|bytes|connections|requests|http")
    return sorted(line for line in text.splitlines() if not moving.search(line))


def observe(build, case, plant):
    commitment = write_envelope(case, SEED, plant)
    demo = Demo(build, case, "--resume")
    try:
        server = wait_until(lambda: server_of(demo), 60, "a server")
        demo.process.send_signal(signal.SIGSTOP)
        log = wait_until(lambda: next(iter((case / "logs").glob("*.log")), None), 30, "a log")
        line = wait_until(lambda: re.search(r"on (http://127\.0\.0\.1:\d+)", log.read_text()), 60, "listening")
        url = line[1]
        switches = fetch(url + "/v1/switches")
        assert all(s["counts"]["on"] + s["counts"]["off"] == 0 for s in json.loads(switches)["switches"]) \
            if "counts" in switches else True, "a reply came first"
        seen = {"switches": switches, "models": fetch(url + "/v1/models"), "info": fetch(url + "/get_server_info"),
                "metrics": metrics_that_may_not_tell(fetch(url + "/metrics")), "log": log.read_text()}
        seen["processes"] = sorted(demo.processes().values())
        port = url.rsplit(":", 1)[1]
        environ = pathlib.Path(f"/proc/{server}/environ").read_bytes().decode().split("\0")
        seen["environ"] = sorted(e for e in environ if not e.startswith(MARK))
        seen["maps"] = sorted({m.split()[-1] for m in pathlib.Path(f"/proc/{server}/maps").read_text().splitlines()
                               if "/" in m})
        seen["case"] = case_files(case)
        return settle(seen, [commitment, demo.mark, port])
    finally:
        os.kill(demo.process.pid, signal.SIGCONT)
        demo.kill()
        wait_until(lambda: not demo.processes(), 20, "every process of the demo gone")


def differences(a, b, where=""):
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(a.keys() | b.keys()):
            yield from differences(a.get(key), b.get(key), f"{where}/{key}")
    elif a != b:
        yield f"{where}: {a!r} != {b!r}"


def self_test():
    """A word that tells the plant, put into any one of the sources, is found; what may move is not."""
    def seen(leak=None, moving="9f86d0"):
        sources = {"switches": '{"counts": 0}', "models": "{}", "info": f'{{"uptime_s": {len(moving)}.5}}',
                   "metrics": ["plumb_pages 4"], "log": f"on http://127.0.0.1:1234\n{moving}", "environ": ["A=1"],
                   "processes": [["plumb-faulty", "serve"]], "maps": ["/lib/x.so"], "case": {"plan.json": moving}}
        if leak == "case":
            sources["case"]["plan.json"] += " splitk-merge"
        elif leak in ("processes",):
            sources[leak][0].append("splitk-merge")
        elif leak and isinstance(sources[leak], list):
            sources[leak].append("splitk-merge")
        elif leak:
            sources[leak] += " splitk-merge"
        return settle(sources, [moving])

    honest = seen()
    assert not list(differences(honest, seen(moving="0a1b2c3d"))), "what may move was taken for a leak"
    for source in honest:
        assert list(differences(honest, seen(leak=source))), f"a leak in {source} was not found"
    leaking = ["plumb_up 1", "plumb_pages 5"]
    assert metrics_that_may_not_tell("\n".join(leaking)) == sorted(leaking), "a metric that may tell was dropped"
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    build = Build(sys.argv[1])
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        case = pathlib.Path(folder) / "case"
        seen = {}
        for plant in [None, *build.plants()]:
            kind = plant["kind"] if plant else "none"
            seen[kind] = observe(build, case, plant)
            for path in sorted(case.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            case.rmdir()
            print(f"{kind}: {len(json.dumps(seen[kind]))} bytes seen in {sorted(seen[kind])}", flush=True)
            problems += [f"none / {kind}: {d}" for d in differences(seen["none"], seen[kind])]
            text = json.dumps(seen[kind])
            problems += [f"{kind} is named in what can be read" for name in (kind, (plant or {}).get("form"))
                         if plant and name in text]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


sys.exit(main())
