"""Small models whose plans stop, as plain nodes and as ONNX models. Visited by lab 09b.

A plain node is (name, operator, inputs, outputs).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import vklab
from vklab.graph import onnx_import, shapes
from vklab.graph.graph import Graph, Node
from vklab.plan import plan as plans
from vklab.plan.options import Facts
from vklab.plan.plan import Plan
from vklab.runtime import executor, plan_cache
from vklab.runtime.plan_cache import PlanCache
from vklab.types import DeviceInfo, TensorInfo
from vklab_course.swap import swap

__all__ = ["CONSTANTS", "FACTS", "MODELS", "PlainNode", "as_model", "bytes_held", "entries", "grow",
           "later", "shape_rules", "shapes_with_key", "start"]  # fmt: skip

PlainNode = tuple[str, str, tuple[str, ...], tuple[str, ...]]
# Operators whose shape rule is special. ONNX has more (Slice, Pad, Range, ...); in this lab every
# other one needs the shapes of its inputs only.
# "value": the rule reads the value of that input; "data": the size is known after the run only;
# "shape": the result is the shape of the input, as a value.
FACTS: Mapping[str, tuple[str, int]] = {
    "Reshape": ("value", 1), "TopK": ("value", 1), "Expand": ("value", 1), "Tile": ("value", 1),
    "ConstantOfShape": ("value", 0), "NonZero": ("data", 0), "Compress": ("data", 0),
    "Unique": ("data", 0), "Shape": ("shape", 0),
}  # fmt: skip
CONSTANTS = {"first": np.array([0]), "minus_one": np.array([-1]), "one": np.array([1]),
             "w": np.eye(4, dtype=np.float32)}  # fmt: skip
ATTRIBUTES: Mapping[str, Mapping[str, Any]] = {
    "Concat": {"axis": 0},
    "ReduceMax": {"keepdims": 0},
    "Cast": {"to": TensorProto.INT64},
}
# Each model: its inputs and its nodes. Input `x` is a float32 matrix, `to` a vector of int64.
MODELS: Mapping[str, tuple[tuple[str, ...], Sequence[PlainNode]]] = {
    "flatten": (("x",), (
        ("shape", "Shape", ("x",), ("s",)), ("gather", "Gather", ("s", "first"), ("n",)),
        ("concat", "Concat", ("n", "minus_one"), ("to",)), ("relu", "Relu", ("x",), ("r",)),
        ("reshape", "Reshape", ("r", "to"), ("y",)))),
    "asked": (("x", "to"), (
        ("relu", "Relu", ("x",), ("r",)), ("reshape", "Reshape", ("r", "to"), ("a",)),
        ("neg", "Neg", ("a",), ("y",)), ("abs", "Abs", ("x",), ("z",)))),
    "top": (("x",), (
        ("max", "ReduceMax", ("x",), ("m",)), ("cast", "Cast", ("m",), ("c",)),
        ("vector", "Reshape", ("c", "one"), ("k",)), ("topk", "TopK", ("x", "k"), ("v", "i")),
        ("relu", "Relu", ("x",), ("z",)), ("neg", "Neg", ("v",), ("y",)))),
    "select": (("x",), (
        ("product", "MatMul", ("x", "w"), ("a",)), ("nonzero", "NonZero", ("a",), ("where",)),
        ("turn", "Transpose", ("where",), ("t",)), ("pick", "GatherND", ("a", "t"), ("p",)),
        ("square", "Mul", ("p", "p"), ("y",)))),
}  # fmt: skip
FACTS_OF_HOST = Facts(evaluate=executor.evaluate)  # the host computes what is known


def as_model(name: str) -> onnx.ModelProto:
    """Return one of MODELS as an ONNX model; its outputs are the values that no node reads."""
    given, nodes = MODELS[name]
    read = {value for node in nodes for value in node[2]}
    ends = [value for node in nodes for value in node[3] if value not in read]
    kinds = {"x": (TensorProto.FLOAT, ["M", "N"]), "to": (TensorProto.INT64, ["K"])}
    inputs = [helper.make_tensor_value_info(value, *kinds[value]) for value in given]
    graph = helper.make_graph(
        [
            helper.make_node(op, reads, makes, node, **ATTRIBUTES.get(op, {}))
            for node, op, reads, makes in nodes
        ],
        name,
        inputs,
        [helper.make_empty_tensor_value_info(value) for value in ends],
        [
            numpy_helper.from_array(array, value)
            for value, array in CONSTANTS.items()
            if value in read
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def later(plan: Plan) -> list[str]:
    """Return the names of the nodes that an incomplete plan leaves out."""
    return [node.name for node in plan.rest.nodes] if plan.rest else []


def start(name: str, given: Mapping[str, tuple[int, ...]], info: DeviceInfo) -> Plan:
    """Plan one of MODELS as far as the shapes of its inputs allow; no device is opened.

    Args:
        name: the model.
        given: the shape of each input.
        info: the device to plan for; as if it had 64-bit integers, so that all plan alike.
    """
    info = replace(info, features=info.features | {"shaderInt64"})
    graph = onnx_import.load_graph(as_model(name))
    inputs = {each.name: replace(each, shape=given[each.name]) for each in graph.inputs}
    return plans.make_plan(graph, inputs, [info], facts=FACTS_OF_HOST)


def grow(plan: Plan, values: Mapping[str, np.ndarray]) -> Plan:
    """Extend a plan as a run does: with dtype and shape of every value in `live`.

    Args:
        plan: an incomplete plan.
        values: an array for each of these names; the contents go along for those in `needs` only.
    """
    infos = {
        name: plan_cache.describe(name, values[name], values[name] if name in plan.needs else None)
        for name in plan.live
    }
    return plans.extend(plan, infos, FACTS_OF_HOST)


def bytes_held(graph: Graph) -> int:
    """Return the bytes of memory behind a graph's initializers; shared memory counts once."""
    held = {}
    for each in graph.initializers.values():
        array = each.constant
        while array is not None and isinstance(array.base, np.ndarray):
            array = array.base
        held[id(array)] = 0 if array is None else array.nbytes
    return sum(held.values())


