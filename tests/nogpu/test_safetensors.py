"""SafeTensors files: read without a copy, refused when damaged."""

from __future__ import annotations

import json

import numpy as np
import pytest

from support.language import weight_files
from support.language.weight_files import safetensors_bytes
from support.runs.tiers import is_long
from vklab.apps.llm.weights.safetensors import parse_safetensors, read_safetensors
from vklab.errors import ModelError

FILES = 10_000 if is_long() else 200


def entry(**changes):
    return {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24], **changes}


GOOD = {
    "a": entry(),
    "b": entry(dtype="BF16", shape=[4], data_offsets=[32, 40]),
    "c": entry(shape=[], data_offsets=[24, 28]),
    "__metadata__": {"format": "pt"},
}


def test_tensors_are_views_of_the_file(tmp_path):
    path = tmp_path / "model.safetensors"
    values = np.arange(16, dtype="<f4")
    data = safetensors_bytes(GOOD, 0) + values.tobytes()
    path.write_bytes(data)
    found = read_safetensors(path)
    assert found.metadata == {"format": "pt"}
    held = found.tensors["a"]
    assert held.block_type == "F32" and held.shape == (2, 3)
    assert held.data.tobytes() == values[:6].tobytes() and isinstance(held.data, np.memmap)
    assert found.tensors["b"].block_type == "BF16" and found.tensors["c"].shape == (1,)
    assert str(found) == "model.safetensors: SafeTensors, 3 tensors of 36 bytes"
    assert "BF16" in found._repr_html_()


DAMAGED = [
    (b"", "has 0 bytes and promises a header"),
    (safetensors_bytes(GOOD)[:30], "promises a header of"),
    (b"\xff" * 8 + b"{}", "promises a header of 18446744073709551615"),
    (safetensors_bytes(b"{"), "the header is no JSON"),
    (safetensors_bytes(b'{"a": 1, "a": 2}'), "a key stands twice"),
    (safetensors_bytes(b"\xff{}"), "the header is no JSON"),
    (safetensors_bytes(b"[" * 100_000), "the header is no JSON"),
    (safetensors_bytes(b'{"a": ' + b"9" * 5000 + b"}"), "the header is no JSON"),
    (safetensors_bytes([]), "no JSON object, but list"),
    (safetensors_bytes({"__metadata__": {"a": 1}}), "must hold strings only"),
    (safetensors_bytes({"a": 3}), "tensor 'a' must have dtype, shape and data_offsets, not 3"),
    (safetensors_bytes({"a": entry(dtype="I64")}), "'a' is 'I64'; kernels exist for F32, F16, BF"),
    (safetensors_bytes({"a": entry(dtype=[])}), r"'a' is \[\]; kernels exist"),
    (safetensors_bytes({"a": entry(shape=[-2, -3])}), r"has shape=\[-2, -3\], not a list of sizes"),
    (safetensors_bytes({"a": entry(shape=[True, 6])}), r"has shape=\[True, 6\]"),
    (safetensors_bytes({"a": entry(shape=[2.0, 3])}), r"has shape=\[2.0, 3\]"),
    (safetensors_bytes({"a": entry(shape=[0, 3])}), "has no elements"),
    (safetensors_bytes({"a": entry(shape=[1 << 60, 1 << 60])}), "do not fit"),
    (safetensors_bytes({"a": entry(data_offsets=[24, 0])}), "do not fit"),
    (safetensors_bytes({"a": entry(data_offsets=[48, 72])}), "of 64 do not fit"),
    (safetensors_bytes({"a": entry(data_offsets=[0])}), "do not fit"),
    (safetensors_bytes({"a": entry(), "b": entry(data_offsets=[20, 44])}), "overlap at byte 20"),
]


def test_a_damaged_file_is_refused_with_what_is_wrong():
    for data, message in DAMAGED:
        with pytest.raises(ModelError, match=message):
            parse_safetensors(data, "x.safetensors")


def test_damaged_files_are_read_or_refused():
    data = safetensors_bytes(GOOD)
    head, refused = 8 + len(json.dumps(GOOD)), 0
    for seed in range(FILES):
        try:
            parse_safetensors(weight_files.damaged(data, seed, head))
        except ModelError:
            refused += 1
    assert refused > FILES // 2
