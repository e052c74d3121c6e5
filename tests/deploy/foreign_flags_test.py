#!/usr/bin/env python3
"""A chat server of another make with six flags: the guilty pair is found, a loss that hangs on no flag is said to hang on
none, and a sound server is not accused.

Usage: foreign_flags_test.py BUILD_DIR ROOT
"""
import json
import pathlib
import sys

import deploy_support
from deploy_support import DeploymentTest

PROXY = deploy_support.HERE.parent / "fakes" / "foreign_proxy.py"
ROOT = None


class Foreign(DeploymentTest):
    def investigate(self, fault, seed):
        words = [sys.executable, PROXY, "{port:s}", fault, deploy_support.PLUMB, "serve", ROOT / "phantom" / "checkpoint",
                 "--port", "PORT_BEHIND", "--threads", "2"]
        command = ", ".join(json.dumps(str(word)) for word in words)
        text = (f'[[process]]\nname = "s"\ncommand = [{command}]\nready = {{http = "/health"}}\n'
                '[[endpoint]]\nurl = "http://127.0.0.1:{port:s}"\napi = "chat"\n[request]\ntemperature = 0.01\n'
                '[facts]\nmax_len = 700\n')
        for flag in "ABCDEF":
            text += (f'[[switch]]\nname = "FLAG_{flag}"\nsides = {{off = {{env = {{FLAG_{flag} = "0"}}}}, '
                     f'on = {{env = {{FLAG_{flag} = "1"}}}}}}\n')
        self.file(text)
        code, out, err = self.plumb("investigate", "deployment.toml", "--case", "case", "--seed", seed, "--json")
        self.assertTrue(out, err)
        return code, json.loads(out)

    def test_a_guilty_pair(self):
        code, verdict = self.investigate("pair", 1)
        accused = {(c["switch"], c["side"]) for c in verdict["culprits"]}
        self.assertEqual(accused, {("FLAG_C", "on"), ("FLAG_E", "on")}, verdict)
        self.assertEqual((code, verdict["class"]), (1, "and"), verdict)

    def test_a_loss_under_no_flag(self):
        code, verdict = self.investigate("always", 2)
        self.assertEqual(verdict["culprits"], [], verdict)
        self.assertEqual((code, verdict["verdict"]), (1, "unexplained"), verdict)

    def test_a_sound_server(self):
        code, verdict = self.investigate("none", 3)
        self.assertEqual(verdict["culprits"], [], verdict)
        self.assertIn(verdict["verdict"], ("clean", "inconclusive"), verdict)
        self.assertIn(code, (0, 2))


if __name__ == "__main__":
    ROOT = pathlib.Path(sys.argv.pop(2)).resolve()
    deploy_support.TIMEOUT_S = 900
    deploy_support.main(__doc__)