def entries(model: onnx.ModelProto, feeds: Iterable[Mapping[str, np.ndarray]]) -> list[int]:
    """Return how many new entries each run adds to the real tree of plan caches."""

    def paths(cache: PlanCache | None, above: tuple[Any, ...] = ()) -> set[tuple[Any, ...]]:
        found = set()
        for key, entry in cache.entries.items() if cache else ():
            found |= {(*above, key), *paths(entry.rest, (*above, key))}
        return found

    kept: list[set[tuple[Any, ...]]] = [set()]
    with vklab.load(model) as session:
        for feed in feeds:
            session.run(dict(feed))
            kept.append(paths(session.roots[0]))
    # A cache drops its oldest entry for a new one: their number may stay the same.
    return [len(after - before) for before, after in itertools.pairwise(kept)]


def shape_rules(model: onnx.ModelProto, feeds: Iterable[Mapping[str, np.ndarray]]) -> list[int]:
    """Return how often each run asks an operator for the shape of its outputs."""
    calls: list[str] = []
    real = shapes.apply_node

    def counted(graph: Graph, node: Node, infos: Mapping[str, TensorInfo]) -> Any:
        calls.append(node.name)
        return real(graph, node, infos)

    marks = [0]
    with swap("vklab.graph.shapes.apply_node", counted), vklab.load(model) as session:
        for feed in feeds:
            session.run(dict(feed))
            marks.append(len(calls))
    return [after - before for before, after in zip(marks, marks[1:], strict=False)]


def shapes_with_key(
    key: Callable[[np.ndarray, np.ndarray], Any], feeds: Iterable[Mapping[str, np.ndarray]]
) -> list[tuple[tuple[int, ...], ...]]:
    """Run the model "asked" while another function makes the keys; return the shapes of y and z.

    Args:
        key: makes the key of a request from its arrays x and to.
        feeds: the requests.
    """

    def wrong_key(_: PlanCache, values: Mapping[str, np.ndarray]) -> Any:
        return key(values["x"], values["to"])

    seam = "vklab.runtime.plan_cache.PlanCache.key"
    with swap(seam, wrong_key), vklab.load(as_model("asked")) as session:
        ran = [session.run(dict(feed)) for feed in feeds]
    return [tuple(np.shape(made[name]) for name in ("y", "z")) for made in ran]
