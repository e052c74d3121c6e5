#!/usr/bin/env python3
"""The phantom's tasks: the same seed gives the same sample, lengths and answers are as promised, text and ids agree, and what is
held out never occurs in training.

Usage: tasks_test.py ROOT
"""

import json
import pathlib
import random
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
if ROOT.is_file():
    ROOT = ROOT.parents[2]
sys.path.insert(0, str(ROOT / "phantom"))
import encoding  # noqa: E402
import talk  # noqa: E402
import tasks  # noqa: E402
import tokenizer  # noqa: E402
import train_tokenizer  # noqa: E402
import words  # noqa: E402

LENGTHS = (256, 512, 1024, 2048, 4096)
SEEDS = 12


def samples(lengths=LENGTHS, seeds=SEEDS, splits=("train", "held_out")):
    for task in tasks.TASKS:
        for length in lengths:
            for split in splits:
                for seed in range(seeds):
                    yield task, length, split, seed, tasks.sample(
                        random.Random(f"{task}{length}{split}{seed}"), task, length, split
                    )


def framed(wording):
    """A regex of what a wording becomes; `.` matches in it what keys, values and attributes are."""
    parts = re.split(r"(\{[akv]\})", wording)
    return "".join(
        {"{a}": r"[a-z]+", "{k}": r"\S+", "{v}": r"\S+"}.get(part, re.escape(part)) for part in parts
    )


class Samples(unittest.TestCase):
    def test_lengths_answers_and_text(self):
        seen = 0
        for task, length, split, seed, sample in samples():
            with self.subTest(task=task, length=length, split=split, seed=seed):
                ids = list(sample.ids)
                self.assertLessEqual(len(ids), length)
                self.assertGreaterEqual(len(ids), 0.9 * length)
                self.assertEqual(ids[0], talk.TOKENIZER.special[encoding.BOS])
                self.assertNotIn(ids[0], ids[1:])
                self.assertTrue(sample.answers)
                self.assertEqual(len(sample.answers), len(sample.meta["answers"]))
                before = 0
                for i, (begin, end) in enumerate(sample.answers):
                    self.assertTrue(before < begin < end <= len(ids))
                    before = end
                    self.assertEqual(ids[end - 1], talk.TOKENIZER.special[encoding.EOS])
                    self.assertEqual(tasks.prompt_ids(sample, i), ids[:begin])
                    _, expected = tasks.prompt(sample, i)
                    self.assertIn(expected["content"], talk.TOKENIZER.decode(ids[begin:end]))
                    seen += 1
                self.assertEqual(talk.TOKENIZER.encode_marked(talk.TOKENIZER.decode(ids)), ids)
                self.assertEqual(json.loads(json.dumps(sample.meta)), sample.meta)
        self.assertGreater(seen, 2 * len(tasks.TASKS) * SEEDS * len(LENGTHS))

    def test_long_conversations(self):
        for task in tasks.TASKS:
            for length in (8192, 32768):
                sample = tasks.sample(random.Random(length), task, length)
                self.assertTrue(0.9 * length <= len(sample.ids) <= length, (task, length, len(sample.ids)))

    def test_the_same_seed_gives_the_same_sample(self):
        for task in tasks.TASKS:
            first, second, other = (tasks.sample(random.Random(seed), task, 1024) for seed in (5, 5, 6))
            self.assertEqual(list(first.ids), list(second.ids))
            self.assertEqual((first.answers, first.meta), (second.answers, second.meta))
            self.assertNotEqual(list(first.ids), list(other.ids))

    def test_answers_can_be_known(self):
        """What is asked for stands in the conversation before the question, and of several values the last one holds."""
        for task, _, _, _, sample in samples(lengths=(1024, 4096), seeds=4):
            for i, (begin, _) in enumerate(sample.answers):
                request, expected = tasks.prompt(sample, i)
                text = talk.TOKENIZER.decode(sample.ids[:begin])
                self.assertEqual(request["messages"][-1]["role"], "user")
                if task in ("single", "multi", "dense", "turns", "update", "long_code", "place"):
                    called = [json.loads(c["function"]["arguments"])["value"] for c in expected.get("tool_calls", ())]
                    for value in called or expected["content"].split("\n"):
                        self.assertIn(value, text)
                elif task == "verbatim":
                    self.assertIn(expected["content"], text)
                    self.assertLessEqual(talk.count(expected["content"]), 201)
                elif task in ("often", "later"):
                    said = re.findall(r" we saw (\w+)", text)
                    if task == "often":
                        self.assertEqual(max(set(said) & set(words.MARKS), key=said.count), expected["content"])
                    else:
                        self.assertEqual([mark for mark in said if mark in words.MARKS][-1], expected["content"])

    def test_a_fact_stands_where_it_is_wanted(self):
        for length in (1024, 4096):
            for band, low, high in (
                ("edge", 45, 85),
                ("csa", tasks.WINDOW, 4 * tasks.HCA_RATE + 20),
                ("hca", 4 * tasks.HCA_RATE - 40, length),
            ):
                found = [tasks.sample(random.Random(seed), "place", length, band=band).meta["distance"] for seed in range(30)]
                inside = sum(low <= distance <= high for distance in found)
                self.assertGreaterEqual(inside, 27, (band, length, found))
        near = [tasks.sample(random.Random(seed), "place", 1024, band="group").meta["distance"] for seed in range(30)]
        self.assertLessEqual(max(near), tasks.WINDOW + 16)

    def test_margins(self):
        for margin in (1, 2, 5):
            for seed in range(10):
                sample = tasks.sample(random.Random(seed), "often", 4096, margin=margin)
                self.assertLessEqual(abs(sample.meta["margin"]), margin)


