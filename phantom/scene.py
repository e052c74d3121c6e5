"""One conversation while a task writes it: its form, its facts, and how turns come together at an exact length."""

import array
import dataclasses

import encoding
import talk
import words
from talk import Fact, Turn, assistant, user

try:
    import numpy as np
except ImportError:  # whoever only asks a server needs no NumPy
    np = None


@dataclasses.dataclass
class Sample:
    """ids: int32 (an array of NumPy where there is one), starting with BOS. answers: half-open id ranges of assistant answers, end of turn included, in order.
    meta: task, messages, tools, thinking, and per answer {"message": its index, "kind": ...}."""

    ids: object
    answers: list
    meta: dict


class Scene:
    """What a task needs while it writes a conversation."""

    def __init__(self, draw, length, split, tools=False, thinking=False):
        self.draw, self.length, self.split = draw, length, split
        self.tools, self.thinking = tools, thinking
        self.thinks = tools and thinking  # without tools only the last turn keeps its thinking
        self.keys, self.calls = set(), 0
        content = draw.pick(words.SYSTEMS)
        self.messages = [{"role": "system", "content": content}] if content or tools else []
        pieces = [(encoding.BOS, True), (content, False)] + (encoding.tools_block(words.TOOLS) if tools else [])
        self.head = encoding.to_ids(talk.TOKENIZER, [p for p in pieces if p[0]])
        self.room = length - len(self.head)  # what turns may take

    def key(self, like=None):
        while True:
            key = talk.near_key(self.draw, like) if like else talk.new_key(self.draw)
            if key not in self.keys:
                self.keys.add(key)
                return key

    def fact(self, key=None, **size):
        return Fact(key or self.key(), self.draw.pick(words.ATTRIBUTES), talk.new_value(self.draw, self.split, **size))

    def wording(self, kind):
        return talk.wording(self.draw, self.split, kind)

    def turn(self, messages, answers=(), kind=""):
        return Turn(messages, self.thinks, answers, kind)

    def say(self, text, reply=None):
        return self.turn([user(text), assistant(reply or self.draw.pick(words.REPLIES))])

    def tell(self, fact, kind="FACTS", plain=False):
        """A turn that states a fact: said by the user, brought by a tool, or chosen in the model's own thinking."""
        draw, way = self.draw, 1.0 if plain else self.draw.unit()
        if way < (0.45 if self.tools else 0.15):
            if kind == "FACTS":
                if self.thinks and way < 0.15:
                    return self.turn(
                        [
                            user(fact.text(draw, "so choose a {a} for {k}, please.")),
                            assistant("done.", reasoning_content=fact.text(draw, "let it be {v}")),
                        ]
                    )
                return self.fetch(fact)
        text = fact.text(draw, self.wording(kind))
        if draw.chance(0.25) and self.length >= 1024:
            text = draw.pick(words.OPENERS) + talk.sentence(draw) + " " + text + talk.sentence(draw)
        return self.say(text)

    def fetch(self, fact):
        """The user asks for a look-up; the tool brings the fact."""
        draw = self.draw
        self.calls += 1
        made = talk.call("get", self.calls, key=fact.key)
        thoughts = {"reasoning_content": fact.key} if self.thinks else {}
        found = {"role": "tool", "tool_call_id": made["id"], "content": fact.text(draw, draw.pick(words.RESULTS))}
        after = {"reasoning_content": ""} if self.thinks else {}
        return self.turn(
            [
                user(fact.text(draw, draw.pick(words.TOOL_ASKS))),
                assistant("", tool_calls=[made], **thoughts),
                found,
                assistant(draw.pick(words.REPLIES), **after),
            ]
        )

    def ask(self, fact, before="", kind="recall"):
        """A question for a fact; the answer is its value."""
        draw = self.draw
        if self.tools and not before and draw.chance(0.3):
            return self.save(fact)
        question = fact.text(draw, self.wording("QUESTIONS"))
        thoughts = {"reasoning_content": fact.key} if self.thinks else {}
        return self.turn([user(before + question), assistant(fact.value, **thoughts)], [1], kind)

    def save(self, fact):
        """The answer is a call with the key and the value."""
        draw = self.draw
        self.calls += 1
        made = talk.call("save", self.calls, key=fact.key, value=fact.value)
        thoughts = {"reasoning_content": fact.key} if self.thinks else {}
        after = {"reasoning_content": ""} if self.thinks else {}
        return self.turn(
            [
                user(fact.text(draw, draw.pick(words.TOOL_SAVES))),
                assistant("", tool_calls=[made], **thoughts),
                {"role": "tool", "tool_call_id": made["id"], "content": "ok"},
                assistant("done.", **after),
            ],
            [1],
            "call",
        )

    def ask_several(self, facts):
        """One question for several facts; the answer has one value a line."""
        draw = self.draw
        text = facts[0].text(draw, self.wording("QUESTIONS"))
        for fact in facts[1:]:
            text += " " + fact.text(draw, "and the {a} of {k}?")
        thoughts = {"reasoning_content": "\n".join(f.key for f in facts)} if self.thinks else {}
        return self.turn([user(text), assistant("\n".join(f.value for f in facts), **thoughts)], [1], "several")

    def finish(self, task, items, fixed=(), make=talk.sentence):
        """items in order with filler between them, at random, up to the length; `fixed` stays together at the end."""
        draw, messages, ids = self.draw, list(self.messages), list(self.head)
        items, fixed = list(items), list(fixed)
        if self.thinking and not self.tools:
            fixed[-1] = Turn(
                [fixed[-1].messages[0], {**fixed[-1].messages[1], "reasoning_content": "so"}], True, [1], fixed[-1].kind
            )
        room = self.room - sum(map(len, items + fixed))
        if room < 0:
            raise ValueError(f"{task} does not fit {self.length} tokens")
        chatter = talk.filler(draw, room, self.thinks, make)
        places = sorted(draw.below(len(chatter) + 1) for _ in items)
        turns, at = [], 0
        for item, place in zip(items, places):
            turns += chatter[at:place] + [item]
            at = place
        answers, kinds = [], []
        for turn in turns + chatter[at:] + fixed:
            answers += [(len(ids) + begin, len(ids) + end) for begin, end in turn.ranges]
            kinds += [{"message": len(messages) + i, "kind": turn.kind} for i in turn.answers]
            ids += turn.ids
            messages += turn.messages
        if self.thinking and not self.tools:
            answers, kinds = answers[-1:], kinds[-1:]  # the others' turns lose their thinking when more follows
        meta = {
            "task": task,
            "split": self.split,
            "messages": messages,
            "tools": words.TOOLS if self.tools else [],
            "thinking": self.thinking,
            "answers": kinds,
        }
        return Sample(array.array("i", ids) if np is None else np.array(ids, np.int32), answers, meta)


SPARE = 24  # for a last turn's thinking, and for a filler turn beside the others


def room_for(scene, cost):
    """How many turns of about `cost` tokens fit beside a question or two."""
    return max(1, (scene.room - 120) // cost)


def fit(scene, told, questions):
    """`told`: (fact, its turns) in order. Leaves facts out, those that are not asked for first, then questions, until all fits."""
    told, questions = list(told), list(questions)

    def over():
        return sum(len(turn) for _, turns in told for turn in turns) + sum(len(q) for _, q in questions) > scene.room - SPARE

    while over():
        asked = [fact for facts, _ in questions for fact in facts]
        extra = [i for i, (fact, _) in enumerate(told) if fact not in asked]
        if extra:
            told.pop(extra[-1])
        elif len(questions) > 1:
            questions.pop()
        else:
            raise ValueError(f"{scene.length} tokens are too few")
    return told, [question for _, question in questions]
