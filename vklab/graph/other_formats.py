"""Formats of files that are given in place of another: each by its first bytes, with what reads it.

Imported only after a failure. Visited by lab 09.
"""

from __future__ import annotations

from typing import Any

from vklab.errors import ModelError

START_BYTES = 64
GGUF, ONNX = "a GGUF file", "an ONNX model, as it seems"
# Offset and bytes, the name of the format, and what to do with a file of it.
_FORMATS = (
    (0, b"GGUF", GGUF, "run `vklab generate FILE` or `vklab chat FILE`; in Python "
     "vklab.llm.load(path); `vklab gguf FILE -o NAME.onnx` converts it to ONNX"),
    (0, b"\x93VKLAB", "a model that `vklab compile` wrote", "run `vklab run FILE`"),
    (0, b"version https://git-lfs", "a pointer of Git LFS, not the file", "run git lfs pull"),
    (0, b"PK\x03\x04", "a zip archive, as PyTorch and Core ML write", "a module of PyTorch becomes "
     "ONNX by torch.onnx.export, or run it with vklab.from_torch"),
    (0, b"\x89HDF", "an HDF5 file, as Keras writes", "convert it with tf2onnx"),
    (4, b"TFL3", "a file of TensorFlow Lite", "convert it with tf2onnx"),
    (8, b'{"', "a SafeTensors file", "weights without a graph: `vklab gguf FOLDER -o NAME.gguf` "
     "converts the folder of a language model"),
    (0, b"<", "text such as HTML or XML", "download the model again"),
    (0, b"\x08", ONNX, "run `vklab run FILE`; in Python vklab.load(path)"),
)  # fmt: skip


def hint(start: bytes, wanted: str) -> str:
    """Return what a file seems to be, and what to do with it; "" for an unknown format.

    `start` are its first START_BYTES bytes, `wanted` is the format that was expected.
    """
    for at, magic, kind, advice in _FORMATS:
        if start[at : at + len(magic)] == magic and kind != wanted:
            return f": it is {kind}; {advice}"
    return ""


def no_onnx(label: str, model: Any, problem: str) -> ModelError:
    """Return the error for a file or bytes that hold no ONNX model.

    Args:
        label: the file or bytes, for the message.
        model: the bytes or the first of them, or a ModelProto.
        problem: what the reader of ONNX has found.
    """
    start = model[:START_BYTES] if isinstance(model, bytes) else b""
    known = hint(start, ONNX)
    return ModelError(f"{label}: no ONNX model{known}" if known else f"{label}: {problem}")
