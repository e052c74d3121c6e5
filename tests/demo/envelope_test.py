#!/usr/bin/env python3
"""The investigator opens the envelope once, after its verdict is on disk: by strace of every process of a demo.

Usage: envelope_test.py BUILD
"""
import pathlib
import re
import shutil
import sys
import tempfile

from demo_support import Build, Demo

SKIP = 77
CALLS = "execve,openat,open,rename,renameat,renameat2,readlink,readlinkat,link,linkat"


def main():
    if shutil.which("strace") is None:
        print("there is no strace on this machine")
        return SKIP
    build = Build(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace"
        case = pathlib.Path(folder) / "case"
        # Two launches are enough: the verdict is then inconclusive, and the order is the same.
        demo = Demo(build, case, "--seed", 5, "--max-restarts", 2,
                    prefix=["strace", "-f", "--seccomp-bpf", "-qq", "-e", f"trace={CALLS}", "-s", "500", "-o", str(trace)])
        code, result, err = demo.finish()
        if "ptrace" in err and result is None:
            print(f"strace may not trace here: {err}")
            return SKIP
        if result is None or result["planted"]["kind"] == "none":
            print(f"exit {code}, result {result}\n{err}")
            return 1
        lines = trace.read_text().splitlines()

    dealers = {line.split()[0] for line in lines if "execve(" in line and '"deal"' in line}
    envelope = [(i, line) for i, line in enumerate(lines) if ".envelope.json" in line and re.search(r"open(at)?\(", line)]
    verdict = [i for i, line in enumerate(lines) if "rename" in line and re.search(r'verdict\.json"', line)]
    others = [(i, line) for i, line in envelope if line.split()[0] not in dealers]
    problems = []
    if len(dealers) != 1:
        problems.append(f"expected one dealer, saw {dealers}")
    if not any(line.split()[0] in dealers for _, line in envelope):
        problems.append("the dealer was not seen to write the envelope: the trace is incomplete")
    if len(verdict) != 1:
        problems.append(f"verdict.json got its name {len(verdict)} times")
    if len(others) != 1:
        problems.append(f"the envelope was opened {len(others)} times by others than the dealer")
    problems += [f"opened before the verdict: {line}" for i, line in others if verdict and i < verdict[0]]
    for problem in problems:
        print(problem)
    print(f"{len(lines)} calls, envelope opened at {[i for i, _ in others]}, verdict named at {verdict}")
    return 1 if problems else 0


sys.exit(main())
