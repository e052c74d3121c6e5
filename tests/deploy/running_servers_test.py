#!/usr/bin/env python3
"""Servers that plumb may not restart: two of them compared, switches that requests carry, rate limits; and a patch that
is the culprit.

Usage: running_servers_test.py BUILD_DIR
"""
import json
import subprocess
import sys

import deploy_support
from deploy_support import RunningServerTest, listening_process


class Running(RunningServerTest):
    def test_two_servers_are_compared(self):
        good, bad, again = self.server(), self.server("--forget", "F", F="1"), self.server("--refuse-every", "5")
        lengths = ("--suite", "needle", "--lengths", "256,512", "--trials", "12", "--in-flight", "4")
        code, out, err = self.plumb("probe", good, bad, *lengths)
        self.assertEqual(code, 1, (out, err))
        self.assertIn("B is worse: of 24 prompts 0 fail at A alone and 24 at B alone", out)
        code, out, err = self.plumb("probe", good, again, *lengths, "--json")
        self.assertEqual(code, 0, (out, err))
        self.assertEqual(json.loads(out)["difference"]["word"], "no difference shown")

    def test_a_key_is_named_not_given(self):
        url = self.server("--key", "SERVER_KEY", SERVER_KEY="sk-of-the-server")
        code, out, err = self.plumb("probe", url, "--suite", "short", "--key-env", "NO_SUCH")
        self.assertEqual(code, 3, (out, err))
        self.assertIn("NO_SUCH is not set", err)
        self.environment["MY_KEY"] = "sk-of-the-server"
        code, out, err = self.plumb("probe", url, "--suite", "short", "--key-env", "MY_KEY")
        self.assertEqual(code, 0, (out, err))

    def never(self, url, rest):
        return self.file('[deployment]\nrestart = "never"\n[[endpoint]]\nname = "a"\nurl = "%s"\n%s\n[facts]\nmax_len = 700\n'
                         % (url, rest))

    def test_a_switch_that_requests_carry(self):
        url = self.server("--forget", "F")
        self.never(url, '[[switch]]\nname = "flag"\napply = "request"\nsides = {off = {}, on = {body = {flag = "F"}}}\n'
                        '[[switch]]\nname = "other"\napply = "request"\nsides = {off = {}, on = {body = {other = 1}}}')
        code, out, err = self.plumb("investigate", "deployment.toml", "--case", "case", "--seed", "5")
        self.assertEqual(code, 1, (out, err))
        self.assertIn("verdict: suspected", out)
        self.assertIn("culprit: flag, on side", out)
        self.assertIn("the server was never restarted", out)
        report = self.folder / "case" / "report.md"
        self.assertIn("the server was never restarted", report.read_text())
        code, again, err = self.plumb("report", "case")
        self.assertEqual(code, 1, (again, err))
        self.assertIn("suspected", report.read_text())

    def test_an_endpoint_is_a_factor(self):
        good, bad = self.server(), self.server("--forget", "F", F="1")
        self.never(bad, '[[endpoint]]\nname = "b"\nurl = "%s"\n[[switch]]\nname = "build"\napply = "request"\n'
                        'sides = {off = {endpoint = "b"}, on = {endpoint = "a"}}' % good)
        code, out, err = self.plumb("investigate", "deployment.toml", "--case", "case", "--seed", "6")
        self.assertEqual(code, 1, (out, err))
        self.assertIn("culprit: build, on side", out)

    def test_nothing_to_turn_is_said(self):
        url = self.server()
        self.never(url, "")
        code, out, err = self.plumb("investigate", "deployment.toml", "--case", "case")
        self.assertEqual(code, 3, (out, err))
        self.assertIn("plumb probe URL URL_B", err)

    def test_a_commit_is_the_culprit(self):
        source = self.folder / "source"
        source.mkdir()

        def git(*words):
            return subprocess.run(["git", "-C", str(source), "-c", "user.name=t", "-c", "user.email=t@t", *words],
                                  check=True, capture_output=True).stdout.decode().strip()
        git("init", "--quiet")
        (source / "run.sh").write_text("#!/bin/sh\nBAD=0\nexport BAD\nexec \"$@\"\n")
        git("add", "-A")
        git("commit", "--quiet", "-m", "good")
        (source / "run.sh").write_text("#!/bin/sh\nBAD=1\nexport BAD\nexec \"$@\"\n")
        git("commit", "--quiet", "-am", "bad")
        commit = git("rev-parse", "HEAD")
        before = git("status", "--porcelain"), git("worktree", "list"), (source / ".git" / "index").read_bytes()
        process = listening_process("s", "{port:s}", "--forget", "BAD").replace("command = [",
                                                                               'command = ["sh", "{source}/run.sh", ')
        self.file('%s[[endpoint]]\nurl = "http://127.0.0.1:{port:s}"\n[source]\nrepository = "%s"\n'
                  '[[switch]]\nname = "the_commit"\napply = "patch"\nsides = {off = {patch = "%s"}, on = {}}\n'
                  '[facts]\nmax_len = 700\n' % (process, source, commit))
        code, out, err = self.plumb("investigate", "deployment.toml", "--case", "case", "--seed", "7")
        self.assertEqual(code, 1, (out, err))
        self.assertIn("culprit: the_commit, on side", out)
        self.assertFalse((self.folder / "case" / "logs" / "tree").exists())
        after = git("status", "--porcelain"), git("worktree", "list"), (source / ".git" / "index").read_bytes()
        self.assertEqual(before, after)


if __name__ == "__main__":
    deploy_support.main(__doc__)
