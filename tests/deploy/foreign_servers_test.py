#!/usr/bin/env python3
"""Servers whose tokenizer and chat template plumb does not have: prompts of exact length, references that do not start,
the operator's own conversation, a ranking as prior, and what reports withhold.

Usage: foreign_servers_test.py BUILD_DIR
"""
import json
import sys

import deploy_support
from deploy_support import HERE, RunningServerTest

CHAT = HERE.parent / "fakes" / "chat_server.py"


class Foreign(RunningServerTest):
    SCRIPT = CHAT

    def boundary(self, *options, **environment):
        code, out, err = self.plumb("probe", self.server(*options, **environment), "--suite", "boundary", "--trials", "4",
                                    "--json")
        self.assertIn(code, (0, 1, 2), (out, err))
        result = json.loads(out)
        return code, result["targets"][0]["probes"][0], result["not_covered"]

    def test_a_boundary_is_hit_to_the_token(self):
        code, row, open_ = self.boundary()
        self.assertEqual((code, row["failures"], row["trials"], open_), (0, 0, 4, []))
        code, row, open_ = self.boundary("--cut", "CUT", CUT="1")
        # Only a code that is cut in two comes back wrong, so that each trial's failure shows that one was.
        self.assertEqual((code, row["failures"], row["trials"], open_), (1, 4, 4, []))

    def test_a_server_that_cannot_be_dialled_is_not_covered(self):
        for options, reason in ((["--no-usage"], "usage.prompt_tokens"), (["--drift"], "the same prompt as")):
            code, row, open_ = self.boundary(*options)
            self.assertEqual((code, row["failures"]), (2, 0))
            self.assertEqual(len(open_), 1, open_)
            self.assertIn("boundary: partly", open_[0])
            self.assertIn(reason, open_[0])

    def deployment(self, options, switches, facts="max_len = 700"):
        words = ", ".join('"%s"' % word for word in (sys.executable, CHAT, "{port:s}", *options))
        text = '[[process]]\nname = "s"\ncommand = [%s]\nready = {http = "/health"}\n' % words
        text += '[[endpoint]]\nurl = "http://127.0.0.1:{port:s}"\napi = "chat"\n[facts]\n%s\n' % facts
        for name, variable in switches:
            text += '[[switch]]\nname = "%s"\nsides = {off = {}, on = {env = {%s = "1"}}}\n' % (name, variable)
        return self.file(text)

    def test_a_reference_that_does_not_start_is_replaced(self):
        self.deployment(["--forget", "F", "--needs", "N"],
                        [("needed", "N"), ("fast", "F"), ("other", "O"), ("more", "M")])
        code, out, err = self.plumb("investigate", "deployment.toml", "--case", "case", "--seed", "3", "--json")
        self.assertEqual(code, 1, (out, err))
        verdict = json.loads(out)
        self.assertEqual([c["switch"] for c in verdict["culprits"]], ["fast"], (out, err))
        report = (self.folder / "case" / "report.md").read_text()
        self.assertIn("assertion failed: N must be set", report.split("## Not tested")[1].split("##")[0])
        self.assertIn("could not be turned off", report)
        code, again, err = self.plumb("report", "case", "--json")
        self.assertEqual((code, json.loads(again)), (1, verdict), err)

    def conversation(self):
        talk = {"model": "gpt", "messages": [
            {"role": "system", "content": "You help the ferry of Quaytown with its plans."},
            {"role": "user", "content": "The second boat leaves at nine from the north quay, and the crew is new. Please plan the week "
                                        "so that nobody works on two mornings in a row; the mayor comes on Friday with guests."},
            {"role": "assistant", "content": "I will."},
            {"role": "user", "content": "The tide tables changed in spring. The harbour office wants the list by noon on Thursday, and "
                                        "the cook asks how many people eat on board on each of the seven days."},
            {"role": "assistant", "content": "Noted."},
            {"role": "user", "content": "What did I say about the mayor?"},
            {"role": "assistant", "content": "You said nothing."}]}
        (self.folder / "talk.json").write_text(json.dumps(talk))

    def test_the_operators_conversation_shows_the_symptom_and_stays_at_home(self):
        self.conversation()
        self.deployment(["--forget-in", "Quaytown", "F"], [("fast", "F"), ("other", "O"), ("more", "M")])
        code, out, err = self.plumb("investigate", "deployment.toml", "--plan", "--conversation", "talk.json")
        self.assertEqual(code, 0, (out, err))
        self.assertIn("conversation: 6 messages", out)
        code, out, err = self.plumb("investigate", "deployment.toml", "--case", "case", "--seed", "3", "--conversation",
                                    "talk.json")
        self.assertEqual(code, 1, (out, err))
        self.assertIn("culprit: fast, on side", out)
        case = self.folder / "case"
        self.assertEqual((case / "conversation.json").stat().st_mode & 0o777, 0o600)
        report = (case / "report.md").read_text()
        self.assertIn("6 messages", report)
        self.assertRegex(report, r"they do not remember \(shown, not graded\): as deployed [1-9]\d*/\d+, reference 0/")
        self.assertFalse((case / "reproduce.sh").exists())
        for file in ("report.md", "report.html", "report.json"):
            for word in ("the ferry of", "mayor", "tide tables"):
                self.assertNotIn(word, (case / file).read_text(), file)
        # The case knows its conversation: without it the same command goes on with it.
        code, out, err = self.plumb("investigate", "deployment.toml", "--case", "case", "--resume")
        self.assertEqual(code, 1, (out, err))
        self.assertIn("culprit: fast, on side", out)

    def test_bad_conversations_are_refused(self):
        self.deployment([], [("fast", "F")])
        (self.folder / "talk.json").write_text('[{"role": "robot"}]')
        code, out, err = self.plumb("investigate", "deployment.toml", "--conversation", "talk.json")
        self.assertEqual(code, 3, (out, err))
        self.assertIn("talk.json: message 1: its role 'robot'", err)

    def test_redacted_reports_hold_no_prompt_and_no_reply(self):
        self.deployment(["--forget", "F"], [("fast", "F"), ("other", "O")])
        code, out, err = self.plumb("investigate", "deployment.toml", "--case", "case", "--seed", "4", "--redact")
        self.assertEqual(code, 1, (out, err))
        case = self.folder / "case"
        self.assertIn("<withheld: ", (case / "report.md").read_text().replace("\\", ""))
        self.assertFalse((case / "prompt-1.json").exists())
        journal = b"".join((case / name).read_bytes() for name in ("journal.sqlite", "journal.sqlite-wal")
                           if (case / name).exists())
        self.assertNotIn(b'"text":"Z9', journal)
        self.assertIn(b"withheld", journal)
        code, again, err = self.plumb("report", "case")
        self.assertEqual(code, 1, (again, err))

    def test_a_ranking_is_a_prior_and_the_plan_says_so(self):
        self.deployment(["--forget", "F"], [("fast", "F"), ("other", "O"), ("more", "M")])
        suspects = [{"file": "moe.py", "hunk": "@@ 7", "function": "route", "prior": 0.75,
                     "gate": {"name": "F", "kind": "env", "default": "on"}},
                    {"file": "norm.py", "hunk": "@@ 9", "function": "", "prior": 0.25, "gate": None}]
        (self.folder / "ranks.json").write_text(json.dumps({"suspects": suspects}))
        code, out, err = self.plumb("investigate", "deployment.toml", "--plan", "--ranks", "ranks.json")
        self.assertEqual(code, 0, (out, err))
        self.assertIn("0.667  fast", out)
        self.assertIn("env F: moe.py:@@ 7 route (0.750)", out)
        self.assertIn("suspects that no switch turns: 1", out)
        code, out, err = self.plumb("investigate", "deployment.toml", "--case", "case", "--seed", "5", "--ranks", "ranks.json",
                                    "--json")
        self.assertEqual(code, 1, (out, err))
        verdict = json.loads(out)
        self.assertEqual([c["switch"] for c in verdict["culprits"]], ["fast"])
        self.assertGreaterEqual(verdict["posterior_flat_prior"], 0.95)
        (self.folder / "ranks.json").write_text("{}")
        code, out, err = self.plumb("investigate", "deployment.toml", "--plan", "--ranks", "ranks.json")
        self.assertEqual(code, 3, (out, err))
        self.assertIn("ranks.json", err)


if __name__ == "__main__":
    deploy_support.main(__doc__)
