#!/usr/bin/env python3
"""What the command line refuses: exit code 3, one message in plain words, and nothing left behind.

Usage: refusals_test.py BUILD_DIR ROOT
"""
import json
import os
import pathlib
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import unittest

BUILD = ROOT = MODEL = None
TIMEOUT_S = 60
HUGE = "1" + "0" * 310
# Words of libraries; a user can do nothing with them.
FOREIGN = ["json.exception", "ReferenceType", "syntax error", "last read", "terminate called"]


def run(*args, cwd=None):
    done = subprocess.run([str(BUILD / "plumb"), *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=TIMEOUT_S, cwd=cwd, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Refusals(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="plumb-refusals-"))
        self.ids = self.folder / "ids.json"
        self.ids.write_text("[1, 2, 3]")

    def tearDown(self):
        shutil.rmtree(self.folder)

    def model(self):
        copy = self.folder / "model"
        copy.mkdir()
        for file in MODEL.iterdir():
            if file.name in ("config.json", "tokenizer.json", "model.safetensors"):
                (copy / file.name).symlink_to(file)
        return copy

    def refused(self, *args, says, cwd=None):
        code, out, err = run(*args, cwd=cwd)
        self.assertEqual(code, 3, (args, code, out, err))
        self.assertIn(says, err, args)
        for word in FOREIGN:
            self.assertNotIn(word, err, args)
        self.assertLess(len(err), 1000, args)
        return err

    def test_a_switch_check_needs_a_checkpoint(self):
        self.refused("switches", "--check", self.folder / "none", says="none")
        self.refused("switches", "--check", MODEL, "--markdown", says="--markdown")
        self.refused("switches", "--check", MODEL, "--backend", "gpu", says="cpu or ref")
        self.refused("switches", "--backend", "ref", says="--check")

    def test_nothing_but_a_regular_file_is_replaced(self):
        fifo, folder, link = self.folder / "fifo", self.folder / "folder", self.folder / "link"
        os.mkfifo(fifo)
        folder.mkdir()
        link.symlink_to("/dev/null")
        for target in (fifo, folder, link, "/dev/null"):
            before = sorted(self.folder.iterdir())
            self.refused("golden", MODEL, "--ids", self.ids, "-o", target, says="not a regular file")
            self.assertEqual(sorted(self.folder.iterdir()), before)
        self.assertTrue(stat.S_ISFIFO(os.lstat(fifo).st_mode))
        self.assertTrue(link.is_symlink() and folder.is_dir())
        self.assertTrue(stat.S_ISCHR(os.lstat("/dev/null").st_mode))

    def test_a_link_stays_and_the_file_it_leads_to_is_replaced(self):
        link, far = self.folder / "link", self.folder / "far"
        far.write_text("old")
        link.symlink_to(far)
        self.assertEqual(run("golden", MODEL, "--ids", self.ids, "-o", link)[0], 0)
        self.assertTrue(link.is_symlink())
        self.assertGreater(far.stat().st_size, 1000)

    def test_ids_files(self):
        def refused(text, says):
            self.ids.write_text(text)
            self.refused("golden", MODEL, "--ids", self.ids, "-o", self.folder / "t", says=says)

        refused("[" * 500000, "nested deeper than 64")
        refused('{"a":' * 500000, "nested deeper than 64")
        refused("[1,", "not valid JSON: line 1, column 4: unexpected end of input")
        refused(f"[{HUGE}]", "a number is too large")
        refused("{}", "must be a JSON array of token ids")
        for bad, shown in (("1.0", "1.0"), ("-1", "-1"), ("2147483648", "2147483648"), ("[[[1]]]", "an array"),
                           ('{"a":1}', "an object"), ("true", "true"), ('"' + "x" * 10000 + '"', "...")):
            refused(f"[5, {bad}]", f"{shown} at index 1 is not a token id")

    def test_names_that_say_nothing(self):
        self.refused("golden", MODEL, "--ids", self.ids, "-o", "", says="the name of the file to write is empty")
        self.refused("serve", "m", "--served-model-name", "", says="--served-model-name: is empty")
        self.refused("demo", "--case", "/dev/null", says="/dev/null: is there and is not a folder", cwd=self.folder)
        self.refused("serve", "m", "--port", "1", "--port", "02", says="--port: is given more than once")

    def test_an_output_that_is_full_is_told_why(self):
        for args in (("--version",), ("--help",), ("switches",)):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([str(BUILD / "plumb"), *args], stdin=subprocess.DEVNULL, stdout=full,
                                      stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False)
            self.assertEqual(done.returncode, 3, args)
            self.assertIn(b"cannot be written: No space left", done.stderr, args)

    def test_logits_that_are_not_finite(self):
        model = self.model()
        weights = bytearray((MODEL / "model.safetensors").read_bytes())
        size = int.from_bytes(weights[:8], "little")
        norm = json.loads(weights[8:8 + size])["model.norm.weight"]
        begin, end = (8 + size + offset for offset in norm["data_offsets"])
        huge = {"F32": struct.pack("<f", 3e38), "BF16": b"\x7f\x7f"}[norm["dtype"]]
        weights[begin:end] = huge * ((end - begin) // len(huge))
        (model / "model.safetensors").unlink()
        (model / "model.safetensors").write_bytes(weights)
        for args in (("generate", model, "-p", " hello"), ("bench", "prefill", model, "--tokens", "20", "--repeats", "1"),
                     ("bench", "decode", model, "--tokens", "20", "--repeats", "1"),
                     ("switches", "--check", model)):
            self.refused(*args, says="the model gave logits that are not finite")

    def test_files_that_are_no_files(self):
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)):
                model = self.model()
                (model / name).unlink()
                make(model / name)
                self.refused("generate", model, "-p", " hello", says=f"{name}: not a regular file")
                shutil.rmtree(model)
        for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)):
            path = self.folder / "odd"
            make(path)
            for option in ("--ids", "--prompt"):
                self.refused("golden", MODEL, option, path, "-o", self.folder / "t",
                             says="not a regular file")
            self.refused("investigate", path, says="not a regular file")
            path.rmdir() if path.is_dir() else path.unlink()

    def test_a_missing_model_folder_is_called_so(self):
        for args in (("tokenize", "/no/model", "-p", "x"), ("generate", "/no/model", "-p", "x"),
                     ("golden", "/no/model", "--ids", self.ids, "-o", self.folder / "t"), ("serve", "/no/model")):
            self.refused(*args, says="/no/model: no such folder")
        self.refused("tokenize", "/dev/null", "-p", "x", says="/dev/null: not a folder")

    def test_vocabularies_that_contradict_the_config(self):
        for key, value in (("eos", 5), ("bos", 1)):
            model = self.model()
            config = json.loads((model / "config.json").read_text())
            right, config[f"{key}_token_id"] = config[f"{key}_token_id"], value
            (model / "config.json").unlink()
            (model / "config.json").write_text(json.dumps(config))
            (self.folder / "prompt").write_text(" hello")
            says = f"{key} is {right} in tokenizer.json, but {value} in config.json"
            for args in (("generate", model, "-p", " hello"), ("serve", model),
                         ("golden", model, "--prompt", self.folder / "prompt", "-o", self.folder / "t")):
                self.refused(*args, says=says)
            shutil.rmtree(model)

    def test_numbers(self):
        generate = ("generate", "m", "-p", "x")
        numbers = (("nan", "inf", "-nan", "1e999", HUGE, "-1", "x", "1x"),
                   [(*generate, "--temperature"), ("investigate", "d", "--max-minutes"), ("isolate", "c", "--max-minutes"),
                    ("demo", "--max-minutes")])
        whole = (("nan", "1.5", "-2", "18446744073709551616", "9223372036854775808", HUGE, "0x10", "x"),
                 [("demo", "--faults"), ("demo", "--max-restarts"), ("isolate", "c", "--max-tokens"),
                  ("golden", "m", "-o", "t", "--chunk"), (*generate, "--max-tokens"), ("serve", "m", "--port"),
                  ("serve", "m", "--max-logprobs"), ("serve", "m", "--threads"), ("serve", "m", "--max-context"),
                  ("serve", "m", "--chunk-tokens"), ("serve", "m", "--max-running"), ("serve", "m", "--max-queue"),
                  ("serve", "m", "--pool-tokens"), ("probe", "d", "--trials"), ("probe", "d", "--lengths")])
        seeds = (("-1", "1.5", "18446744073709551616", HUGE, "nan"),
                 [("demo", "--seed"), ("investigate", "d", "--seed"), ("probe", "d", "--seed"), (*generate, "--seed")])
        for values, commands in (numbers, whole, seeds):
            for command in commands:
                for value in values:
                    err = self.refused(*command[:-1], f"{command[-1]}={value}", says="must be a", cwd=self.folder)
                    self.assertNotIn("0" * 100, err)
        self.refused("serve", "m", "--max-logprobs", "2147483648", says="from -1 to 2147483647")
        self.refused("demo", "--seed", "-1", says="must be a whole number from 0 to 18446744073709551615")
        # A good value is taken: what is refused is the folder.
        for option, value in (("--seed", "18446744073709551615"), ("--temperature", "0.5"), ("--max-tokens", "010")):
            self.refused(*("generate", "/no/model", "-p", "x"), option, value, says="no such folder")

    def test_backends(self):
        for command in (("generate", "m", "-p", "x"), ("serve", "m"), ("demo",)):
            for value in ("gpu", "CPU", "cpu,ref", HUGE):
                self.refused(*command, f"--backend={value}", says="must be cpu or ref", cwd=self.folder)
        for value in ("cpu", "ref"):
            self.refused("generate", "/no/model", "-p", "x", "--backend", value, says="no such folder")

    def test_bench(self):
        self.refused("bench", says="WHAT is required")
        self.refused("bench", "serve", "m", says="must be prefill, decode, op or isolate")
        self.refused("bench", "decode", says="MODEL is required")
        self.refused("bench", "isolate", "--investigations", "0", says="must be a whole number")
        self.refused("bench", "isolate", "--switches", "3", says="must be a whole number")
        self.refused("bench", "isolate", "--seed=-1", says="must be a whole number")
        self.refused("bench", "isolate", "--investigations", "1", "--scoreboard", "/no/folder/s.md", says="/no/folder")
        for what in ("prefill", "decode", "op"):
            self.refused("bench", what, "/no/model", says="no such folder")
            self.refused("bench", what, "m", "--backend", "gpu", says="must be cpu or ref")
            self.refused("bench", what, "m", "--set", "no.such=on", says="unknown switch")
            for option in ("--tokens", "--batch", "--repeats"):
                for value in ("0", "-1", "nan", HUGE):
                    self.refused("bench", what, "m", f"{option}={value}", says="must be a whole number")

    def test_unknown_commands(self):
        for args in (("guess",), ("guess", "--help"), ("guess", "--version"), ("help", "guess")):
            err = self.refused(*args, says="unknown command 'guess'; plumb --help lists them")
            self.assertEqual(err.count("\n"), 1)
        self.refused("x" * 100000, says="unknown command")
        self.refused(says="")
        code, out, _ = run("help")
        self.assertEqual((code, out), (0, run("--help")[1]))
        code, out, _ = run("help", "golden")
        self.assertEqual(code, 0)
        self.assertIn("--chunk", out)

    def test_demo_creates_nothing_when_it_is_refused(self):
        before = sorted(self.folder.iterdir())
        for args in (("--faults", "3"), ("--faults", "-1"), ("--seed", "-1"), ("--max-minutes", "nan")):
            for case in ((), ("--case", self.folder / "case")):
                err = self.refused("demo", *args, *case, says="must be a", cwd=self.folder)
                self.assertEqual(err.count("must be"), 1)
                self.assertEqual(sorted(self.folder.iterdir()), before)


if __name__ == "__main__":
    BUILD, ROOT = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    MODEL = ROOT / "phantom/checkpoint"
    unittest.main(argv=sys.argv[:1])