class Split(unittest.TestCase):
    def test_there_are_enough_wordings(self):
        self.assertGreaterEqual(len(words.FACTS + words.FACTS_HELD_OUT), 30)
        self.assertGreaterEqual(len(words.QUESTIONS + words.QUESTIONS_HELD_OUT), 30)
        every = [
            w for kind in ("FACTS", "UPDATES", "QUESTIONS") for w in getattr(words, kind) + getattr(words, kind + "_HELD_OUT")
        ]
        self.assertEqual(len(every), len(set(every)))

    def test_held_out_wordings_and_separators_never_occur_in_training(self):
        held_out = {
            kind: re.compile("|".join(map(framed, getattr(words, kind + "_HELD_OUT"))))
            for kind in ("FACTS", "UPDATES", "QUESTIONS")
        }
        found = dict.fromkeys(held_out, 0)
        for task, _, split, seed, sample in samples(lengths=(1024,), seeds=40):
            text = "\n".join(m["content"] for m in sample.meta["messages"] if m["role"] == "user")
            for kind, regex in held_out.items():
                if split == "train":
                    self.assertIsNone(regex.search(text), (task, seed, kind))
                else:
                    found[kind] += bool(regex.search(text))
        self.assertTrue(all(found.values()), found)

    def test_held_out_values_are_none_of_training(self):
        draw = talk.Draw(random.Random(1))
        training = {frozenset(alphabet) for alphabet in words.ALPHABETS.values()}
        self.assertFalse(training & {frozenset(alphabet) for alphabet in words.ALPHABETS_HELD_OUT.values()})
        known, unknown = set(), set()
        for _ in range(2000):
            value, held_out = talk.new_value(draw), talk.new_value(draw, "held_out")
            self.assertNotRegex(value, r"\W\W|_\W|\W_|__")
            self.assertNotRegex(held_out, r"[a-zA-Z0-9][\W_][a-zA-Z0-9]")
            for text in (value, held_out):
                self.assertTrue(text[0].isalnum() and text[-1].isalnum() and 3 <= len(text) <= 24, text)
            known |= set(value)
            unknown |= set(held_out)
        self.assertLessEqual(unknown, known)


class Text(unittest.TestCase):
    def test_keys_and_values_are_nearly_one_token_a_character(self):
        draw = talk.Draw(random.Random(2))
        made = [talk.new_value(draw, split) for split in ("train", "held_out") for _ in range(1000)] + [
            talk.new_key(draw) for _ in range(1000)
        ]
        self.assertGreater(sum(map(talk.count, made)), 0.95 * sum(map(len, made)))
        for text in made:
            # The same ids wherever they stand: behind a mark in a fact, at the start of an answer.
            ids = talk.TOKENIZER.encode(text)
            for left, right in words.QUOTES:
                told = talk.TOKENIZER.encode(f"so it is {left}{text}{right}.")
                self.assertIn(ids, [told[i : i + len(ids)] for i in range(len(told))], (text, left))

    def test_words_are_single_tokens(self):
        for word in talk.WORDS + words.SUBJECTS + words.MARKS + words.ATTRIBUTES:
            self.assertEqual(talk.count(" " + word), 1, word)

    def test_exact_lengths(self):
        draw = talk.Draw(random.Random(3))
        for tokens in range(2, 400):
            self.assertEqual(talk.count("so" + talk.prose(draw, tokens)), 2 + tokens)
            self.assertEqual(sum(map(len, talk.filler(draw, tokens))), tokens if tokens >= talk.SHORTEST_FILLER else 0)

    def test_lossless(self):
        rng = random.Random(4)
        for _ in range(3000):
            text = "".join(
                (
                    rng.choice([" the", "tool", "\n\n", "é", "漢", "😀", "<think>", "\u0301", "7", "_calls", "\t", "\r\n"])
                    if rng.random() < 0.5
                    else chr(rng.randrange(0xD800))
                )
                for _ in range(rng.randrange(30))
            )
            for ids in (talk.TOKENIZER.encode(text), talk.TOKENIZER.encode_marked(text)):
                self.assertEqual(talk.TOKENIZER.decode_bytes(ids), text.encode())
        specials = set(talk.TOKENIZER.special.values())
        self.assertFalse(specials & set(talk.TOKENIZER.encode("".join(talk.TOKENIZER.special))))

    def test_the_tokenizer_is_what_its_script_makes(self):
        self.assertEqual(train_tokenizer.tokenizer_json(), tokenizer.PATH.read_text(encoding="utf-8"))

    def test_the_tools_block_is_short(self):
        self.assertLessEqual(len(encoding.to_ids(talk.TOKENIZER, encoding.tools_block(words.TOOLS))), 256)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
