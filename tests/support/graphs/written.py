"""ONNX models written as Python: `d = Sub(x, m); y = Div(d, Sqrt(Add(v, 1e-5)))`.

Numbers become float constants, tuples int64 ones, keywords attributes; names that nothing makes are
inputs, filled with random values of the shape that their first letter stands for.
"""

from __future__ import annotations

import ast
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

SHAPES: dict[str, tuple[int, ...]] = {
    "x": (2, 5, 8), "z": (2, 5, 8), "w": (8,), "b": (8,), "e": (),
    "q": (2, 4, 5, 3), "k": (2, 4, 7, 3), "v": (2, 4, 7, 6), "m": (2, 1, 5, 7), "o": (2, 1, 5, 7),
    "g": (2, 2, 7, 3), "h": (2, 2, 7, 6), "f": (2, 5, 12), "n": (2, 7, 12),
}  # fmt: skip


def write(
    text: str, outputs: Sequence[str] = ("y",), opset: int = 17, prefix: str = "",
    dtypes: Mapping[str, str] | None = None,
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:  # fmt: skip
    """Return the model that a text says, and what feeds it; an input "o" is bool."""
    writer = _Writer(prefix, dtypes or {})
    for statement in ast.parse(text.replace(";", "\n").replace("\n ", "\n")).body:
        assert isinstance(statement, ast.Assign)
        assert isinstance(statement.targets[0], ast.Name)
        writer.value(statement.value, prefix + statement.targets[0].id)
    described = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in writer.inputs.items()
    ]
    graph = helper.make_graph(
        writer.nodes,
        "written",
        described,
        [onnx.ValueInfoProto(name=prefix + name) for name in outputs],
        writer.constants,
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), writer.inputs


def together(
    models: Sequence[tuple[onnx.ModelProto, dict[str, np.ndarray]]],
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return models with different prefixes side by side in one."""
    whole, fed = onnx.ModelProto(), {}
    whole.CopyFrom(models[0][0])
    for proto, inputs in models:
        fed.update(inputs)
        if proto is not models[0][0]:
            for field in ("node", "input", "output", "initializer"):
                getattr(whole.graph, field).extend(getattr(proto.graph, field))
    return whole, fed


class _Writer:
    def __init__(self, prefix: str, dtypes: Mapping[str, str]) -> None:
        self.prefix, self.dtypes = prefix, dtypes
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: dict[str, np.ndarray] = {}
        self.count = 0

    def value(self, part: ast.expr, name: str = "") -> str:
        """Return the name of what an expression says, after writing it down."""
        if isinstance(part, ast.Name):
            return self._named(part.id)
        self.count += 1
        name = name or f"{self.prefix}{self.count}"
        if isinstance(part, ast.Call):
            assert isinstance(part.func, ast.Name)
            read = [self.value(argument) for argument in part.args]
            more: dict[str, Any] = {str(k.arg): ast.literal_eval(k.value) for k in part.keywords}
            self.nodes.append(helper.make_node(part.func.id, read, [name], name=name, **more))
            return name
        said = ast.literal_eval(part)
        kind = np.int64 if isinstance(said, tuple) else self.dtypes.get("numbers", "float32")
        self.constants.append(numpy_helper.from_array(np.asarray(said, kind), name))
        return name

    def _named(self, local: str) -> str:
        name = self.prefix + local
        if name not in self.inputs and all(name not in node.output for node in self.nodes):
            random = np.random.default_rng(zlib.crc32(local.encode()))
            array = random.standard_normal(SHAPES[local[0]]).astype("float32")
            known = array > -0.5 if local[0] == "o" else array
            self.inputs[name] = known.astype(self.dtypes.get(local, known.dtype))
        return name
