#!/usr/bin/env python3
"""Makes tokenizer.json and encode.json with Hugging Face's tokenizers, an independent implementation:

    pip install tokenizers==0.23.3
    python3 tests/golden/tokenizer/make.py

tokenizer.json is a vocabulary of 1,024 that looks like DeepSeek-V4's: its pre-tokenizer, its special-token strings with
their flags (most of the placeholders aside), trained on this project's documentation and on the sentences below. The file
is kept when it exists, so that ids stay when the documentation changes; delete it to train again. encode.json lists texts
with the ids that tokenizers gives them: "parse" as is, "plain" with a copy that has no added tokens.
"""

import json
import pathlib
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent.parent
VOCABULARY = 1024
SPLITS = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
          r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+" "|[^\r\n" r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
          r"| ?[\p{P}\p{S}]+" "[\r\n]*" r"|\s*" "[\r\n]+" r"|\s+(?!\S)|\s+"]
SPLITS[2] = SPLITS[2].replace('\\"', '"', 1)

SPECIAL = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"]
SPECIAL_LATER = [f"<｜place▁holder▁no▁{i}｜>" for i in (0, 1, 10, 799)]
ADDED = [f"<｜{name}｜>" for name in ["fim▁hole", "fim▁begin", "fim▁end", "User", "Assistant"]] + ["<|EOT|>"] + [
    f"<｜{name}｜>" for name in
    ["tool▁calls▁begin", "tool▁calls▁end", "tool▁call▁begin", "tool▁call▁end", "tool▁outputs▁begin", "tool▁outputs▁end",
     "tool▁output▁begin", "tool▁output▁end", "tool▁sep", "begin▁of▁repo▁name", "end▁of▁repo▁name", "begin▁of▁file▁name",
     "end▁of▁file▁name", "begin▁of▁file", "end▁of▁file"]] + ["<think>", "</think>"] + [
    "<｜place▁holder▁for▁copy｜>", "<｜place▁holder▁for▁pointer▁replace｜>", "｜DSML｜"] + [
    f"<｜{name}｜>" for name in
    ["begin▁sys", "end▁sys", "latest_reminder", "action", "query", "authority", "domain", "task", "political", "entity",
     "title", "safety", "answer", "search"]] + ["<dsml:", "</dsml:"] + [
    f"<｜{name}｜>" for name in ["search▁begin", "search▁end", "extracted_url", "read_url"]]
SPECIAL_LAST = ["<｜end_of_query｜>", "<｜image｜>"]

SENTENCES = [
    "The lighthouse keeper counted 1234567 waves, then 89 more; nobody asked why.\n",
    "Der Zug nach Köln fährt heute um 17:45 Uhr von Gleis 3 – größer wird die Verspätung nicht.\n",
    "Le café était fermé, et l'élève naïf a dû boire de l'eau tiède à midi.\n",
    "El niño pequeño preguntó: ¿cuántos años tiene la montaña?\n",
    "Старый мост через реку построили за два года.\n",
    "今天的天气很好，我们去公园散步吧。他说：“明天见！”\n",
    "日本語のテキストはひらがなとカタカナと漢字を混ぜて書きます。ソース・コードも。\n",
    "오늘은 도서관에서 책을 세 권 빌렸습니다.\n",
    "كتب الطالب ثلاث رسائل إلى أصدقائه.\n",
    "छात्र ने तीन पत्र लिखे।\n",
    "def area(width, height):\n    return width * height  # no units\n\n\nif __name__ == '__main__':\n    print(area(3, 4))\n",
    "for (int i = 0; i < n; ++i) {\n\tsum += a[i] * b[i];\n}\n",
    '{"name": "lookup", "arguments": {"key": "amber", "depth": [1, 2.5, null, true]}}\n',
    "| left | right |\n|---|---|\n| 10 % | x ≤ y → z |\n",
]
FIXED = ["", " ", "\n", "Hello, world!", "  leading and trailing  ", "def f(x):\n    return x**2\n", "1234567890",
         "日本語のテキスト", "naïve café", "😀👍🏽", "a\r\n\r\nb", "don't I'll", "\t\tx", "x  \n\n y", "$$ ## !!", "한국어 Привет",
         "https://example.com/a?b=c", "e\u0301", "if (a<b && c>=d)", "needle-7Q2X-91", "a" * 20, "a" * 300, " " * 300,
         "\n" * 100, "漢" * 200, "ab1  2\u3000\u3000x", "a   1", "\u0000\u0001\u00021\u0003a", "゛゜ー・ヿ゠\u3040あ", "½٣Ⅷ〇一",
         "!a!!b.c\u0301", "<｜User｜>你好<｜Assistant｜><think>推理</think>答案<｜end▁of▁sentence｜>",
         "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">", "<think", "<<think>>", "<｜place▁holder▁no▁1｜><｜place▁holder▁no▁10｜>"]


def train():
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.Sequence([])
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in SPLITS] +
        [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    bpe.decoder = decoders.ByteLevel()
    bpe.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=[AddedToken(t, special=True) for t in SPECIAL],
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    documents = [path.read_text() for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])]
    bpe.train_from_iterator(documents + SENTENCES * 5, trainer)
    bpe.add_special_tokens([AddedToken(t, special=True) for t in SPECIAL_LATER])
    bpe.add_tokens([AddedToken(t, special=False, normalized=True) for t in ADDED])
    bpe.add_special_tokens([AddedToken(t, special=True) for t in SPECIAL_LAST])
    bpe.save(str(HERE / "tokenizer.json"), pretty=False)


def random_text(rng):
    awkward = list(" \t\r\n\u00a0\u3000\u0085\u200b\u0000!\"'.-(_abzAZ09½٣一龥龦ぁ゙゛・ーヿ゠\u3040\u3097😀\u0301éß") + [
        "<think>", "｜DSML｜", "<｜User｜>", "<｜", "｜>", "</think", "  ", "\n\n", " \n", "the ", "return "]
    mix = rng.random()
    parts = []
    for _ in range(rng.randrange(1, 40)):
        if rng.random() < mix:
            parts.append(rng.choice(awkward))
            continue
        code = rng.randrange(*rng.choice([(0x20, 0x7F), (0x20, 0x800), (0x2000, 0x3400), (0x800, 0x110000)]))
        parts.append("\ufffd" if 0xD800 <= code < 0xE000 else chr(code))
    return "".join(parts)


def main():
    if not (HERE / "tokenizer.json").exists():
        train()
    made = json.loads((HERE / "tokenizer.json").read_text())
    parse = Tokenizer.from_str(json.dumps(made))
    plain = Tokenizer.from_str(json.dumps({**made, "added_tokens": []}))
    rng = random.Random(20261130)
    texts = FIXED + SENTENCES + [random_text(rng) for _ in range(600)]
    vectors = [{"text": text, "parse": parse.encode(text, add_special_tokens=False).ids,
                "plain": plain.encode(text, add_special_tokens=False).ids} for text in texts]
    lines = ",\n".join(json.dumps(vector, separators=(",", ":")) for vector in vectors)
    (HERE / "encode.json").write_text(f"[\n{lines}\n]\n")
    print(f"{len(made['model']['vocab'])} + {len(made['added_tokens'])} tokens, {len(vectors)} texts", file=sys.stderr)


if __name__ == "__main__":
    main()
