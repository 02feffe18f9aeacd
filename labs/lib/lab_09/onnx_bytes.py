"""Small ONNX files, made field by field: varints, and the ways to store a weight.

Visited by lab 09.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

__all__ = ["damaged", "field_bytes", "model_bytes", "parsed", "stored", "stored_model", "varint"]

HEAD = '<ir_version: 10, opset_import: ["" : 18]>\n'
DTYPES = ("float32", "float64", "int32", "int64", "uint8", "float16")


def varint(number: int) -> bytes:
    """Return a number of at most 64 bits as a varint; a negative one as two's complement."""
    number, made = number & (1 << 64) - 1, bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def field_bytes(number: int, kind: int, value: Any) -> bytes:
    """Return one field of a message.

    Args:
        number: the field number.
        kind: the wire type.
        value: a number for wire type 0; else bytes.
    """
    body = varint(value) if kind == 0 else value
    return varint(number << 3 | kind) + (varint(len(body)) if kind == 2 else b"") + body


def parsed(text: str) -> onnx.ModelProto:
    """Return the model of a text in ONNX's own form."""
    return parser.parse_model(HEAD + text)


def stored(name: str, array: np.ndarray, how: str, offset: int | None = 0) -> TensorProto:
    """Return an initializer that is stored as `how` says.

    Args:
        name: its name.
        array: its elements.
        how: raw, typed, external, or "no length" for external data without that entry.
        offset: place of external data in weights.bin; None leaves the entry out.
    """
    tensor: TensorProto = numpy_helper.from_array(array, name)
    if how == "typed":
        return helper.make_tensor(name, tensor.data_type, array.shape, array.ravel().tolist())
    if how == "raw":
        return tensor
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entries = {"location": "weights.bin", "offset": offset, "length": array.nbytes}
    if how == "no length":
        entries["length"] = None
    for key, value in entries.items():
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    return tensor


def model_bytes(tensors: Iterable[TensorProto], doc: str) -> bytes:
    """Return the file of a model with these initializers and a comment."""
    made = parsed("g (float[1] x) => (float[1] y) { y = Relu(x) }")
    made.model_version, made.domain, made.graph.doc_string = 300, "a.b", doc
    made.graph.initializer.extend(tensors)
    return bytes(made.SerializeToString())


def stored_model(
    random: np.random.Generator, hows: Iterable[str]
) -> tuple[dict[str, bytes], list[tuple[str, str, np.ndarray, int]]]:
    """Return the files of a small model, and for each weight its name, form, array and place."""
    tensors, content, listed = [], bytes(random.integers(0, 256, 240, np.uint8)), []
    for number, how in enumerate(hows):
        name = f"w{random.integers(100, 999)}{number}"
        dtype = str(random.choice(DTYPES[:5] if how == "typed" else DTYPES))
        shape = tuple(random.integers(1, 4, int(random.integers(1, 4))).tolist())
        # Zeros: these bytes are in many places, so a search for them finds the wrong one.
        array = np.zeros(shape, dtype)
        offset = None if how == "no offset" else len(content)
        tensors.append(stored(name, array, "external" if how == "no offset" else how, offset))
        if how in ("external", "no length"):
            content += array.tobytes() + bytes(int(random.integers(0, 9)))
        listed.append((name, how, array, offset or 0))
    return {"model.onnx": model_bytes(tensors, "w1" * 9), "weights.bin": content}, listed


def damaged(random: np.random.Generator) -> Iterator[tuple[str, str, dict[str, bytes]]]:
    """Yield files that a reader must refuse, and some that it must accept: words, name, files.

    The paths of the files count from the model's folder; "../weights.bin" lies outside of it.
    """
    files, listed = stored_model(random, ("raw", "external"))
    (name, _, array, _), (other, _, outer, offset) = listed
    yield f"{name} (raw)", name, files
    yield "a name that is not there", "nobody", files
    for how in ("raw", "external"):
        for shape in ((2, 0, 3), ()):
            tensor = stored("weight", np.zeros(shape, np.float32), how)
            yield (
                f"{how} data of shape {shape}",
                "weight",
                {"model.onnx": model_bytes([tensor], ""), "weights.bin": bytes(8)},
            )
    for what, data in (("short", array.tobytes()[:-1]), ("long", array.tobytes() + b"\0")):
        wrong = stored(name, array, "raw")
        wrong.raw_data = data
        yield f"raw data one byte too {what}", name, {"model.onnx": model_bytes([wrong], "")}
    content = files["weights.bin"] + bytes(9)
    for what, change, size in (
        ("external data that ends with its file", {}, offset + outer.nbytes),
        ("external data that ends behind its file", {}, offset + outer.nbytes - 1),
        ("a length of 0", {"length": 0}, len(content)),
        ("a length below what the shape needs", {"length": outer.nbytes - 1}, len(content)),
        ("a length above what the shape needs", {"length": outer.nbytes + 1}, len(content)),
        ("a negative offset", {"offset": -1}, len(content)),
        ("a file that is not there", {"location": "w.bin"}, len(content)),
        ("a file in a subfolder", {"location": "sub/w.bin"}, len(content)),
        ("a folder in place of a file", {"location": "sub"}, len(content)),
        ("a file outside of the folder", {"location": "../weights.bin"}, len(content)),
        ("a path with '..' to a file outside", {"location": "sub/../../weights.bin"}, len(content)),
        ("an absolute path", {"location": "/etc/passwd", "offset": 0}, len(content)),
    ):
        tensor = stored(other, outer, "external", offset)
        for entry in tensor.external_data:
            entry.value = str(change.get(entry.key, entry.value))
        yield (
            what,
            other,
            {
                "model.onnx": model_bytes([tensor], ""),
                "weights.bin": content[:size],
                "sub/w.bin": content,
                "../weights.bin": content,
            },
        )
