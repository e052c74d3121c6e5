#!/usr/bin/env python3
"""The sensitivity card of a few plants: a run that is killed goes on where it was, and ends with the same bytes.

Usage: sensitivity_test.py BUILD_FOLDER REPOSITORY
"""

import gzip
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

KINDS = ["--kind", "smp-degenerate-row", "--kind", "tmpl-bos"]


def few_questions(repository, path):
    """Three groups of two short conversations, so that a card takes seconds."""
    document = json.loads(gzip.decompress((repository / "phantom" / "questions.json.gz").read_bytes()))
    lengths = [{**entry, "conversations": entry["conversations"][:6]} for entry in document["lengths"][:2]]
    path.write_bytes(gzip.compress(json.dumps({"group": 2, "lengths": lengths}).encode("utf-8")))


def command(build, repository, card, *more):
    return [build / "plumb-faulty", "faults", "--sensitivity", card, "--lengths", "256", "--model",
            repository / "phantom" / "checkpoint", "--questions", card.parent / "few.json.gz", *KINDS, *more]  # fmt: skip


def run(arguments):
    return subprocess.run(arguments, capture_output=True, text=True, timeout=300)


def groups(journal):
    return journal.read_text().count('"group"') if journal.exists() else 0


def killed_after_a_group(arguments, journal):
    """Starts it and kills it, with all that it started, as soon as one more group is known."""
    before = groups(journal)
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 240
    while groups(journal) == before and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.poll() is None, "it ended before it could be killed"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def main():
    build, repository = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        whole, broken = pathlib.Path(folder) / "whole.md", pathlib.Path(folder) / "broken.md"
        few_questions(repository, whole.parent / "few.json.gz")
        done = run(command(build, repository, whole))
        assert done.returncode == 0, done.stderr
        card = json.loads(whole.with_suffix(".json").read_text())
        assert card["complete"] and card["kinds"] == 2, card
        plants = {plant["form"]: plant["cells"][0] for plant in card["plants"]}
        assert plants["later-of-equals"]["differing"] == 0, plants
        assert plants["none"]["d"]["share"] > 0, plants

        none = run(command(build, repository, broken, "--minutes", "0.000001"))
        assert none.returncode == 2, none
        assert not json.loads(broken.with_suffix(".json").read_text())["complete"]
        journal = broken.with_suffix(".journal")
        assert groups(journal) == 0
        for _ in range(2):
            killed_after_a_group(command(build, repository, broken), journal)
        known = groups(journal)
        assert known >= 2
        done = run(command(build, repository, broken))
        assert done.returncode == 0, done.stderr
        assert groups(journal) == groups(whole.with_suffix(".journal")), "a group was measured twice, or not at all"
        assert broken.read_bytes() == whole.read_bytes()
        assert broken.with_suffix(".json").read_bytes() == whole.with_suffix(".json").read_bytes()

        other = run(command(build, repository, broken, "--lengths", "300"))
        assert other.returncode == 3 and "300" in other.stderr, other
    print("killed twice, the same card")


if __name__ == "__main__":
    main()
