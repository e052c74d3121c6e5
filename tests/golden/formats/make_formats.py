#!/usr/bin/env python3
"""Writes formats.safetensors: what ml_dtypes (PyPI) makes of f32 values in bf16, FP8 E4M3 and FP4 E2M1, and the values
of all E4M3, E2M1 and E8M0 codes. The one value that ml_dtypes does not give, the smallest power of two that is not
below x, comes from numpy's frexp."""
import json
import struct

import ml_dtypes
import numpy as np

rng = np.random.default_rng(20261130)
codes = np.arange(256, dtype=np.uint8)
e4m3 = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
finite = np.sort(e4m3[np.isfinite(e4m3)].astype(np.float64))
# Every representable value, every midpoint of two neighbours, and the next f32 on each side of both.
spots = np.concatenate([finite, (finite[1:] + finite[:-1]) / 2, [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]])
spots = np.concatenate([spots, -spots]).astype(np.float32)
spots = np.concatenate([spots, np.nextafter(spots, np.float32(np.inf)), np.nextafter(spots, np.float32(-np.inf))])
wide = (rng.standard_normal(2048) * np.exp2(rng.integers(-20, 12, 2048))).astype(np.float32)
bits = rng.integers(0, 2**32, 2048, dtype=np.uint32).view(np.float32)
x = np.concatenate([spots, wide, bits[np.isfinite(bits)]]).astype(np.float32)

positive = np.abs(x[x != 0])
mantissa, exponent = np.frexp(positive.astype(np.float64))  # positive = mantissa * 2^exponent, mantissa in [0.5, 1)
ceiling = np.clip(np.where(mantissa == 0.5, exponent - 1, exponent), -126, 127)  # the contract's own floor and ceiling
with np.errstate(all="ignore"):
    tensors = {
        "x": x,
        "bf16": x.astype(ml_dtypes.bfloat16).view(np.uint16).astype(np.int32),
        "e4m3": np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8),
        "e2m1": np.clip(x, -6, 6).astype(ml_dtypes.float4_e2m1fn).view(np.uint8) & 15,
        "e4m3_values": e4m3,
        "e2m1_values": codes[:16].view(ml_dtypes.float4_e2m1fn).astype(np.float32),
        "e8m0_values": codes.view(ml_dtypes.float8_e8m0fnu).astype(np.float32),
        "positive": positive,
        "ceiling": np.exp2(ceiling.astype(np.float64)).astype(np.float32),
    }
names = {"float32": "F32", "uint8": "U8", "int32": "I32"}
header, data = {}, b""
for name, tensor in tensors.items():
    raw = np.ascontiguousarray(tensor).tobytes()
    header[name] = {"dtype": names[str(tensor.dtype)], "shape": list(tensor.shape),
                    "data_offsets": [len(data), len(data) + len(raw)]}
    data += raw
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open("formats.safetensors", "wb") as out:
    out.write(struct.pack("<Q", len(text)) + text + data)
