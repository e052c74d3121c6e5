"""How the fake servers read plumb's prompts: what is asked for, and where its value stands. Standard library only."""
import re

LEFT, RIGHT = r"[\"\[(*]", r"[\"\])*]"
ASKED = re.compile(rf"the (\w+) of {LEFT}(\w+){RIGHT}")
SENTENCE = re.compile(r"[^.?<>\n]+")
# A code stands in marks, or has a hyphen.
CODE = re.compile(rf"{LEFT}([A-Z0-9]+(?:-[A-Z0-9]+)*){RIGHT}|(?<![\w-])([A-Z0-9]+(?:-[A-Z0-9]+)+)(?![\w-])")


def asked(text):
    """(attribute, key) of a question, or None."""
    found = ASKED.search(text)
    return found.groups() if found else None


def stated(attribute, key, text):
    """(value, begin, end) of each time that the text states it, in order."""
    found = []
    for sentence in SENTENCE.finditer(text):
        said = sentence.group()
        code = CODE.search(said)
        if code and attribute in said and re.search(rf"{LEFT}{key}{RIGHT}", said):
            group = 1 if code.group(1) else 2
            found.append((code.group(group), sentence.start() + code.start(group), sentence.start() + code.end(group)))
    return found
