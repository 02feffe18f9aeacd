"""Ways to damage a model: each changes a proto (and the inputs known for it) and says what it did.

An IndexError or ValueError means that the model has nothing of the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import AttributeProto, TensorProto, helper, numpy_helper

__all__ = ["MUTATORS", "flip_bytes"]

Draw = Callable[[Any], Any]
Feed = dict[str, np.ndarray]
INTEGERS = st.sampled_from(
    [0, 1, 2, 3, 7, -1, -2, -3, 255, 65536, 2**31 - 1, 2**31, 2**40, 2**60, 2**63 - 1, -(2**63)]
)
DIMS = st.sampled_from([0, 1, 2, 3, 5, 1024, 2**31, 2**60, 2**63 - 1, -1])
FLOATS = st.sampled_from([0.0, -1.0, 0.5, 2.0, 1e-45, 3e38, -3e38, np.inf, -np.inf, np.nan])
TEXTS = st.sampled_from([b"", b"x", b"NOTSET", b"SAME_UPPER", b"VALID", b"reflect", b"\xff\x00"])
DTYPES = st.one_of(st.integers(0, 24), st.sampled_from([77, -1]))
OP_TYPES = sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain})


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for item in node.attribute:
            if item.type == AttributeProto.GRAPH:
                yield from _graphs(item.g)


def _pick(draw: Draw, items: Any) -> Any:
    return items[draw(st.integers(0, len(items) - 1))]


def _graph(draw: Draw, model: onnx.ModelProto) -> onnx.GraphProto:
    return _pick(draw, list(_graphs(model.graph)))


def _node(draw: Draw, model: onnx.ModelProto) -> onnx.NodeProto:
    return _pick(draw, [node for graph in _graphs(model.graph) for node in graph.node])


def _name(draw: Draw, model: onnx.ModelProto) -> str:
    """Return the name of a value of the model, or of none."""
    names = {"", "nowhere"}
    for graph in _graphs(model.graph):
        names |= {value.name for value in (*graph.input, *graph.output, *graph.initializer)}
        names |= {name for node in graph.node for name in (*node.input, *node.output)}
    return _pick(draw, sorted(names))


def _change_number(draw: Draw, array: np.ndarray) -> None:
    number = draw(st.integers(0, array.size - 1))
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            array.reshape(-1)[number] = draw(FLOATS)
    elif array.dtype.kind in "iu":
        bounds = np.iinfo(array.dtype)
        array.reshape(-1)[number] = min(max(draw(INTEGERS), bounds.min), bounds.max)


def change_attribute(draw: Draw, model: onnx.ModelProto, fed: Feed) -> str:
    """Give an attribute another value, of its type or of another one."""
    node = _node(draw, model)
    item = _pick(draw, node.attribute)
    kinds = [st.lists(INTEGERS, max_size=9), INTEGERS, FLOATS, st.lists(FLOATS, max_size=3), TEXTS]
    same = {
        AttributeProto.INTS: 0,
        AttributeProto.INT: 1,
        AttributeProto.FLOAT: 2,
        AttributeProto.FLOATS: 3,
        AttributeProto.STRING: 4,
    }.get(item.type)
    if same == 0 and draw(st.booleans()):  # one number of many
        item.ints[draw(st.integers(0, len(item.ints) - 1))] = draw(INTEGERS)
        return f"{node.op_type}.{item.name}={list(item.ints)}"
    number = same if same is not None and draw(st.integers(0, 3)) else draw(st.integers(0, 4))
    value, name = draw(kinds[number]), item.name
    item.CopyFrom(
        helper.make_attribute(name, value, attr_type=(AttributeProto.INTS if value == [] else None))
    )
    return f"{node.op_type}.{name}={value!r}"


def add_attribute(draw: Draw, model: onnx.ModelProto, fed: Feed) -> str:
    """Add an attribute that the operator's schema has."""
    node = _node(draw, model)
    is_known = onnx.defs.has(node.op_type, domain=node.domain)
    known = onnx.defs.get_schema(node.op_type, domain=node.domain).attributes if is_known else ()
    name = _pick(draw, sorted(known) or ["unknown"])
    value = draw(st.one_of(INTEGERS, FLOATS, TEXTS, st.lists(INTEGERS, min_size=1, max_size=4)))
    node.attribute.append(helper.make_attribute(name, value))
    return f"{node.op_type}.{name}={value!r}"


def drop_attribute(draw: Draw, model: onnx.ModelProto, fed: Feed) -> str:
    """Leave an attribute out."""
    node = _node(draw, model)
    return str(node.attribute.pop(draw(st.integers(0, len(node.attribute) - 1))).name)


def change_inputs(draw: Draw, model: onnx.ModelProto, fed: Feed) -> str:
    """Rename, drop, add, or exchange inputs or outputs of a node."""
    node = _node(draw, model)
    names = draw(st.sampled_from([node.input, node.input, node.input, node.output]))
    how = draw(st.integers(0, 3))
    if how == 0:
        names[draw(st.integers(0, len(names) - 1))] = _name(draw, model)
    elif how == 1:
        names.pop(draw(st.integers(0, len(names) - 1)))
    elif how == 2:
        names.append(_name(draw, model))
    else:
        names[:] = list(reversed(names))
    return str(list(names))


