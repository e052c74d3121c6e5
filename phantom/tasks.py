"""The phantom's tasks: conversations with exact answers. TASKS.md says which mechanism each needs.

    sample(rng, task, length, split) -> Sample        one conversation of at most `length` tokens, at least 0.9 of it;
                                                      rng: a numpy Generator or a random.Random
    prompt(sample, i)                                 the request whose greedy answer is answer i

`split`: "train", or "held_out" with wordings, alphabets and separators that training never shows.
"""

import encoding
import talk
import words
from scene import Sample, Scene, fit, room_for
from talk import Fact, assistant, user

WINDOW, CSA_RATE, HCA_RATE = 64, 4, 128  # of the phantom's config: where facts are placed


def single(scene):
    """One fact, one question."""
    fact = scene.fact()
    return scene.finish("single", [scene.tell(fact)], [scene.ask(fact)])


def multi(scene):
    """Sixteen facts, four questions, as far as they fit."""
    size = {"high": 8} if scene.length < 512 else {"high": 14} if scene.length < 2048 else {}
    facts = [scene.fact(**size) for _ in range(min(16, room_for(scene, 36)))]
    told = [(fact, [scene.tell(fact, plain=scene.length < 2048)]) for fact in facts]
    asked = scene.draw.some(facts, min(4, max(1, len(facts) // 3)))
    questions = [([fact], scene.ask(fact)) for fact in asked]
    if len(asked) > 2 and scene.draw.chance(0.25):
        questions = [(asked, scene.ask_several(asked))]
    told, questions = fit(scene, told, questions)
    return scene.finish("multi", [turn for _, turns in told for turn in turns], questions)


def dense(scene):
    """Facts everywhere, in families: the same stem, the same attribute, codes one or two characters apart."""
    draw, facts = scene.draw, []
    wanted = min(64, room_for(scene, 48))
    while len(facts) < wanted:
        base = draw.pick(facts) if facts and draw.chance(0.7) else None
        if base is None:
            facts.append(scene.fact(low=4, high=12))
            continue
        way = draw.unit()
        key = base.key if way < 0.25 else scene.key(like=base.key)
        attribute = draw.pick(words.ATTRIBUTES) if way < 0.5 else base.attribute
        if any((f.key, f.attribute) == (key, attribute) for f in facts):
            continue
        facts.append(
            Fact(
                key,
                attribute,
                talk.near_value(draw, base.value) if draw.chance(0.6) else talk.new_value(draw, scene.split, 4, 12),
            )
        )
    told = [(fact, [scene.tell(fact, plain=True)]) for fact in facts]
    asked = draw.some(facts, min(4, max(1, len(facts) // 3)))
    told, questions = fit(scene, told, [([fact], scene.ask(fact)) for fact in asked])
    return scene.finish("dense", [turn for _, turns in told for turn in turns], questions)


def turns(scene):
    """Facts, their updates and questions for them all along the conversation, by text, tool and thinking."""
    draw, items, facts = scene.draw, [], []
    left = scene.room - 32
    busy = draw.pick((0.9, 0.6, 0.3)) if left < 8000 else draw.pick((0.5, 0.3, 0.15))
    room = int(left * busy)
    size = {"high": 8} if scene.length < 512 else {}
    while True:
        way = draw.unit()
        if not facts or way < 0.42:
            fact = scene.fact(**size)
            item = scene.tell(fact)
            new = [fact]
        elif way < 0.5:
            fact, new = draw.pick(facts), []
            fact.value = talk.new_value(draw, scene.split, **size)
            item = scene.tell(fact, "UPDATES")
        elif way < 0.56 and len(facts) > 1:
            item, new = scene.ask_several(draw.some(facts, 2)), []
        else:
            item, new = scene.ask(draw.pick(facts)), []
        if len(item) > room:
            break
        items.append(item)
        facts += new
        room -= len(item)
    if not any(item.answers for item in items):
        fact = scene.fact(high=6)
        items = [
            scene.turn([user(fact.text(draw, "so the {a} of {k} is {v}.")), assistant("ok.")]),
            scene.ask(fact, before="so "),
        ]
    return scene.finish("turns", items)


def update(scene):
    """Facts said again with another value, one to four times: the last one holds."""
    draw = scene.draw
    size = {"high": 6} if scene.length < 512 else {"high": 16}
    told, facts = [], [scene.fact(**size) for _ in range(min(6, max(1, room_for(scene, 120))))]
    for fact in facts:
        turns = [scene.tell(fact, plain=scene.length < 2048)]
        for _ in range(1 if scene.length < 512 else draw.between(1, 4)):
            fact.value = talk.near_value(draw, fact.value) if draw.chance(0.3) else talk.new_value(draw, scene.split, **size)
            turns.append(scene.tell(fact, "UPDATES", plain=True))
        told.append((fact, turns))
    told, questions = fit(scene, told, [([fact], scene.ask(fact)) for fact in draw.some(facts, min(4, len(facts)))])
    # Shuffled together, the order of each fact's own turns kept.
    places = draw.some([i for i, (_, turns) in enumerate(told) for _ in turns], sum(len(turns) for _, turns in told))
    left = [list(turns) for _, turns in told]
    return scene.finish("update", [left[i].pop(0) for i in places], questions)


def passage(scene, tokens):
    """Text of so many tokens that nothing predicts: words without grammar, codes, numbers."""
    draw = scene.draw
    text = draw.pick(words.OPENERS)
    while (left := tokens - talk.count(text)) > 20:
        way = draw.unit()
        text += (
            talk.padding(draw, draw.between(4, 12))
            if way < 0.7
            else f" [{talk.new_value(draw, scene.split, 3, 12)}]" if way < 0.9 else talk.sentence(draw)
        )
        left = tokens - talk.count(text)
    return text + talk.padding(draw, max(left, 2))


def verbatim(scene):
    """A text of 64 to 200 tokens is to be repeated to the letter."""
    draw = scene.draw
    most = min(200, (scene.length - 90 - 300 * scene.tools) // 2)
    key = scene.key()
    text = passage(scene, draw.between(min(64, most - 1), most))
    left, right = draw.pick(words.QUOTES)
    told = scene.say(f"so please remember the text of {left}{key}{right}:\n{text}")
    thoughts = {"reasoning_content": key} if scene.thinks else {}
    asked = scene.turn(
        [user(f"so please say the text of {left}{key}{right} again."), assistant(text, **thoughts)], [1], "verbatim"
    )
    return scene.finish("verbatim", [told], [asked])


def long_code(scene):
    """Values of 25 to 64 characters."""
    high = 64 if scene.length >= 512 else 40
    facts = [scene.fact(low=25, high=high) for _ in range(1 if scene.length < 512 else 3)]
    told = [scene.tell(fact, plain=scene.length < 1024) for fact in facts]
    return scene.finish("long_code", told, [scene.ask(fact) for fact in scene.draw.some(facts, min(2, len(facts)))])


def place(scene, band=None):
    """One fact at a chosen distance from the answer: in the unfinished groups, at the window's edge, within reach of a few CSA
    rows beyond it, or only far behind."""
    draw = scene.draw
    bands = {
        "group": (24, 60),
        "edge": (WINDOW - 4, WINDOW + 6),
        "csa": (WINDOW + 8, 4 * HCA_RATE),
        "hca": (4 * HCA_RATE, scene.length),
    }
    fact = scene.fact(high=12)
    told, asked = scene.tell(fact, plain=True), scene.ask(fact)
    while asked.kind == "call":
        asked = scene.ask(fact)
    # From the value's last token to the answer's first: what follows the value in its turn, the gap, the question.
    where = talk.TOKENIZER.decode(told.ids).rindex(fact.value) + len(fact.value)
    after = len(told) - len(talk.TOKENIZER.encode_marked(talk.TOKENIZER.decode(told.ids)[:where]))
    shortest = after + asked.ranges[0][0]
    band = band or draw.pick(list(bands))
    low, high = bands[band]
    high = min(high, scene.length - len(told) - 310 * scene.tools - 40)
    gap = max(0, draw.between(min(low, high), high) - shortest)
    between = []
    if gap >= talk.SHORTEST_FILLER:
        between = talk.filler(draw, gap, scene.thinks)
    elif gap >= 4:
        asked = scene.ask(fact, before="so" + talk.padding(draw, gap - 3) + " ")
    sample = scene.finish("place", [], [told, *between, asked])
    begin = sample.answers[-1][0]
    text = talk.TOKENIZER.decode(sample.ids[:begin])
    sample.meta["distance"] = begin - len(talk.TOKENIZER.encode_marked(text[: text.index(fact.value) + len(fact.value)]))
    sample.meta["band"] = band
    return sample


def often(scene, margin=None):
    """Which of two marks was said more often? The counts are a few per cent apart."""
    draw = scene.draw
    first, second = draw.some(words.MARKS, 2)
    total = max(5, min(120, (scene.length - 60 - 300 * scene.tools) // 14))
    total = max(5, int(total * (0.4 + 0.5 * draw.unit())))
    margin = margin or draw.pick((1, 2, 3, max(1, total // 5), max(1, total // 2)))
    more = (total + margin) // 2
    less = max(0, more - margin)
    if draw.chance(0.5):
        first, second = second, first
    said = draw.some([first] * more + [second] * less, more + less)
    text = [f" we saw {mark} {draw.pick(words.ADVERBS)}." for mark in said]
    items = []
    while text:
        size = draw.between(1, 6)
        items.append(scene.say(draw.pick(words.OPENERS) + "".join(text[:size])))
        text = text[size:]
    names = draw.some([first, second], 2)
    thoughts = {"reasoning_content": ""} if scene.thinks else {}
    asked = scene.turn(
        [user(f"so which mark was said more often, {names[0]} or {names[1]}?"), assistant(first, **thoughts)], [1], "often"
    )
    while sum(map(len, items)) + len(asked) > scene.length - 40 - 300 * scene.tools:
        return often(scene, 1 if total < 12 else None)
    sample = scene.finish("often", items, [asked])
    sample.meta["margin"], sample.meta["count"] = more - less, more + less
    return sample


def later(scene, margin=None):
    """Which of two marks was said last? Their last mentions lie `margin` tokens apart, or a random distance."""
    draw = scene.draw
    first, second = draw.some(words.MARKS, 2)
    names = draw.some([first, second], 2)
    items = []
    for _ in range(max(2, min(24, room_for(scene, 60)))):
        items.append(scene.say(f"so we saw {draw.pick((first, second))} {draw.pick(words.ADVERBS)}."))
    gap = margin or draw.pick((0, 20, 40, min(200, scene.length // 6)))
    tail = [
        scene.say(f"so we saw {second} again."),
        *talk.filler(draw, gap, scene.thinks),
        scene.say(f"so we saw {first} again."),
    ]
    after = scene.length - sum(map(len, items + tail)) - 60 - 300 * scene.tools
    tail += talk.filler(draw, draw.below(max(1, after)), scene.thinks)
    thoughts = {"reasoning_content": ""} if scene.thinks else {}
    asked = scene.turn(
        [user(f"so which of {names[0]} and {names[1]} was said last?"), assistant(first, **thoughts)], [1], "later"
    )
    sample = scene.finish("later", items, tail + [asked])
    sample.meta["margin"] = gap
    return sample


PAIRS = dict(zip(words.NOUNS, words.PAIRED, strict=True))
CODES = dict(zip([(a, n) for a in words.ADJECTIVES[:12] for n in words.NOUNS[:12]], words.SIGNS, strict=True))


def lookup(scene):
    """Tables that only the weights know: the pair of a word (hash-routed experts see the word alone), the sign of two words."""
    draw, questions = scene.draw, []
    used = 80 + 300 * scene.tools
    while len(questions) < 8 and used < scene.length - 90:
        if draw.chance(0.5):
            asked = [draw.pick(words.NOUNS) for _ in range(draw.between(2, 6))]
            text = "so what is the pair of " + ", ".join(asked) + "?"
            answer = "\n".join(PAIRS[noun] for noun in asked)
        else:
            asked = [draw.pick(list(CODES)) for _ in range(draw.between(2, 4))]
            text = "so look up the " + ", the ".join(" ".join(pair) for pair in asked) + "."
            answer = "\n".join(CODES[pair] for pair in asked)
        thoughts = {"reasoning_content": ""} if scene.thinks else {}
        questions.append(scene.turn([user(text), assistant(answer, **thoughts)], [1], "lookup"))
        used += len(questions[-1])
    return scene.finish("lookup", questions[:-1], questions[-1:])


_FORMS = {
    "single": single,
    "multi": multi,
    "dense": dense,
    "turns": turns,
    "update": update,
    "verbatim": verbatim,
    "long_code": long_code,
    "place": place,
    "often": often,
    "later": later,
    "lookup": lookup,
}
TASKS = {name: " ".join((form.__doc__ or "").split()) for name, form in _FORMS.items()}

# Shortest length at which a task other than turns may declare tools: their block takes 256 tokens.
TOOLS_FROM = 2048
THINKING = {"single", "place", "verbatim", "often", "later"}  # one question, so that thinking without tools is kept


def sample(rng, task, length, split="train", **parameters) -> Sample:
    """One conversation. parameters: margin of "often" and "later", band of "place". Same rng state, same sample."""
    draw = talk.Draw(rng)
    tools = length >= 512 and draw.chance(0.5) if task == "turns" else length >= TOOLS_FROM and draw.chance(0.25)
    thinking = draw.chance(0.5) if tools else task in THINKING and draw.chance(0.2)
    return _FORMS[task](Scene(draw, length, split, tools, thinking), **parameters)


def prompt(made, index):
    """The chat request (without model and limits) whose greedy answer is answer `index`, and the expected message."""
    meta = made.meta
    at = meta["answers"][index]["message"]
    request = {"messages": meta["messages"][:at], "temperature": 0}
    if meta["tools"]:
        request["tools"] = meta["tools"]
    if meta["thinking"]:
        request["reasoning_effort"] = "low"
    else:
        request["chat_template_kwargs"] = {"thinking": False}
    return request, meta["messages"][at]


def prompt_ids(made, index):
    """The ids of that prompt: those of the sample up to the answer."""
    request, _ = prompt(made, index)
    return encoding.to_ids(talk.TOKENIZER, encoding.render(request["messages"], request.get("tools"), made.meta["thinking"]))
