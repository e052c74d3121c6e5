"""Building blocks of the phantom's conversations: draws, keys and values, filler, turns with their ids."""

import random

import encoding
import words
from tokenizer import Tokenizer

TOKENIZER = Tokenizer()
_S = TOKENIZER.special


class Draw:
    """Random choices from a numpy Generator, a block at a time since its single draws are slow, or from a random.Random."""

    def __init__(self, rng):
        self._block = []
        self._more = (
            (lambda: [rng.random() for _ in range(512)])
            if isinstance(rng, random.Random)
            else (lambda: rng.random(512).tolist())
        )

    def unit(self):
        if not self._block:
            self._block = self._more()
        return self._block.pop()

    def below(self, count):
        return int(self.unit() * count)

    def between(self, low, high):
        """An integer of [low, high]."""
        return low + int(self.unit() * (high - low + 1))

    def pick(self, options):
        return options[int(self.unit() * len(options))]

    def chance(self, probability):
        return self.unit() < probability

    def some(self, options, count):
        """`count` different ones, in random order."""
        options = list(options)
        return [options.pop(int(self.unit() * len(options))) for _ in range(count)]


def syllable(draw):
    text = draw.pick(words.CONSONANTS) + draw.pick(words.VOWELS)
    return text + draw.pick(words.CONSONANTS) if draw.chance(0.3) else text


def new_key(draw):
    """A key of two to four syllables, outside any list."""
    return "".join(syllable(draw) for _ in range(draw.between(2, 4)))


def near_key(draw, key):
    """Another key with the same stem."""
    return key[: max(3, len(key) - draw.between(1, 3))] + syllable(draw)


def new_value(draw, split="train", low=3, high=24):
    """A value of low to high characters over one alphabet, separators now and then; it starts and ends with an alphabet's
    character. "held_out": alphabets and separators that no value of training has, of characters that training knows."""
    held_out = split == "held_out"
    size = draw.between(low, high)
    if not held_out and draw.chance(0.15):
        text = ""
        while len(text) < size:
            text += syllable(draw)
        return text[:size]
    alphabets = words.ALPHABETS_HELD_OUT if held_out else words.ALPHABETS
    alphabet = draw.pick(list(alphabets.values()))
    if not held_out and draw.chance(0.15):
        alphabet = "".join(draw.some(words.ALPHABETS["mixed"], draw.between(5, 14)))
    text = [draw.pick(alphabet) for _ in range(size)]
    if size >= 5 and draw.chance(0.4):
        separator = draw.pick(words.SEPARATORS_HELD_OUT if held_out else words.SEPARATORS)
        step = draw.between(2, 5)
        for at in range(step, size - len(separator), step + len(separator)):
            text[at : at + len(separator)] = separator
    return "".join(text)


def near_value(draw, value):
    """A value that differs from `value` in one or two characters of the same kinds."""
    text = list(value)
    for _ in range(draw.between(1, 2)):
        at = draw.below(len(text))
        for kind in (words.DIGITS, words.LOWER, words.UPPER):
            if text[at] in kind:
                text[at] = draw.pick(kind.replace(text[at], ""))
    return "".join(text)


WORDS = words.ADJECTIVES + words.NOUNS + words.VERBS + words.PREPOSITIONS + words.ADVERBS
# What wordings are made of, without the attributes: those name what is told.
_SMALL = sorted(
    {
        word.strip(".,:?")
        for wording in words.FACTS + words.UPDATES + words.QUESTIONS
        for word in wording.split(" ")[1:]
        if "{" not in word and "=" not in word
    }
    - set(words.ATTRIBUTES)
)
_ANY = sorted(set(WORDS) - set(words.ATTRIBUTES))


def composed(draw, kind):
    """A wording of FACTS, UPDATES or QUESTIONS without grammar: attribute, key and (but in questions) value in any order, none
    to three words before and behind each."""
    slots = draw.some(("{a}", "{k}") if kind == "QUESTIONS" else ("{a}", "{k}", "{v}"), 2 if kind == "QUESTIONS" else 3)

    def some_words():
        return [draw.pick(_SMALL) if draw.chance(0.7) else draw.pick(_ANY) for _ in range(draw.between(0, 3))]

    parts = [draw.pick(words.OPENERS), *some_words()]
    for slot in slots:
        parts += [slot + ("," if draw.chance(0.1) else ":" if draw.chance(0.05) else ""), *some_words()]
    return " ".join(parts).rstrip(",:") + ("?" if kind == "QUESTIONS" and draw.chance(0.6) else ".")


