#!/usr/bin/env python3
"""No secret reaches the case folder, the report, a log or the terminal: secrets are planted in variables, headers and
arguments of a server that repeats all of them in its log, its errors and its answers.

Usage: secrets_test.py BUILD_DIR
"""
import signal
import subprocess

import deploy_support
from deploy_support import DeploymentTest, listening_process

SECRETS = {"ENGINE_KEY": "sk-Planted-0123456789", "EXTRA_SECRET": "extra/Planted+abc=\"quoted\"", "HF_TOKEN": "hf_PlantedXyzzy"}

FILE = """[deployment]
start_timeout_s = 60
%s
[[endpoint]]
url = "http://127.0.0.1:{port:s}"
key_env = "ENGINE_KEY"
headers = {X-Extra = "{env:EXTRA_SECRET}"}

[[switch]]
name = "bad"
sides = {off = {}, on = {env = {BAD = "1"}}}

[[switch]]
name = "innocent"
sides = {off = {args = ["--innocent", "{env:EXTRA_SECRET}"]}, on = {}}

[facts]
max_len = 700
"""


class Secrets(DeploymentTest):
    def setUp(self):
        super().setUp()
        self.environment.update(SECRETS)
        self.file(FILE % listening_process("s", "{port:s}", "--forget", "BAD", "--key", "ENGINE_KEY", "--echo",
                                           extra='env = {HF_TOKEN = "{env:HF_TOKEN}", ENGINE_KEY = "{env:ENGINE_KEY}"}'))

    def nowhere(self, *texts):
        checked = 0
        for file in (self.folder / "case").rglob("*"):
            if file.is_file():
                checked += 1
                self.holds_none(file.read_bytes(), file)
        for text in texts:
            self.holds_none(text.encode(), text)
        return checked

    def holds_none(self, data, where):
        for secret in SECRETS.values():
            for form in (secret, secret.replace('"', '\\"')):
                self.assertNotIn(form.encode(), data, where)

    def test_an_investigation(self):
        code, out, err = self.plumb("investigate", "deployment.toml", "--case", "case", "--seed", "3")
        self.assertEqual(code, 1, (out, err))
        self.assertIn("culprit: bad", out)
        self.assertGreater(self.nowhere(out, err), 6)
        log = next((self.folder / "case" / "logs").glob("*-s.log")).read_text()
        self.assertIn("<secret>", log)
        self.assertIn("the key is <secret>", log)

    def test_a_wrong_key_that_the_server_repeats(self):
        text = (self.folder / "deployment.toml").read_text().replace('key_env = "ENGINE_KEY"', 'key_env = "HF_TOKEN"')
        text = text.replace("start_timeout_s = 60", "start_timeout_s = 4")
        self.file(text)
        code, out, err = self.plumb("investigate", "deployment.toml", "--case", "case")
        self.assertEqual(code, 3, (out, err))
        self.nowhere(out, err)
        code, out, err = self.plumb("probe", "deployment.toml", "--logs", "case/probe-logs")
        self.assertEqual(code, 3, (out, err))
        self.assertIn("<secret>", err)
        self.nowhere(out, err)

    def test_a_killed_investigation(self):
        running = subprocess.Popen(self.command("investigate", "deployment.toml", "--case", "case"),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   cwd=self.folder, env=self.environment)
        self.wait_until(lambda: list((self.folder / "case" / "logs").glob("2-s.log")), "a second launch", 60)
        running.send_signal(signal.SIGKILL)
        running.wait()
        self.wait_until(lambda: not self.processes(), "nothing is left", 30)
        self.nowhere()

    def test_the_plan(self):
        code, out, err = self.plumb("investigate", "deployment.toml", "--plan")
        self.assertEqual(code, 0, err)
        self.assertIn("{env:EXTRA_SECRET}", out)
        self.nowhere(out, err)


if __name__ == "__main__":
    deploy_support.main(__doc__)
