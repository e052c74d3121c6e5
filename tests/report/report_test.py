#!/usr/bin/env python3
"""A deployment that forgets is investigated: the live page shows it, the reports open, the script reproduces it.

Usage: report_test.py BUILD SOURCE

What the server replies holds markup; none of it may be markup anywhere. The script runs in a folder of its own with a PATH
that has curl and no plumb.
"""
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

BUILD, SOURCE = (pathlib.Path(arg).resolve() for arg in sys.argv[1:3])
SECRET = "sk-not-to-be-seen"
MAX_SECONDS = 240
DEPLOYMENT = """
[deployment]
name = "forgetful <b>&"

[[process]]
name = "server"
command = ["{python}", "{server}", "{{port:server}}"]
ready = {{generate = true}}

[[endpoint]]
url = "http://127.0.0.1:{{port:server}}"
key_env = "FORGETFUL_KEY"

[[switch]]
name = "recall.fast"
sides = {{off = {{args = ["--set", "recall.fast=off"]}}, on = {{args = ["--set", "recall.fast=on"]}}}}

[[switch]]
name = "log.verbose"
sides = {{off = {{args = ["--set", "log.verbose=off"]}}, on = {{args = ["--set", "log.verbose=on"]}}}}
"""

problems = []


def check(good, what):
    if not good:
        problems.append(what)


def get(url, **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as reply:
            return reply.status, reply.read().decode(), reply.headers
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode(), refused.headers


class Page(HTMLParser):
    """Collects what a page would load or run, and whether its elements nest."""
    VOID = {"meta", "link", "br", "img"}

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.loads, self.text, self.badly_nested = [], [], [], "", []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loads += [value for name, value in attrs if name in ("src", "href", "xlink:href") or name.startswith("on")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.loads += [value for name, value in attrs if name in ("src", "href", "xlink:href") or name.startswith("on")]

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.badly_nested.append(tag)

    def handle_data(self, data):
        self.text += data


def check_page(text, what, loads=()):
    page = Page(text)
    check(page.loads == list(loads), f"{what} loads {page.loads}")
    check(not page.badly_nested and not page.open, f"{what}: {page.badly_nested or page.open} do not nest")
    check(SECRET not in text, f"{what} shows a secret")
    check("img" not in page.tags, f"{what}: markup of a server became markup")
    return page


def check_junit(text):
    root = ElementTree.fromstring(text)
    check(root.tag == "testsuites", "junit: root")
    results = {}
    for suite in root:
        cases = list(suite)
        count = {kind: sum(case.find(kind) is not None for case in cases) for kind in ("failure", "error", "skipped")}
        stated = [int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")]
        check(stated == [len(cases), *count.values()], f"junit: {suite.get('name')} states {stated}")
        for case in cases:
            results[suite.get("name"), case.get("name")] = [child.tag for child in case]
    check(results["verdict", "verdict"] == ["failure"], f"junit: verdict {results['verdict', 'verdict']}")
    check(results["switches", "recall.fast"] == ["failure"], "junit: the culprit is no failure")
    check(results["switches", "log.verbose"] != ["failure"], "junit: an innocent switch fails")
    check(results["probes: as deployed", "needle@1024"] == ["failure"], "junit: needle@1024 as deployed passes")
    check(results["probes: reference", "needle@1024"] == [], "junit: needle@1024 of the reference does not pass")


def investigate(folder):
    """Runs plumb and watches its live page to the end, as a browser would."""
    deployment, case = folder / "deployment.toml", folder / "case"
    deployment.write_text(DEPLOYMENT.format(python=sys.executable,
                                            server=SOURCE / "tests/fakes/forgetful_server.py"))
    plumb = subprocess.Popen(
        [BUILD / "plumb", "investigate", deployment, "--case", case, "--seed", "7", "--json", "--listen", "0",
         "--junit", folder / "junit.xml"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={"PATH": "/usr/bin:/bin", "FORGETFUL_KEY": SECRET})
    url = re.fullmatch(r"live page: (http://127\.0\.0\.1:\d+/)\n", plumb.stderr.readline())[1]
    seen, last, pages = set(), None, 0
    begun = time.monotonic()
    while plumb.poll() is None and time.monotonic() - begun < MAX_SECONDS:
        try:
            state = json.loads(get(url + "version")[1])
            if state["version"] not in seen:
                seen.add(state["version"])
                status, text, headers = get(url)
                check(status == 200 and "default-src 'none'" in headers["Content-Security-Policy"], "live: policy")
                check_page(text, "the live page", [] if state["ended"] else ["/live.js"])
                pages, last = pages + 1, (state["ended"], text)
            if pages == 1:
                check(get(url, Host="evil.example")[0] == 403, "live: another host name is answered")
                check(get(url + "journal.sqlite")[0] == 404, "live: files of the case are served")
            if state["ended"]:
                break
        except (OSError, ConnectionError) as gone:
            problems.append(f"live: {gone}")
            break
        time.sleep(0.3)
    out, err = plumb.communicate(timeout=MAX_SECONDS)
    check(plumb.returncode == 1, f"exit {plumb.returncode}: {err}")
    check(pages >= 3, f"live: only {pages} versions were seen")
    check(last is not None and last[0] and "recall.fast" in last[1], "live: it does not end with the report")
    return case, json.loads(out), (folder / "junit.xml").read_text()


def reproduce(folder, case):
    """The script, where there is no plumb: 1 on the failing side, 0 on the other, 3 without a server."""
    tools = folder / "bin"
    tools.mkdir()
    for tool in ("curl", "dirname"):
        (tools / tool).symlink_to(shutil.which(tool))
    copy = folder / "elsewhere"
    copy.mkdir()
    for file in [case / "reproduce.sh", *case.glob("prompt-*.json")]:
        shutil.copy(file, copy)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    for side, code in (("on", 1), ("off", 0), (None, 3)):
        server = side and subprocess.Popen([sys.executable, SOURCE / "tests/fakes/forgetful_server.py", port, "--set",
                                            f"recall.fast={side}"])
        try:
            begun = time.monotonic()
            while server and time.monotonic() - begun < 60:
                with socket.socket() as s:
                    if s.connect_ex(("127.0.0.1", int(port))) == 0:
                        break
                time.sleep(0.05)
            run = subprocess.run(["/bin/sh", copy / "reproduce.sh", f"http://127.0.0.1:{port}"], cwd=folder,
                                 env={"PATH": str(tools)}, capture_output=True, text=True, timeout=120)
            check(run.returncode == code, f"reproduce.sh with side {side}: exit {run.returncode}, not {code}\n"
                                          f"{run.stdout}{run.stderr}")
        finally:
            if server:
                server.kill()
                server.wait()


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        case, verdict, junit = investigate(folder)
        check([(c["switch"], c["side"]) for c in verdict["culprits"]] == [("recall.fast", "on")], f"{verdict}")
        report = json.loads((case / "report.json").read_text())
        check({**report, "report": None} == {**verdict, "report": None}, "report.json is not what --json printed")
        html = (case / "report.html").read_text()
        page = check_page(html, "report.html")
        check(len(html.encode()) <= 2_000_000, "report.html is too large")
        check("script" not in page.tags, "report.html has a script")
        check("<script>alert(1)</script>" in page.text, "report.html does not show what the server replied")
        check_junit(junit)
        for file in case.rglob("*"):
            if file.is_file() and file.name != "deployment.toml":
                check(SECRET.encode() not in file.read_bytes(), f"{file.name} holds a secret")
        if shutil.which("curl"):
            reproduce(folder, case)
    print("\n".join(problems) or "ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
