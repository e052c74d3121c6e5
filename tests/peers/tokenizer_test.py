#!/usr/bin/env python3
"""Plumb's tokenizer with DeepSeek-V4's real tokenizer.json gives the ids of Hugging Face's tokenizers.

Usage: tokenizer_test.py BUILD_DIR, with the Python of build/peers (./test --peers makes it).
"""

import random
import sys

import peer_tokenizer as peer

# The first two were published for V4.
VECTORS = [
    ("Hello! 毕老师！1 + 1 = 2 ĠÑĤÐ²ÑĬÑĢ", "19923 3 223 5464 5008 1175 19 940 223 19 438 223 20 6113 257 76589 131 100 76032 "
     "1628 76589 131 108 76589 131 98"),
    ("<｜User｜>你好<｜Assistant｜><think>推理</think>答案<｜end▁of▁sentence｜>", "128803 30594 128804 128821 36101 128822 7624 1"),
    ("Hello, world!", "19923 14 2058 3"),
    ("  leading and trailing  ", "223 6646 305 52964 262"),
    ("def f(x):\n    return x**2\n", "3465 285 4042 3395 361 1354 1527 666 20 201"),
    ("1234567890", "6895 18009 25744 18"),
    ("日本語のテキスト", "88768 1576 17383 20367 24552"),
    ("naïve café", "2720 91223 57664"),
    ("😀👍🏽", "28927 225 92526 40965 124"),
    ("a\r\n\r\nb", "67 204 201 204 201 68"),
    ("don't I'll", "20385 1664 342 5922"),
    ("\t\tx", "200 51669"),
    ("x  \n\n y", "90 6776 383"),
    ("$$ ## !!", "9237 26662 62932"),
    ("한국어", "5634 17564 9227"),
    ("Привет", "24797 8919"),
    ("https://example.com/a?b=c", "5395 2272 30357 2193 20922 33 68 38676"),
    ("e\u0301", "71 17793"),
    ("if (a<b && c>=d)", "394 343 67 93180 6546 274 26404 70 11"),
    ("needle-7Q2X-91", "52972 302 15 25 51 20 58 15 6207"),
    ("a" * 20, "89086 89086 39535"),
    ("", ""),
    ("<｜DSML｜tool_calls>", "30 128825 72461 4941 12548 32"),
    ('<｜DSML｜invoke name="', "30 128825 40148 5406 2329 1281"),
    ("<tool_result>", "30 72461 46148 32"),
    ("</tool_result>", "1718 72461 46148 32"),
    ("Checking.\n\n", "123452 339"),
]
AWKWARD = list(" \t\r\n\u00a0\u3000\u0085\u2028\u200b\u0000\u0001\u001c!\"'.-(_\\]abzAZ09½٣一龥龦ぁ゙゛・ーヿ゠\u3040\u3097\u303f😀\u0301éß\ufeff") + [
    "<think>", "</think>", "｜DSML｜", "<｜User｜>", "<｜", "｜>", "<|EOT|>", "<", "</", "<｜place▁holder▁no▁1", "the ", "  ", "\n\n"]


def random_text(rng, codes):
    mix = rng.random()
    return "".join(rng.choice(AWKWARD) if rng.random() < mix else chr(rng.choice(codes)) for _ in range(rng.randrange(1, 60)))


class Comparison:
    def __init__(self, build):
        self.build = build
        self.theirs = {specials: peer.theirs(specials) for specials in ("parse", "plain")}
        self.failures = 0

    def check(self, name, texts, modes=("parse", "plain")):
        for specials in modes:
            got, figures = peer.ours(self.build, texts, specials)
            wrong = 0
            for text, ids in zip(texts, got):
                expected = self.theirs[specials].encode(text, add_special_tokens=False).ids
                if ids != expected:
                    wrong += 1
                    at = next((i for i, pair in enumerate(zip(ids, expected)) if pair[0] != pair[1]), min(len(ids), len(expected)))
                    if wrong <= 3:
                        print(f"  {text[:60]!r}: from token {at} on {ids[at:at + 8]}, expected {expected[at:at + 8]}")
            self.failures += wrong
            print(f"{name}, {specials}: {len(texts)} texts, {figures['bytes']} bytes, {figures['tokens']} tokens, {wrong} differ")

    def check_vectors(self):
        got, _ = peer.ours(self.build, [text for text, _ in VECTORS])
        for (text, expected), ids in zip(VECTORS, got):
            if ids != [int(word) for word in expected.split()]:
                self.failures += 1
                print(f"  {text!r}: {ids}, expected {expected}")
        print(f"published and computed vectors: {len(VECTORS)}")
        self.check("the vectors' texts", [text for text, _ in VECTORS])

    def check_bytes(self, texts):
        """Bytes that are no UTF-8, which Hugging Face cannot take: the tokens' bytes, by its tables, must be the text."""
        characters = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        byte_of = {chr(code): code for code in characters}
        byte_of.update({chr(0x100 + i): byte for i, byte in enumerate(b for b in range(256) if b not in characters)})
        token = self.theirs["plain"].id_to_token
        got, _ = peer.ours(self.build, texts, "plain")
        wrong = sum(bytes(byte_of[c] for i in ids for c in token(i)) != text for text, ids in zip(texts, got))
        self.failures += wrong
        print(f"random bytes: {len(texts)} texts, {wrong} not lossless")


def main():
    compare = Comparison(sys.argv[1])
    rng = random.Random(20261130)
    codes = [code for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    compare.check_vectors()
    compare.check("random Unicode", [random_text(rng, codes if i % 2 else codes[:0x3400]) for i in range(10000)])
    compare.check("random bytes, broken ones replaced", [rng.randbytes(rng.randrange(1, 80)).decode(errors="replace") for _ in range(10000)])
    compare.check_bytes([rng.randbytes(rng.randrange(1, 80)) for _ in range(10000)])
    compare.check("every code point", ["".join(f"a{chr(c)}b {chr(c)}!" for c in codes[i:i + 4096]) for i in range(0, len(codes), 4096)],
                  ["parse"])
    compare.check("the project", [peer.project_text()], ["parse"])
    compare.check("generated multilingual text", [peer.multilingual_text(compare.theirs["parse"], 300000, 7)], ["parse"])
    compare.check("long runs", [part * 20000 for part in ("a", " ", "\n", "漢", "!", "ab", "\u0301", "é", "1")], ["parse"])
    if compare.failures:
        sys.exit(f"{compare.failures} texts differ")


if __name__ == "__main__":
    main()
