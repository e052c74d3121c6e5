#!/usr/bin/env python3
"""Writes blocks.safetensors, logits.safetensors and digests.json: what numpy and ml_dtypes make of weights in FP8 blocks,
MXFP4 and NVFP4, and what a model with those weights computes. Nothing of Plumb is used.

Usage: make.py REFERENCE.py   (needs numpy and ml_dtypes)
REFERENCE.py MODEL_DIR IDS.json CHUNK OUT.npy computes logits of a checkpoint in float64, from float32 weights in transformers'
names. The formulas are those of src/weights/block_formats.h, written again here.
"""
import hashlib
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np

HERE = pathlib.Path(__file__).parent
TINY = HERE.parent / "tiny-random-a"
F32 = np.float32
CODES = {"float32": "F32", "int64": "I64", "int32": "I32", "uint8": "U8", "float8_e4m3fn": "F8_E4M3",
         "float8_e8m0fnu": "F8_E8M0", "bfloat16": "BF16"}
TYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4"}


def read(path):
    raw = path.read_bytes()
    size, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    return {name: np.frombuffer(raw[8 + size:][slice(*entry["data_offsets"])], TYPES[entry["dtype"]]).reshape(entry["shape"])
            for name, entry in header.items()}


def write(path, tensors):
    header, blobs, at = {}, [], 0
    for name, tensor in tensors.items():
        blob = np.ascontiguousarray(tensor).tobytes()
        header[name] = {"dtype": CODES[str(tensor.dtype)], "shape": list(tensor.shape), "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def power_above(x):
    """The smallest power of two that is not below x > 0, as E8M0."""
    mantissa, exponent = np.frexp(x.astype(np.float64))
    exponent = np.clip(np.where(mantissa == 0.5, exponent - 1, exponent), -126, 127)
    return np.exp2(exponent).astype(ml_dtypes.float8_e8m0fnu)


def grid(w, rows, columns):
    """amax of each block."""
    out = np.zeros((-(-w.shape[0] // rows), -(-w.shape[1] // columns)), F32)
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = np.abs(w[i * rows:(i + 1) * rows, j * columns:(j + 1) * columns]).max()
    return out


def spread(scales, w, rows, columns):
    return np.repeat(np.repeat(scales, rows, 0), columns, 1)[:w.shape[0], :w.shape[1]]


def pack(codes):
    low, high = codes[:, 0::2].view(np.uint8) & 15, codes[:, 1::2].view(np.uint8) & 15
    return low | high << 4


def e2m1(x):
    return np.clip(x, -6, 6).astype(ml_dtypes.float4_e2m1fn)


def fp8(w):
    amax = grid(w, 128, 128)
    scales = np.where(amax == 0, F32(1).astype(ml_dtypes.float8_e8m0fnu), power_above(np.where(amax == 0, 1, amax / F32(448))))
    step = spread(scales.astype(F32), w, 128, 128)
    codes = np.clip(w / step, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    return {"weight": codes, "scale": scales, "values": codes.astype(F32) * step}


def mxfp4(w):
    amax = grid(w, 1, 32)
    scales = np.where(amax == 0, F32(1).astype(ml_dtypes.float8_e8m0fnu), power_above(np.where(amax == 0, 1, amax / F32(6))))
    step = spread(scales.astype(F32), w, 1, 32)
    codes = e2m1(w / step)
    return {"weight": pack(codes), "scale": scales, "values": codes.astype(F32) * step}


def global_scale(amax):
    return F32(amax) / F32(2688) if amax > 0 else F32(1)


def nvfp4(w, top):
    amax = grid(w, 1, 16)
    wanted = np.where(amax == 0, F32(1), np.maximum(amax / (F32(6) * top), F32(2.0**-9)))
    scales = np.minimum(wanted, F32(448)).astype(ml_dtypes.float8_e4m3fn)
    block = spread(scales.astype(F32), w, 1, 16)
    codes = e2m1(w / (block * top))
    return {"weight": pack(codes), "weight_scale": scales, "weight_scale_2": np.array(top, F32),
            "values": (codes.astype(F32) * block) * top}


def blocks(rng):
    """Matrices whose extents no block divides: random ones, ties, blocks of zeros, very small and very large blocks."""
    out = {}
    for name, shape in (("wide", (130, 136)), ("low", (3, 50)), ("one", (1, 2)), ("whole", (32, 64)), ("ties", (8, 64))):
        w = (rng.standard_normal(shape) * np.exp2(rng.integers(-6, 3, shape))).astype(F32)
        if name == "wide":
            w[128:, 128:] = 0
            w[0, 64:96] = 0
            w[1, 64:96] *= F32(1e-30)
            w[:128, 128:] *= F32(1e20)
        if name == "ties":
            w[:] = rng.choice([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6, -0.25, -0.75, -1.25, -5, 0], shape)
            w[0, 0] = 2688  # NVFP4's second scale is 1 then
        out[name] = w
    return out


def block_tensors(rng):
    tensors = {}
    for name, w in blocks(rng).items():
        tensors[name] = w
        for form, made in (("fp8", fp8(w)), ("mxfp4", mxfp4(w)), ("nvfp4", nvfp4(w, global_scale(np.abs(w).max())))):
            for part, tensor in made.items():
                tensors[f"{name}.{form}.{part}"] = tensor
    # Codes that no encoder of ours wrote: every byte, and scales of all sizes.
    codes = rng.permutation(np.tile(np.arange(256, dtype=np.uint8), 3)).reshape(12, 64)
    scales = rng.integers(1, 240, (12, 2), dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu)
    values = np.stack([codes & 15, codes >> 4], -1).reshape(12, 128).view(ml_dtypes.float4_e2m1fn).astype(F32)
    tensors |= {"any.mxfp4.weight": codes, "any.mxfp4.scale": np.repeat(scales, 2, 1),
                "any.mxfp4.values": values * np.repeat(scales, 64, 1).astype(F32)}
    wide = rng.uniform(1e-6, 1e3, (2, 2)).astype(F32)
    eight = np.where((codes & 127) == 127, 0, codes).astype(np.uint8).view(ml_dtypes.float8_e4m3fn)
    tensors |= {"any.fp8.weight": eight, "any.fp8.scale": wide,
                "any.fp8.values": eight.astype(F32) * np.repeat(np.repeat(wide, 8, 0), 40, 1)[:12, :64]}
    return tensors


LINEAR = {"q_a_proj": "wq_a", "q_b_proj": "wq_b", "kv_proj": "wkv", "o_a_proj": "wo_a", "o_b_proj": "wo_b"}
SHARED = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
KEPT = ("hc", "sinks", "position_bias", "e_score_correction_bias")  # F32 in the release


def rounded(form, source, config):
    """The weights in transformers' names as the form leaves them, and the stored tensors of quantised ones."""
    model, stored = {}, {}

    def keep(name, made):
        for part, tensor in made.items():
            if part != "values":
                stored[f"{name}.{part}"] = tensor
        return made["values"]

    for name, w in source.items():
        if w.dtype != F32 or any(word in name for word in KEPT):
            model[name] = w
            continue
        layer, _, rest = name.removeprefix("model.layers.").partition(".")
        prefix, last = f"layers.{layer}.", rest.split(".")[-2] if "." in rest else ""
        if form != "release" and rest == f"self_attn.{last}.weight" and last in LINEAR:
            model[name] = keep(f"{prefix}attn.{LINEAR[last]}", fp8(w))
        elif form != "release" and rest == "self_attn.compressor.indexer.q_b_proj.weight":
            model[name] = keep(f"{prefix}attn.indexer.wq_b", fp8(w))
        elif form != "release" and ".shared_experts." in name:
            model[name] = keep(f"{prefix}ffn.shared_experts.{SHARED[last]}", fp8(w))
        elif form != "release" and ".experts." in name:
            model[name] = np.stack([expert(form, w[e], f"{prefix}ffn.experts.{e}.", rest, keep) for e in range(len(w))])
        else:
            model[name] = w.astype(ml_dtypes.bfloat16).astype(F32)
    if form == "nvfp4":
        limit = config["swiglu_limit"]
        h = limit / (1 + np.exp(-limit)) * limit * max(1, config["routed_scaling_factor"])
        for name in [name for name in stored if name.endswith(".weight_scale_2")]:
            x = np.abs(source[f"model.layers.{name.split('.')[1]}.post_attention_layernorm.weight"]).max()
            bound = F32(h) if ".w2." in name else x * np.sqrt(F32(config["hidden_size"]))
            stored[name.replace("weight_scale_2", "input_scale")] = np.array(global_scale(bound), F32)
    return model, stored


def expert(form, w, prefix, rest, keep):
    top = global_scale(np.abs(w).max())
    make = mxfp4 if form == "release-fp8-fp4" else lambda part: nvfp4(part, top)
    if "down" in rest:
        return keep(prefix + "w2", make(w))
    half = len(w) // 2
    return np.concatenate([keep(prefix + "w1", make(w[:half])), keep(prefix + "w3", make(w[half:]))])


def logits(reference, model, ids):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        shutil.copyfile(TINY / "config.json", folder / "config.json")
        write(folder / "model.safetensors", model)
        (folder / "ids.json").write_text(json.dumps(ids))
        subprocess.run([sys.executable, reference, folder, folder / "ids.json", "0", folder / "out.npy"], check=True)
        return np.load(folder / "out.npy")


def main():
    np.seterr(all="ignore")
    write(HERE / "blocks.safetensors", block_tensors(np.random.default_rng(20261130)))
    source, config = read(TINY / "model.safetensors"), json.loads((TINY / "config.json").read_text())
    ids = read(TINY / "io.safetensors")["input_ids"][:160].astype(np.int32)
    rows = np.array([0, 1, 5, 31, 40, 66, 70, 100, 127, 128, 140, 158, 159], np.int32)
    out, digests = {"input_ids": ids, "rows": rows}, {}
    for form in ("release", "release-fp8-fp4", "nvfp4"):
        model, stored = rounded(form, source, config)
        out[form] = logits(sys.argv[1], model, ids.tolist())[rows].astype(F32)
        digests[form] = {name: hashlib.sha256(np.ascontiguousarray(tensor).tobytes()).hexdigest()[:16]
                         for name, tensor in sorted(stored.items())}
    write(HERE / "logits.safetensors", out)
    (HERE / "digests.json").write_text(json.dumps(digests, indent=0) + "\n")


main()
