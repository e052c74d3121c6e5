#!/usr/bin/env python3
"""Writes phantom/v4/tokenizer.json: byte-level BPE whose merges are chosen for copying. Deterministic, standard library only.

Usage: phantom/train_tokenizer.py [--check]      (--check: exit 1 when the file is another one)

Plain BPE training would merge whatever is frequent, so a random code would fall into rare tokens, other ones behind a space than
at the start of an answer. Here a merge starts with the space, or with the mark, in front of a word and grows to its right: such
tokens cannot occur inside a code. Words of the tools block that stand without a space start with the pair that syllables have
least. What is merged: every word and mark that the tasks' texts and the V4 encoding write; what is not: keys and values.
"""

import collections
import json
import sys

import encoding
import tokenizer
import words

SPECIALS = [
    encoding.BOS,
    encoding.EOS,
    encoding.PAD,
    encoding.USER,
    encoding.ASSISTANT,
    encoding.THINK,
    encoding.END_THINK,
    encoding.DSML,
    "<｜fim▁hole｜>",
    "<｜fim▁begin｜>",
    "<｜fim▁end｜>",
    "<｜latest_reminder｜>",
    "<｜action｜>",
    "<｜query｜>",
    "<｜authority｜>",
    "<｜domain｜>",
    "<｜title｜>",
    "<｜read_url｜>",
]
SPECIALS += [f"<｜place▁holder▁no▁{i}｜>" for i in range(32 - len(SPECIALS))]
VOCABULARY = 1536
# Short words without a space before them stay characters: a merge would reach into codes.
SHORTEST_PLAIN = 4


def corpus():
    """All fixed text of conversations, keys and values left out: behind spaces, or as the encoding writes it."""
    calls = [
        {
            "function": {
                "name": tool["function"]["name"],
                "arguments": json.dumps({key: "" for key in tool["function"]["parameters"]["properties"]}),
            }
        }
        for tool in words.TOOLS
    ]
    blocks = encoding.tools_block(words.TOOLS) + encoding.calls_block(calls)
    fixed = [text for text, control in blocks if not control] + ["<tool_result>", "</tool_result>"]
    spaced = [
        word
        for name in ("ADJECTIVES NOUNS VERBS PREPOSITIONS ADVERBS SUBJECTS MARKS ATTRIBUTES OPENERS").split()
        for word in getattr(words, name)
    ]
    lines = [
        line
        for name, value in sorted(vars(words).items())
        if isinstance(value, list) and value and isinstance(value[0], str) and ("{" in "".join(value) or "." in "".join(value))
        for line in value
    ]
    for line in lines + words.EXTRA:
        for k, v in (("<k>", "<v>"), ("", "")):
            spaced += line.format(a="", k=k, v=v).split(" ")[1:]
    marks = [text for left, right in words.QUOTES for text in (" " + left, *(right + end for end in (".", "?", ",", ":")))]
    return fixed + [" " + word for word in spaced] + marks + ["ok, ok.", ".\n\n"]


def pieces():
    """How often each piece of the pre-tokeniser occurs; pieces of keys' and values' marks alone are harmless."""
    count = collections.Counter()
    for text in corpus():
        count.update(tokenizer._ASCII.findall(text))
    return count


def chain(piece):
    """The merges (left, right) that make a piece: from its space or mark on, else from the rarest pair of letters on."""
    start = 0
    if piece[0].isalpha():

        def syllables(at):
            return sum(c in "aeiouAEIOU" for c in piece[at : at + 2]) == 1

        start = min(range(len(piece) - 1), key=lambda at: (syllables(at), at))
    merges = [(piece[start], piece[start + 1])] if len(piece) > 1 else []
    merges += [(piece[start:end], piece[end]) for end in range(start + 2, len(piece))]
    return merges + [(piece[begin], piece[begin + 1 :]) for begin in range(start - 1, -1, -1)]


def tokenizer_json():
    """The whole file as text."""
    chosen = [
        piece
        for piece in pieces()
        if len(piece) > 1 and not any(c.isdigit() for c in piece) and not (piece[0].isalpha() and len(piece) < SHORTEST_PLAIN)
    ]
    # First what starts with a space or mark: inside such a piece no plain merge comes first.
    chosen.sort(key=lambda piece: (piece[0].isalpha(), piece))
    spell = dict(zip(map(chr, range(256)), tokenizer.byte_alphabet()))
    merges, tokens = [], {}
    for piece in chosen:
        for left, right in chain(piece):
            if left + right not in tokens:
                tokens[left + right] = None
                merges.append(["".join(spell[c] for c in part) for part in (left, right)])
    vocabulary = {text: i for i, text in enumerate(SPECIALS)}
    for token in [*tokenizer.byte_alphabet(), *("".join(pair) for pair in merges)]:
        vocabulary[token] = len(vocabulary)
    used = len(vocabulary)
    if used > VOCABULARY:
        sys.exit(f"{used} tokens are more than {VOCABULARY}: leave words out")
    added = {text: vocabulary[text] for text in SPECIALS}
    for i in range(VOCABULARY - used):
        text = f"<｜place▁holder▁no▁{100 + i}｜>"
        vocabulary[text] = added[text] = len(vocabulary)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    file = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": i,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for text, i in added.items()
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
                for pattern in tokenizer.SPLITS
            ]
            + [byte_level],
        },
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": merges,
        },
    }
    return json.dumps(file, ensure_ascii=False, indent=0) + "\n"


def main():
    text = tokenizer_json()
    if "--check" in sys.argv[1:]:
        return int(tokenizer.PATH.read_text(encoding="utf-8") != text)
    tokenizer.PATH.parent.mkdir(exist_ok=True)
    tokenizer.PATH.write_text(text, encoding="utf-8")
    print(f"{text.count('place▁holder') // 2} ids are spare, {len(json.loads(text)['model']['merges'])} merges")
    return 0


if __name__ == "__main__":
    sys.exit(main())
