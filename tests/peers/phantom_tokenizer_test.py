#!/usr/bin/env python3
"""The phantom's tokenizer.json gives the same ids by Hugging Face's tokenizers, by Plumb's C++ and by phantom/tokenizer.py: on the
tasks' conversations, on random text and on random bytes.

Usage: phantom_tokenizer_test.py BUILD_DIR, with the Python of build/peers (./test --peers makes it).
"""

import random
import sys
import unicodedata
import unittest

import peer_tokenizer as peer

sys.path.insert(0, str(peer.ROOT / "phantom"))
import talk  # noqa: E402
import tasks  # noqa: E402
import tokenizer  # noqa: E402

BUILD = sys.argv[1]
PARTS = list(
    " \t\r\n\u00a0\u3000\u0085\u2028\u200b\u0000\u0001\u001c!\"'.-(_\\]abzAZ09½٣一龥龦ぁ゙゛・ーヿ゠\u303f😀\u0301éß\ufeff"
) + [" the", "the ", " tool", "tool", "_calls", "parameter", "string", "  ", "\n\n", '">\n', "<think>", "｜DSML｜", "<｜User｜>"]
# Python's tables may be older than the engines': a symbol that only they know joins the marks beside it.
KNOWN = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) != "Cn"]


class Equal(unittest.TestCase):
    def check(self, texts):
        for specials, ours in (("parse", talk.TOKENIZER.encode_marked), ("plain", talk.TOKENIZER.encode)):
            theirs = peer.theirs(specials, tokenizer.PATH)
            got, _ = peer.ours(BUILD, texts, specials, tokenizer.PATH)
            for text, ids in zip(texts, got, strict=True):
                expected = theirs.encode(text, add_special_tokens=False).ids
                self.assertEqual(ids, expected, text)
                self.assertEqual(ours(text), expected, text)

    def test_conversations(self):
        self.check(
            [
                talk.TOKENIZER.decode(tasks.sample(random.Random(seed), task, length, split).ids)
                for task in tasks.TASKS
                for length in (256, 2048)
                for split in ("train", "held_out")
                for seed in range(5)
            ]
        )

    def test_random_text(self):
        rng = random.Random(5)
        self.check(
            [
                "".join(rng.choice(PARTS) if rng.random() < 0.6 else chr(rng.choice(KNOWN)) for _ in range(rng.randrange(50)))
                for _ in range(10000)
            ]
        )

    def test_random_bytes(self):
        """What is no UTF-8 Hugging Face cannot take; there the bytes must come back."""
        rng = random.Random(6)
        texts = [rng.randbytes(rng.randrange(1, 80)) for _ in range(10000)]
        self.check([text.decode(errors="replace") for text in texts])
        got, _ = peer.ours(BUILD, texts, "plain", tokenizer.PATH)
        for text, ids in zip(texts, got, strict=True):
            self.assertEqual(talk.TOKENIZER.decode_bytes(ids), text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
