"""Small ONNX models for tests: one node, or a few, with the inputs that fit them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from vklab.shader import stock_builder

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "data"
FLOAT = TensorProto.FLOAT


def stock_variant(kernel: str) -> tuple[str, tuple[tuple[str, str], ...], str]:
    """Return the first variant of a kernel that ships: its name and defines."""
    return stock_builder.variants(ROOT / "shaders" / "ops" / f"{kernel}.slang")[0]


def random_array(shape: Sequence[int], seed: int = 0) -> np.ndarray:
    """Return standard normal float32 values."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def value(name: str, shape: Sequence[int | str | None] | None, kind: int = FLOAT) -> Any:
    """Describe a graph input or output."""
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 17,
    **more: Any,
) -> onnx.ModelProto:
    """Build a model; `outputs` may be names, whose types are left open."""
    described = [onnx.ValueInfoProto(name=o) if isinstance(o, str) else o for o in outputs]
    tensors = [numpy_helper.from_array(v, k) for k, v in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "test", list(inputs), described, tensors)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, **more)


def one_node(
    op_type: str,
    inputs: Sequence[np.ndarray | None],
    constants: Sequence[int] = (),
    opset: int = 17,
    outputs: int = 1,
    domain: str = "",
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Build a model of one node and the dict that feeds it.

    None leaves an input out; `constants` are the numbers of inputs that become initializers.
    """
    names = ["" if array is None else f"x{i}" for i, array in enumerate(inputs)]
    made = [f"y{i}" for i in range(outputs)]
    known = {names[i]: inputs[i] for i in constants}
    fed = {n: a for n, a in zip(names, inputs, strict=True) if n and n not in known}
    described = [
        value(name, array.shape, helper.np_dtype_to_tensor_dtype(array.dtype))
        for name, array in fed.items()
    ]
    node = helper.make_node(op_type, names, made, name="node", domain=domain, **attributes)
    proto = model([node], described, made, known, opset)
    if domain:
        proto.opset_import.append(helper.make_opsetid(domain, 1))
    return proto, fed


def relu(shape: Sequence[int | str] = (2, 3)) -> onnx.ModelProto:
    """Build y = Relu(x)."""
    node = helper.make_node("Relu", ["x"], ["y"], name="relu")
    return model([node], [value("x", shape)], [value("y", shape)])