def change_shape(draw: Draw, model: onnx.ModelProto, fed: Feed) -> str:
    """Change what is said of the shape of an input, an output or a value between."""
    graph = _graph(draw, model)
    value = _pick(draw, [*graph.input, *graph.input, *graph.output, *graph.value_info])
    shape = value.type.tensor_type.shape
    how = draw(st.integers(0, 4))
    if how == 0:
        shape.dim.pop(draw(st.integers(0, len(shape.dim) - 1)))
    elif how == 1:
        shape.dim.add().dim_value = draw(DIMS)
    elif how == 2:
        _pick(draw, shape.dim).dim_param = draw(st.sampled_from(["N", ""]))
    elif how == 3:
        value.type.tensor_type.ClearField("shape")
    else:
        _pick(draw, shape.dim).dim_value = draw(DIMS)
    return f"{value.name} {how}"


def change_dtype(draw: Draw, model: onnx.ModelProto, fed: Feed) -> str:
    """Give an input, an output or an initializer another element type."""
    graph = _graph(draw, model)
    value = _pick(draw, [*graph.input, *graph.output, *graph.initializer])
    dtype = draw(DTYPES)
    if isinstance(value, TensorProto):
        value.data_type = dtype
    else:
        value.type.tensor_type.elem_type = dtype
    return f"{value.name} {dtype}"


def change_versions(draw: Draw, model: onnx.ModelProto, fed: Feed) -> str:
    """Change the opset's version or domain, or the IR's version."""
    how = draw(st.integers(0, 9))
    if how == 0:
        model.ir_version = draw(st.integers(0, 20))
    elif how == 1:
        _pick(draw, model.opset_import).domain = draw(st.sampled_from(["", "com.microsoft", "?"]))
    else:
        _pick(draw, model.opset_import).version = draw(st.sampled_from([*range(28), 999, -1]))
    return str(model.opset_import)


def make_constant(draw: Draw, model: onnx.ModelProto, fed: Feed) -> str:
    """Make an input an initializer, perhaps with other numbers in it."""
    name = _pick(draw, sorted(fed))
    array = fed[name].copy()
    inputs = [value for value in model.graph.input if value.name != name]
    if array.size and draw(st.booleans()):
        _change_number(draw, array)
    model.graph.initializer.append(numpy_helper.from_array(array, name))
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    del fed[name]
    return f"{name}={array.reshape(-1)[:12].tolist()}"


def change_values(draw: Draw, model: onnx.ModelProto, fed: Feed) -> str:
    """Feed another number."""
    name = _pick(draw, sorted(fed))
    array = fed[name] = fed[name].copy()
    _change_number(draw, array)
    return f"{name}={array.reshape(-1)[:12].tolist()}"


def change_initializer(draw: Draw, model: onnx.ModelProto, fed: Feed) -> str:
    """Cut, lengthen or drop an initializer's bytes, or change its dims."""
    tensor = _pick(draw, _graph(draw, model).initializer)
    how = draw(st.integers(0, 3))
    if how == 0:
        tensor.raw_data = tensor.raw_data[: draw(st.integers(0, len(tensor.raw_data)))]
    elif how == 1:
        tensor.raw_data = flip_bytes(draw, tensor.raw_data)
    elif how == 2:
        tensor.dims.append(draw(DIMS))
    else:
        tensor.dims[draw(st.integers(0, len(tensor.dims) - 1))] = draw(DIMS)
    return f"{tensor.name} {how}"


def change_nodes(draw: Draw, model: onnx.ModelProto, fed: Feed) -> str:
    """Double, remove, or reverse nodes, or close a circle."""
    graph = _graph(draw, model)
    nodes = graph.node
    how = draw(st.integers(0, 3))
    if how == 0:
        nodes.append(_pick(draw, nodes))
    elif how == 1:
        nodes.pop(draw(st.integers(0, len(nodes) - 1)))
    elif how == 2:
        nodes[0].input[0] = nodes[-1].output[0]
    else:
        reverse = list(reversed(nodes))
        del nodes[:]
        nodes.extend(reverse)
    return str(how)


def change_operator(draw: Draw, model: onnx.ModelProto, fed: Feed) -> str:
    """Put another operator in the place of one."""
    node = _node(draw, model)
    if draw(st.integers(0, 9)) == 0:
        node.domain = draw(st.sampled_from(["", "com.microsoft", "nobody", "ai.onnx.ml"]))
    else:
        node.op_type = draw(st.sampled_from(OP_TYPES))
    return f"{node.domain}.{node.op_type}"


def change_outputs(draw: Draw, model: onnx.ModelProto, fed: Feed) -> str:
    """Double, drop or add an output of a graph or a body, or drop an input of one."""
    graph = _graph(draw, model)
    how = draw(st.integers(0, 3))
    if how == 0:
        graph.output.append(_pick(draw, graph.output))
    elif how == 1:
        graph.output.pop()
    elif how == 2:
        graph.output.append(onnx.ValueInfoProto(name=_name(draw, model)))
    else:
        graph.input.pop(draw(st.integers(0, len(graph.input) - 1)))
    return f"{how} of {graph.name}"


def flip_bytes(draw: Draw, data: bytes) -> bytes:
    """Return bytes some of which are changed."""
    damaged = bytearray(data)
    for _ in range(draw(st.integers(1, 4)) if damaged else 0):
        damaged[draw(st.integers(0, len(damaged) - 1))] ^= draw(st.integers(1, 255))
    return bytes(damaged)


MUTATORS = (
    change_attribute, change_attribute, change_attribute, add_attribute, drop_attribute,
    change_inputs, change_inputs, change_shape, change_shape, change_dtype, change_versions,
    make_constant, make_constant, make_constant, change_values, change_initializer, change_nodes,
    change_operator, change_outputs,
)  # fmt: skip
