"""The phantom's tokenizer in plain Python: byte-level BPE behind DeepSeek's pre-tokeniser, read from tokenizer.json.

Gives the ids of Hugging Face's tokenizers and of Plumb's C++ for any text. It uses that every merge of this vocabulary is of
ASCII characters (checked on loading), so that pieces of other characters need no Unicode tables newer than Python's.
"""

import json
import pathlib
import re
import unicodedata

PATH = pathlib.Path(__file__).resolve().parent / "v4" / "tokenizer.json"

SPLITS = [
    r"\p{N}{1,3}",
    "[一-龥\u3040-\u309f\u30a0-\u30ff]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^"""
    "\r\n"
    r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+["
    "\r\n"
    r"]*|\s*["
    "\r\n"
    r"]+|\s+(?!\S)|\s+",
]

# The splits once more over one class letter a character: a ASCII letter, L other letter or mark (E: of split 2), P ASCII and p
# other punctuation or symbol, 9 number, n line end, s space, w other white space, o anything else.
_CLASSES = re.compile(r"9{1,3}|E+|Pa+|[sow]?[aL]+|s?[Pp]+n*|[sw]*n[swn]*n|[sw]*n+|[sw]+(?![^sw])|[sw]+|o")
_PUNCTUATION = set("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
# ASCII alone, which is all that the tasks write: the same rules without a table.
_ASCII = re.compile(
    r"[0-9]{1,3}|[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n!-~]?[A-Za-z]+| ?[!-/:-@\[-`{-~]+[\r\n]*|[\t-\r ]*[\r\n]+|[\t-\r ]+(?![^\t-\r ])|[\t-\r ]+|.",
    re.DOTALL,
)


def _class(character):
    if "a" <= character <= "z" or "A" <= character <= "Z":
        return "a"
    if character in _PUNCTUATION:
        return "P"
    if character in "\r\n":
        return "n"
    if character == " ":
        return "s"
    if "一" <= character <= "龥" or "\u3040" <= character <= "\u30ff":
        return "E"
    if character.isspace() and not "\x1c" <= character <= "\x1f":
        return "w"
    return {"L": "L", "M": "L", "N": "9", "P": "p", "S": "p"}.get(unicodedata.category(character)[0], "o")


def byte_alphabet():
    """The printable character of each byte in a byte-level vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(0x100 + others.index(byte)) for byte in range(256)]


class Tokenizer:
    """Text <-> ids. `encode` takes special tokens' texts for plain text; special ids come from `special`."""

    def __init__(self, path=PATH):
        file = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        character_of = byte_alphabet()
        byte_of = {character: byte for byte, character in enumerate(character_of)}
        self.special = {token["content"]: token["id"] for token in file["added_tokens"]}
        self.bytes_of = {i: text.encode() for text, i in self.special.items()}
        for token, i in file["model"]["vocab"].items():
            self.bytes_of.setdefault(i, bytes(byte_of.get(c, 0) for c in token))
        self.size = 1 + max(self.bytes_of)
        id_of = {token: i for token, i in file["model"]["vocab"].items() if token not in self.special}
        self._byte_id = [id_of[character] for character in character_of]
        self._merges = {}
        for rank, (left, right) in enumerate(file["model"]["merges"]):
            if max(self.bytes_of[id_of[left + right]]) >= 0x80:
                raise ValueError(f"merge {rank} of {path}: only ASCII can be merged here")
            self._merges[id_of[left], id_of[right]] = (rank, id_of[left + right])
        self._specials = re.compile("(" + "|".join(map(re.escape, sorted(self.special, key=len, reverse=True))) + ")")
        self._pieces = {}

    def _piece(self, piece):
        ids = [self._byte_id[byte] for byte in piece.encode("utf-8")]
        while True:
            best = min(
                (self._merges[pair] + (at,) for at, pair in enumerate(zip(ids, ids[1:])) if pair in self._merges),
                key=lambda merge: (merge[0], merge[2]),
                default=None,
            )
            if best is None:
                break
            ids[best[2] : best[2] + 2] = [best[1]]
        if len(self._pieces) < 1 << 16:
            self._pieces[piece] = ids
        return ids

    def encode(self, text):
        """Ids of plain text: a control token's text is bytes like any other."""
        if text.isascii():
            pieces = _ASCII.findall(text)
        else:
            pieces = [text[m.start() : m.end()] for m in _CLASSES.finditer("".join(map(_class, text)))]
        known, ids = self._pieces, []
        for piece in pieces:
            ids += known.get(piece) or self._piece(piece)
        return ids

    def encode_marked(self, text):
        """Ids of text in which control tokens' texts are control tokens."""
        ids = []
        for part in self._specials.split(text):
            if part in self.special:
                ids.append(self.special[part])
            elif part:
                ids += self.encode(part)
        return ids

    def decode_bytes(self, ids):
        return b"".join(self.bytes_of.get(int(i), b"") for i in ids)

    def decode(self, ids):
        return self.decode_bytes(ids).decode("utf-8", "replace")
