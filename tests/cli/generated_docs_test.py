#!/usr/bin/env python3
"""Pages that a command prints are what the command prints.

Usage: generated_docs_test.py BUILD SOURCE
"""
import difflib
import pathlib
import subprocess
import sys

PAGES = {"docs/switches.md": ["switches", "--markdown"]}


def main():
    build, source = map(pathlib.Path, sys.argv[1:])
    status = 0
    for page, arguments in PAGES.items():
        printed = subprocess.run([build / "plumb", *arguments], check=True, capture_output=True, text=True).stdout
        committed = (source / page).read_text()
        if printed != committed:
            status = 1
            print(f"{page} is not what `plumb {' '.join(arguments)}` prints; write it anew:")
            print("".join(difflib.unified_diff(committed.splitlines(True), printed.splitlines(True), page, "printed", n=0)))
    return status


sys.exit(main())
