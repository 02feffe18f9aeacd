"""A compiled model for tests, made without a device or a compiler, and ways to tamper with it."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from typing import Any

import onnx
import pytest

from support.fakes.fake_device import fake_device
from support.graphs.small_models import model, random_array, value
from vklab.errors import ModelError
from vklab.graph import onnx_import
from vklab.runtime.compiled import build, container
from vklab.runtime.compiled import saved as saves
from vklab.runtime.observe import given
from vklab.shader import compiler, reflection

START = struct.Struct("<8sIIQQ")


def network() -> onnx.ModelProto:
    """Return a model of two products, with an input of an open dimension and large weights."""
    make = onnx.helper.make_node
    nodes = [
        make("MatMul", ["x", "w"], ["h"], "first"),
        make("Add", ["h", "b"], ["s"], "bias"),
        make("Relu", ["s"], ["r"], "relu"),
        make("MatMul", ["r", "v"], ["y"], "second"),
    ]
    constants = {"w": random_array((64, 48)), "b": random_array((48,)), "v": random_array((48, 5))}
    return model(nodes, [value("x", ("batch", 64))], [value("y", ("batch", 5))], constants)


def fake_compile(variants: Any, progress: Any = None) -> dict[Any, compiler.Shader]:
    """Return shaders that nobody runs."""
    empty = reflection.Reflection("main", {}, {}, {}, frozenset())
    return {v: compiler.Shader(v[0], v[1], b"\3\2\43\7" * 40, empty, "compiler") for v in variants}


def saved() -> saves.Saved:
    """Return it compiled for a device that is not there, without a compiler."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "compile_all", fake_compile)
        patch.setattr(compiler, "unavailable", lambda *variant: "")
        graph = onnx_import.load_graph(network())
        each = [{"batch": 3}, {"batch": 7}]
        found, complete = build.compile_graph(graph, fake_device(), each)
    assert complete
    return found


def refused(damaged: bytes) -> str:
    """Return what is said of a file that must not load."""
    with pytest.raises(ModelError) as error:
        saves.read(damaged)
    return str(error.value)


def sealed(data: bytes, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """Return a file whose header somebody changed who knows how to seal it again."""
    header, views = container.read(data)
    first = len(data) - max(offset + size for offset, size, _ in header["blobs"])
    change(header)
    text = json.dumps(header).encode()
    body = data[first:]
    place = -(-(64 + len(text)) // 4096) * 4096
    start = START.pack(given.MAGIC, 1, 0, len(text), place + len(body))
    whole = start + hashlib.sha256(start + text).digest() + text
    return whole.ljust(place, b"\0") + body
