#!/usr/bin/env python3
"""Holds every #include "..." under src/ against the table of who may include whom, and type names against each other.

The table is the one in docs/layout.md: rows `| folder | what | folders it may include |`. Two types of one name in one
namespace, each in a file of its own, need no common include to break a program: the linker keeps one of their destructors.
Usage: include_test.py ROOT        checks ROOT/src
       include_test.py --self-test checks that the checker finds planted violations
"""
import pathlib
import re
import sys
import tempfile

SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
NAMESPACE = re.compile(r"^(?:inline )?namespace(?: ([\w:]+))? \{")
CLOSING = re.compile(r"^\}  // namespace")
TYPE = re.compile(r"^(?:struct|class|union|enum class|enum) (?:\[\[\w+\]\] )?(\w+)\b(?!::|<)(?![^{]*;)")
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


def types_of(text):
    """(line, qualified name) of each type that other files could see, as clang-format writes them."""
    spaces = []
    for number, line in enumerate(text.splitlines(), 1):
        if match := NAMESPACE.match(line):
            spaces.append(match[1])
        elif CLOSING.match(line):
            spaces.pop()
        elif (match := TYPE.match(line)) and None not in spaces:
            yield number, "::".join([*spaces, match[1]])


def clashes(root):
    seen, found = {}, []
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in SUFFIXES:
            continue
        where = path.relative_to(root)
        for number, name in types_of(path.read_text(encoding="utf-8")):
            other = seen.setdefault(name, where)
            if other != where:
                found.append(f"{where}:{number}: {name} is a type of {other} too; rename one of them")
    return found, len(seen)


def check(root):
    table = read_table((root / "docs/layout.md").read_text(encoding="utf-8"))
    if len(table) < 10:
        return [f"docs/layout.md: only {len(table)} folders could be read from the table"]
    files, found = violations(root, table)
    same, types = clashes(root)
    found += same
    if files == 0 or types == 0:
        found.append("no source file, or no type, found under src/")
    print(f"{files} files, {len(table)} folders, {types} types, {len(found)} violations")
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
             "stray/new.cpp": '#include "base/a.h"\n',
             "base/table.h": "namespace plumb {\nstruct Table {\n};\nstruct Ahead;\n}  // namespace plumb\n",
             "base/rows.cpp": "namespace plumb {\nnamespace {\nstruct Table {};\n}  // namespace\n}  // namespace plumb\n",
             "engine/rows.h": "namespace plumb::rows {\nstruct Table {};\nstruct Ahead {};\n}  // namespace plumb::rows\n",
             "faults/rows.cpp": "namespace plumb {\nclass Table final : public X {\n}  // namespace plumb\n"}
    expected = {"src/base/bad.h:2", "src/investigator/bad.cpp:1", "src/cli/bad.cpp:1", "src/engine/bad.cpp:1",
                "src/stray/new.cpp:1"}
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in files.items():
            path = root / "src" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        _, found = violations(root, table)
        same, _ = clashes(root)
    got = {line.split(": ")[0] for line in found}
    if [line.split(": ")[0] for line in same] != ["src/faults/rows.cpp:2"]:
        return [f"self-test: expected the second Table in faults/rows.cpp, got {same}"]
    return [f"self-test: expected {sorted(expected)}, got {sorted(got)}"] if got != expected else []


def main():
    problems = self_test() if sys.argv[1:] == ["--self-test"] else check(pathlib.Path(sys.argv[1]))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


sys.exit(main())
