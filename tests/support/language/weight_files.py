"""Small files of weights for tests, GGUF and SafeTensors, and how files get damaged."""

from __future__ import annotations

import json
import struct

import numpy as np

from vklab.apps.llm.weights.stored import StoredTensor
from vklab.apps.quantization import blocks

METADATA = {
    "general.architecture": "llama", "small": 7, "negative": -3, "large": 1 << 40, "half": 0.5,
    "yes": True, "exact": np.float64(0.1), "byte": np.uint8(3),
    "words": ("one", "zw\u00f6lf", ""), "numbers": np.arange(5, dtype=np.int32),
    "none": np.zeros(0, np.int32),
}  # fmt: skip
SHAPES = {"F32": (7,), "F16": (3, 5), "BF16": (2, 3), "Q8_0": (3, 5, 64), "Q5_1": (5, 32),
          "Q4_K": (6, 512), "Q6_K": (3, 256)}  # fmt: skip


def tensors() -> list[StoredTensor]:
    """Return a tensor of each of several formats, of different ranks."""
    rng = np.random.default_rng(0)
    return [
        StoredTensor(
            f"t.{kind}",
            kind,
            shape,
            blocks.quantize(kind, rng.standard_normal(shape).astype(np.float32)),
        )
        for kind, shape in SHAPES.items()
    ]


def entry(key: str, kind: int, value: bytes) -> bytes:
    """Return an entry of GGUF's metadata: key, number of the type, and the value's bytes."""
    raw = key.encode()
    return struct.pack("<Q", len(raw)) + raw + struct.pack("<I", kind) + value


def tensor(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    """Return a tensor's description in GGUF; the shape is in the file's order, inner axis first."""
    raw = name.encode()
    return (
        struct.pack("<Q", len(raw))
        + raw
        + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        + struct.pack("<IQ", kind, offset)
    )


def gguf_bytes(
    entries: tuple[bytes, ...] = (),
    described: tuple[bytes, ...] = (),
    body: int = 256,
    version: int = 3,
    counts: tuple[int, int] | None = None,
) -> bytes:
    """Return a GGUF file that may be wrong in any part; `counts` are of tensors and of entries."""
    promised = counts or (len(described), len(entries))
    head = b"GGUF" + struct.pack("<IQQ", version, *promised) + b"".join((*entries, *described))
    return head + bytes(-len(head) % 32 + body)


def safetensors_bytes(header: object, body: int = 64) -> bytes:
    """Return a SafeTensors file; a header that is no text is written as JSON."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(body)


NUMBERS = (0, 1, 31, 255, 1 << 16, (1 << 31) - 1, (1 << 32) - 1, 1 << 40, (1 << 63) - 1,
           (1 << 64) - 1)  # fmt: skip


def damaged(data: bytes, seed: int, head: int) -> bytes:
    """Return a file with one to four wounds, most of them in its first `head` bytes.

    A wound cuts the file off, changes bytes, overwrites a number by an extreme one, removes or
    repeats some bytes.
    """
    rng = np.random.default_rng(seed)
    changed = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        end = max(1, min(head if rng.random() < 0.9 else len(changed), len(changed)))
        at, size = int(rng.integers(0, end)), int(rng.integers(1, 17))
        match rng.integers(0, 6):
            case 0:
                del changed[at:]
            case 1:
                changed[at : at + size] = rng.bytes(min(size, len(changed) - at))
            case 2:
                width = int(rng.choice([4, 8]))
                number = NUMBERS[rng.integers(len(NUMBERS))] & (1 << 8 * width) - 1
                changed[at : at + width] = number.to_bytes(width, "little")
            case 3:
                del changed[at : at + size]
            case 4:
                changed[at:at] = changed[at : at + size]
            case _:
                if changed:
                    changed[min(at, len(changed) - 1)] ^= 1 << int(rng.integers(8))
        if not changed:
            break
    return bytes(changed)
