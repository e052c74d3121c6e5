"""Writes and reads checkpoints: transformers' names, bf16 weights (i64 tables), config.json and the tokenizer."""
import json
import pathlib
import shutil
import struct

import torch

from config import Config
from model import Phantom

_CODES = {torch.bfloat16: "BF16", torch.float32: "F32", torch.int64: "I64"}
_TYPES = {code: dtype for dtype, code in _CODES.items()}


def write_safetensors(path, tensors):
    """The safetensors file of named CPU tensors, in the order given; data begins at a multiple of 8."""
    header, blobs, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, tensor in tensors.items():
        blob = tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": _CODES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        blobs.append(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(blobs)


def read_safetensors(path):
    """name -> CPU tensor."""
    raw = pathlib.Path(path).read_bytes()
    size, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    out = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        flat = torch.frombuffer(bytearray(raw[begin:end]), dtype=_TYPES[entry["dtype"]])
        out[name] = flat.view(entry["shape"])
    return out


def rounded(model):
    """The state dict as it is stored: i64 tables first (for alignment), every other tensor rounded to bf16."""
    state = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    tables = {n: t for n, t in state.items() if t.dtype == torch.int64}
    return tables | {n: t.bfloat16() for n, t in sorted(state.items()) if n not in tables}


def checkpoint(model, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", rounded(model))
    (folder / "config.json").write_text(json.dumps(model.config.to_transformers(), indent=1) + "\n")
    tokenizer = pathlib.Path(__file__).parent / "v4" / "tokenizer.json"
    if tokenizer.exists():
        shutil.copyfile(tokenizer, folder / "tokenizer.json")


def load(folder, precision=torch.float32):
    """The model of a checkpoint folder, on the CPU, its bf16 weights widened to f32."""
    folder = pathlib.Path(folder)
    model = Phantom(Config.load(folder), precision)
    state = {n: t.float() if t.is_floating_point() else t for n, t in read_safetensors(folder / "model.safetensors").items()}
    model.load_state_dict(state)
    return model
