#!/usr/bin/env python3
"""Holds every #include "..." under src/ against the table of who may include whom.

The table is the one in docs/layout.md: rows `| folder | what | folders it may include |`.
Usage: include_test.py ROOT        checks ROOT/src
       include_test.py --self-test checks that the checker finds planted violations
"""
import pathlib
import re
import sys
import tempfile

SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')


def read_table(text):
    """{folder: set of folders it may include, itself among them}"""
    table = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 3 and (match := re.fullmatch(r"`src/([a-z]+)`", cells[0])):
            table[match[1]] = set(re.findall(r"`([a-z]+)`", cells[2])) | {match[1]}
    return table


def violations(root, table):
    src = root / "src"
    found = []
    files = 0
    for path in sorted(src.rglob("*")):
        if path.suffix not in SUFFIXES:
            continue
        files += 1
        where = path.relative_to(src)
        allowed = table.get(where.parts[0])
        if allowed is None:
            found.append(f"src/{where}:1: folder src/{where.parts[0]} is not in docs/layout.md")
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not (match := INCLUDE.match(line)):
                continue
            target = match[1]
            folder = target.split("/")[0]
            if not (src / target).is_file():
                found.append(f'src/{where}:{number}: "{target}" is not a path relative to src/')
            elif folder not in allowed:
                found.append(f"src/{where}:{number}: src/{where.parts[0]} may not include {folder} ({target})")
    return files, found


def check(root):
    table = read_table((root / "docs/layout.md").read_text(encoding="utf-8"))
    if len(table) < 10:
        return [f"docs/layout.md: only {len(table)} folders could be read from the table"]
    files, found = violations(root, table)
    if files == 0:
        found.append("no source file found under src/")
    print(f"{files} files, {len(table)} folders, {len(found)} violations")
    return found


def self_test():
    table = {"base": {"base"}, "engine": {"engine", "base"}, "investigator": {"investigator", "base"},
             "faults": {"faults", "engine", "base"}, "cli": {"cli", "engine", "investigator", "base"}}
    files = {"base/a.h": "#pragma once\n",
             "engine/e.h": '#include "base/a.h"\n',
             "faults/f.h": '#include "engine/e.h"\n',
             "base/bad.h": '#include <vector>\n#include "engine/e.h"\n',
             "investigator/bad.cpp": '  #  include "engine/e.h"\n',
             "cli/bad.cpp": '#include "faults/f.h"\n',
             "engine/bad.cpp": '#include "e.h"\n',
             "stray/new.cpp": '#include "base/a.h"\n'}
    expected = {"src/base/bad.h:2", "src/investigator/bad.cpp:1", "src/cli/bad.cpp:1", "src/engine/bad.cpp:1",
                "src/stray/new.cpp:1"}
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in files.items():
            path = root / "src" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        _, found = violations(root, table)
    got = {line.split(": ")[0] for line in found}
    return [f"self-test: expected {sorted(expected)}, got {sorted(got)}"] if got != expected else []


def main():
    problems = self_test() if sys.argv[1:] == ["--self-test"] else check(pathlib.Path(sys.argv[1]))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


sys.exit(main())