class Fact:
    """An attribute of a key and its value. `value` is the newest one."""

    def __init__(self, key, attribute, value):
        self.key, self.attribute, self.value = key, attribute, value

    def text(self, draw, wording, value=None):
        left, right = draw.pick(words.QUOTES)
        key = left + self.key + right
        if "{v} {" in wording or draw.chance(0.5):
            left, right = draw.pick(words.QUOTES)
        return wording.format(a=self.attribute, k=key, v=left + (value or self.value) + right)


def wording(draw, split, kind):
    """A wording of FACTS, UPDATES or QUESTIONS: "held_out" has lists of its own, "train" has lists and composed ones."""
    if split != "held_out" and draw.chance(0.5):
        return composed(draw, kind)
    return draw.pick(getattr(words, kind + ("_HELD_OUT" if split == "held_out" else "")))


def sentence(draw):
    """A filler sentence with a space before it."""
    kind, pick = draw.unit(), draw.pick
    if kind < 0.45:
        return (
            f" the {pick(words.ADJECTIVES)} {pick(words.NOUNS)} {pick(words.VERBS)} the {pick(words.NOUNS)} "
            f"{pick(words.PREPOSITIONS)} the {pick(words.ADJECTIVES)} {pick(words.NOUNS)}."
        )
    if kind < 0.75:
        return f" {pick(words.SUBJECTS)} {pick(words.VERBS)} the {pick(words.NOUNS)} {pick(words.ADVERBS)}."
    if kind < 0.9:
        return f" the {pick(words.NOUNS)} is {pick(words.ADJECTIVES)} and the {pick(words.NOUNS)} is {pick(words.ADJECTIVES)}."
    if kind < 0.95:
        return f" the door bell rang at {draw.below(24)}:{draw.below(60):02d}."
    return f" a call came from line {draw.below(1000)}."


def padding(draw, tokens):
    """Text of exactly so many tokens: random words and a full stop."""
    return "".join(" " + draw.pick(WORDS) for _ in range(tokens - 1)) + "." if tokens > 0 else ""


def count(text):
    return len(TOKENIZER.encode(text))


def prose(draw, tokens, make=sentence):
    """Sentences of exactly so many tokens together; each starts with a space."""
    text = []
    while tokens > 24:
        text.append(make(draw))
        tokens -= count(text[-1])
    return "".join(text) + padding(draw, tokens)


def call(name, number, **arguments):
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": encoding.to_json(arguments)}}


class Turn:
    """Messages that follow each other, their ids, and the id ranges of the answers among them.

    messages alternate between those that ask (user, tool) and one assistant message; `answers` are indices of assistant messages
    that are asked for, with a word on their kind."""

    def __init__(self, messages, thinks=False, answers=(), kind=""):
        self.messages, self.answers, self.kind = messages, list(answers), kind
        self.ids, self.ranges = [], []
        at = 0
        for group in encoding.turns_of(messages):
            if group[0]["role"] == "assistant":
                begin = len(self.ids)
                self.ids += encoding.to_ids(TOKENIZER, encoding.assistant_turn(group[0], thinks))
                if at in self.answers:
                    self.ranges.append((begin, len(self.ids)))
            else:
                self.ids += encoding.to_ids(TOKENIZER, encoding.user_turn(group) + encoding.opening(thinks))
            at += len(group)

    def __len__(self):
        return len(self.ids)


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


SHORTEST_FILLER = 16


def filler_turn(draw, tokens, thinks=False, make=sentence):
    """A turn of chatter of exactly `tokens` >= SHORTEST_FILLER tokens."""
    opener = draw.pick(words.OPENERS)
    options = [reply for reply in REPLIES if REPLIES[reply] + OPENERS[opener] + 6 <= tokens]
    reply = draw.pick(options)
    room = tokens - 4 - int(thinks) - OPENERS[opener] - REPLIES[reply]
    return Turn([user(opener + prose(draw, room, make)), assistant(reply)], thinks)


REPLIES = {reply: count(reply) for reply in words.REPLIES}
OPENERS = {opener: count(opener) for opener in words.OPENERS}


def filler(draw, tokens, thinks=False, make=sentence):
    """Turns of chatter of exactly so many tokens together; none for less than SHORTEST_FILLER."""
    turns = []
    while tokens >= SHORTEST_FILLER:
        size = draw.between(SHORTEST_FILLER, 140)
        if tokens - size < SHORTEST_FILLER:
            size = tokens if tokens <= 160 else tokens - 2 * SHORTEST_FILLER
        turns.append(filler_turn(draw, size, thinks, make))
        tokens -= size
    return turns
