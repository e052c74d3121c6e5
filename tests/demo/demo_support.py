"""What the tests of `plumb demo` share: seeds by plant, running a demo, its processes, its journal."""
import hashlib
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import time
import uuid

MARK = "PLUMB_TEST_MARK"  # inherited by every process of a demo
RUN_TIMEOUT_S = 600
# Of the shipped checkpoint, for deployment files.
FACTS = "[facts]\nwindow = 64\nchunk = 128\npage = 128\nindex_topk = 8\n"


class Build:
    def __init__(self, folder):
        self.plumb = str(pathlib.Path(folder) / "plumb")
        self.faulty = str(pathlib.Path(folder) / "plumb-faulty")

    def seeds(self, count):
        """{kind: the first `count` seeds that draw it}, in the order of the table of plants."""
        seeds = {plant["kind"]: [] for plant in self.plants()}
        scan = subprocess.run([self.faulty, "deal", "--scan", "1000"], check=True, capture_output=True, text=True)
        for line in scan.stdout.splitlines():
            deal = json.loads(line)
            if len(seeds[deal["kind"]]) < count:
                seeds[deal["kind"]].append(deal["seed"])
        assert all(len(found) == count for found in seeds.values()), seeds
        return seeds

    def plants(self):
        """Those that the dealer draws from."""
        table = subprocess.run([self.faulty, "faults", "--json"], check=True, capture_output=True).stdout
        return [plant for plant in json.loads(table)["plants"] if plant["demo"]]


class Demo:
    """A running `plumb demo --json`."""

    def __init__(self, build, case, *options, prefix=(), stderr=None):
        self.case = pathlib.Path(case)
        self.mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            [*prefix, build.plumb, "demo", "--json", "--case", str(case), *map(str, options)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr or subprocess.PIPE, text=True,
            env={**os.environ, MARK: self.mark})

    def finish(self):
        """(exit code, the JSON document or None, what it said on stderr)"""
        out, err = self.process.communicate(timeout=RUN_TIMEOUT_S)
        return self.process.returncode, json.loads(out) if out.strip() else None, err

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def processes(self):
        return marked_processes(self.mark)


def marked_processes(mark):
    """{pid: argv} of the processes that inherited this mark and still run."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                argv = (entry / "cmdline").read_bytes().decode().split("\0")[:-1]
                if argv:
                    found[int(entry.name)] = argv
        except (OSError, UnicodeDecodeError):
            pass
    return found


def wait_until(condition, timeout_s, what):
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {timeout_s} s: {what}")


def journal_trials(case):
    """[(launch, cell, seed, grade, steps)] of a case's journal, in order; empty when there is none yet."""
    file = pathlib.Path(case) / "journal.sqlite"
    if not file.exists():
        return []
    with sqlite3.connect(file) as db:
        try:
            return db.execute("SELECT launch, cell, seed, grade, steps FROM trials ORDER BY id").fetchall()
        except sqlite3.OperationalError as e:
            if "no such table" in str(e):  # killed before its first transaction
                return []
            raise


def write_envelope(case, seed, plant):
    """An envelope as the dealer writes it, for a plant of our choice; plant None: nothing planted."""
    plants = [{**{key: plant[key] for key in ("kind", "form", "host", "severity", "layers")}, "dose_seed": 1}] if plant else []
    envelope = {"stratum": "one" if plant else "clean", "plants": plants, "rate": 1, "masked_by": "", "deployed_off": [],
                "seed": seed, "nonce": uuid.uuid4().hex}
    text = json.dumps(envelope, indent=2) + "\n"
    path = pathlib.Path(f"{case}.envelope.json")
    path.write_text(text)
    path.chmod(0o600)
    return hashlib.sha256(text.encode()).hexdigest()


def host_of(build, kind):
    return next(plant["host"] for plant in build.plants() if plant["kind"] == kind)
