"""Compiled models that are damaged, newer or hostile: each is refused, nothing stays behind."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.models.compiled_models import START, refused, saved, sealed
from vklab.errors import ModelError
from vklab.runtime.compiled import container
from vklab.runtime.compiled import saved as saves
from vklab.runtime.observe import given


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    target = tmp_path_factory.mktemp("compiled") / "net.vklab"
    saves.write(target, saved())
    return target.read_bytes()


def test_every_bit_of_start_and_header_counts(data):
    _, _, _, length, _ = START.unpack_from(data)
    picks = random.Random(5)
    places = [*range(START.size + 32), *picks.sample(range(64, 64 + length), 150)]
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= 1 << picks.randrange(8)
        refused(bytes(damaged))


def test_every_bit_of_a_blob_counts(data):
    header, views = container.read(data)
    picks = random.Random(6)
    body = len(data) - max(offset + size for offset, size, _ in header["blobs"])
    for offset, size, _ in header["blobs"]:
        for _ in range(4 if size else 0):
            damaged = bytearray(data)
            damaged[body + offset + picks.randrange(size)] ^= 1 << picks.randrange(8)
            assert "SHA-256" in refused(bytes(damaged))


@pytest.mark.parametrize("share", [0, 1, 7, 8, 30, 63, 64, 100, -4096, -1])
def test_a_file_that_is_cut_off_says_so(data, share):
    cut = data[:share]
    assert "cut off" in refused(cut) if len(cut) >= 8 else not given.is_compiled(cut)
    refused(data + b"x")


def test_a_newer_format_says_so(data):
    damaged = data[:8] + struct.pack("<I", container.FORMAT + 1) + data[12:]
    assert "written by a newer vklab: format 2, this one reads 1 to 1" in refused(damaged)


def test_a_suffix_without_a_compiled_model(tmp_path):
    wrong = tmp_path / "x.vklab"
    with pytest.raises(FileNotFoundError):
        container.read(wrong)
    wrong.write_bytes(b"\x08\x09onnx" * 30)
    assert given.is_compiled(wrong)
    with pytest.raises(ModelError, match="no compiled model"):
        saves.read(wrong)


def deep(levels: int) -> Any:
    nested: Any = 1
    for _ in range(levels):
        nested = [nested]
    return nested


def _blob(number: int, entry: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda header: header["blobs"].__setitem__(number, entry)


HOSTILE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "offset outside": _blob(0, [1 << 60, 10, ""]),
    "size outside": _blob(0, [0, 1 << 62, ""]),
    "negative offset": _blob(0, [-5, 10, ""]),
    "negative size": _blob(0, [0, -10, ""]),
    "no numbers": _blob(0, ["a", None, ""]),
    "no blobs": lambda header: header.pop("blobs"),
    "no model": lambda header: header.pop("model"),
    "no plans": lambda header: header.pop("plans"),
    "deep": lambda header: header["model"]["objects"].append([0, deep(900)]),
    "root out of range": lambda header: header["model"].update(root={"": 10**9}),
    "root of another class": lambda header: header["model"].update(root={"": 0}),
    "negative object": lambda header: header["model"].update(root={"": -1}),
    "later object": lambda header: header["model"]["objects"][0].__setitem__(1, {"": 5}),
    "unknown kind": lambda header: header["model"].update(root={"eval": "1"}),
    "two kinds": lambda header: header["model"].update(root={"": 0, "map": []}),
    "unknown class": lambda header: header["model"]["classes"].update({"os.system": []}),
    "class out of range": lambda header: header["model"]["objects"][0].__setitem__(0, 99),
    "negative class": lambda header: header["model"]["objects"][0].__setitem__(0, -1),
    "fields too few": lambda header: header["model"]["objects"][0].pop(),
    "objects are a number": lambda header: header["model"].update(objects=7),
    "array of objects": lambda header: header["model"].update(root={"array": [0, "object", [1]]}),
    "array too large": lambda header: header["model"].update(
        root={"array": [0, "float32", [1 << 40, 1 << 40]]}),
    "array below zero": lambda header: header["model"].update(
        root={"array": [0, "int8", [-1, -192]]}),
    "stages that are not there": lambda header: [
        row.__setitem__(4, 55) for row in header["plans"]["objects"]
        if list(header["plans"]["classes"])[row[0]].endswith("SavedPart")],
}  # fmt: skip


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_header_is_refused(data, change):
    assert sealed(data, lambda header: None)[:8] == data[:8] and saves.read(
        sealed(data, lambda header: None)
    )
    refused(sealed(data, change))


def _mutate(picks: random.Random, node: Any) -> None:
    """Change one thing somewhere in a JSON value."""
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = picks.choice(keys) if keys else None
        if key is None:
            return
        if isinstance(node[key], (dict, list)) and node[key] and picks.random() < 0.9:
            node = node[key]
            continue
        node[key] = picks.choice(
            [
                None,
                -1,
                0,
                1,
                2**31,
                2**70,
                0.5,
                "",
                "x",
                "float32",
                [],
                {},
                [1, 2],
                {"": 3},
                {"map": 4},
                {"list": "ab"},
                {"array": [0, "float32", [1]]},
                {"dtype": "O"},
                True,
            ]
        )
        return


@pytest.mark.full
def test_sealed_mutations_are_read_or_refused(data):
    picks = random.Random(7)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(150):
        part = picks.choice(["model", "plans"])
        damaged = sealed(data, lambda header, part=part: _mutate(picks, header[part]))
        try:
            saves.read(damaged)
            outcomes["read"] += 1
        except ModelError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 10, outcomes


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="counts mappings in /proc")
def test_what_is_refused_leaves_no_mapping_and_no_handle(data, tmp_path):
    wrong = tmp_path / "wrong.vklab"
    wrong.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(ModelError):
            saves.read(wrong)
    assert len(os.listdir("/proc/self/fd")) == before
    assert str(wrong) not in Path("/proc/self/maps").read_text()
