"""The reference of a session: the same model in ONNX Runtime on the CPU, outputs or every node.

A wrong result at the end says little. The first node whose values differ says where to look, and
where float16 overflows, which node to keep in float32. Visited by lab 17.
"""

from __future__ import annotations

import glob
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from vklab import settings
from vklab.errors import CheckError, SetupError
from vklab.graph import onnx_import
from vklab.graph.graph import Graph, Node
from vklab.runtime import host
from vklab.runtime.observe import compare
from vklab.runtime.observe.compare import Comparison
from vklab.runtime.plan_cache import PlanCache

__all__ = ["SessionReference", "all_values", "check", "compare_nodes", "compare_outputs",
           "outputs", "require_equal"]  # fmt: skip

LARGEST = float(np.finfo(np.float16).max)
Outputs = dict[str, np.ndarray]
_references: weakref.WeakKeyDictionary[Any, SessionReference] = weakref.WeakKeyDictionary()


def outputs(session: Any, inputs: Mapping[str, np.ndarray]) -> Outputs:
    """Return what ONNX Runtime computes on the CPU for the same inputs."""
    return _of(session).outputs(inputs)


def check(session: Any, inputs: Mapping[str, np.ndarray], nodes: bool = False) -> Comparison:
    """Run, and compare every output with ONNX Runtime on the CPU.

    Where float16 is stored, errors up to `compare.HALF` pass. Of several devices that each have the
    whole model, all are compared up to the first that differs.

    Args:
        session: the session.
        inputs: arrays by input name.
        nodes: compare the outputs of every node, and name the first that differs.
    """
    for lane in range(len(session.roots)):
        comparison = _compare(session, inputs, lane, nodes)
        if not comparison.passed:
            break
    return comparison


def require_equal(
    session: Any, inputs: Mapping[str, Any], lane: int, made: Mapping[str, Any]
) -> None:
    """Raise CheckError if outputs are not the CPU's; the CHECK switch says what to compare.

    Args:
        session: the session.
        inputs: arrays by input name.
        lane: the number of the device that ran, among those that have the whole model.
        made: the outputs by name.
    """
    wanted = settings.get("CHECK")
    if wanted not in ("outputs", "nodes"):
        raise SetupError(f"VKLAB_CHECK={wanted!r} is not known; use 'outputs' or 'nodes'")
    comparison = _compare(session, inputs, lane, wanted == "nodes", made)
    if not comparison.passed:
        used = session.states[lane:][:1] if len(session.roots) > 1 else session.states
        names = " and ".join(state.opened.info.name for state in used)
        raise CheckError(f"{names} {comparison}")


def _of(session: Any) -> SessionReference:
    """Return the reference of a session, made at its first use."""
    if session not in _references:
        given = (*session.graph.inputs, *session.graph.initializers.values())
        is_half = bool(session.roots[0].plan.options.dtype) or any(
            info.dtype == "float16" for info in given)  # fmt: skip
        _references[session] = SessionReference(session.model, session.graph, is_half)
    return _references[session]


def _compare(
    session: Any, inputs: Mapping[str, Any], lane: int, nodes: bool,
    made: Mapping[str, Any] | None = None,
) -> Comparison:  # fmt: skip
    reference = _of(session)
    with settings.settings(CHECK=""):
        if nodes:
            return reference.compare_nodes(_all_values(session, inputs, lane), inputs)
        if made is None:
            made = _run_on(session, lane, inputs)
    return reference.compare(made, inputs)


def _run_on(session: Any, lane: int, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run once on one of the devices that have the whole model."""
    with session.exclusive():
        root = session.roots[lane]
        made: Mapping[str, Any] = root.executor.run(root, session.arrays((inputs,)))
        return made


def _all_values(session: Any, inputs: Mapping[str, Any], lane: int) -> Mapping[str, Any]:
    """Run once more with every node's values as outputs, each node where it ran."""
    session.require_open()
    root = session.roots[lane]
    opened, options = [session.states[lane].opened], None
    if session.is_split:
        _run_on(session, lane, inputs)  # which decides where the nodes are
        opened = [state.opened for state in session.states]
        options = session.optional_module("many.device_options").DeviceOptions(
            place=_devices(root))  # fmt: skip
    dtype = root.plan.options.dtype
    again = type(session)
    with again(all_values(session.graph), opened, None, dtype=dtype, options=options) as whole:
        values: Mapping[str, Any] = whole.run(inputs)
        return values


def _devices(root: PlanCache) -> dict[str, int]:
    """Return the index of the device of each node that ran on one."""
    plan = [*root.path()][-1].plan
    return {
        glob.escape(node.name): plan.devices[chunk.device].index
        for chunk in plan.chunks if chunk.is_on_device for node in chunk.graph.nodes if node.name
    }  # fmt: skip


def all_values(graph: Graph) -> Graph:
    """Return the graph with every value that a node makes among its outputs."""
    made = [name for node in graph.nodes for name in node.outputs if name]
    return replace(graph, outputs=tuple(dict.fromkeys([*made, *graph.outputs])))


class SessionReference:
    """A model on the CPU.

    Args:
        model: as it was loaded; None for a compiled one, whose graph is written as ONNX again.
        is_half: values are stored in float16, which decides the tolerances.
    """

    def __init__(self, model: onnx_import.Model | None, graph: Graph, is_half: bool) -> None:
        self.graph = graph
        self._model: onnx_import.Model | onnx.ModelProto = model or host.to_proto(graph)
        self._is_half = is_half
        self._runner: host.Reference | None = None

    def outputs(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outputs by name."""
        if self._runner is None:
            self._runner = host.Reference(*onnx_import.load_proto(self._model))
        return self._runner.run(inputs)

    def compare(self, outputs: Mapping[str, Any], inputs: Mapping[str, Any]) -> Comparison:
        """Compare outputs with those of the CPU."""
        return compare_outputs(outputs, self.outputs(inputs), self._is_half)

    def compare_nodes(
        self, values: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> Comparison:
        """Compare what every node makes, up to the first that differs."""
        proto, folder = onnx_import.load_proto(self._model)
        whole = onnx.ModelProto()
        whole.CopyFrom(onnx_import.prepare(proto))
        listed = {value.name for value in whole.graph.output}
        for name in all_values(self.graph).outputs:
            if name not in listed:
                whole.graph.output.append(onnx.ValueInfoProto(name=name))
        expected = host.Reference(whole, folder).run(inputs)
        return compare_nodes(self.graph, values, expected, self._is_half)


def compare_outputs(
    actual: Mapping[str, Any], expected: Mapping[str, Any], is_half: bool = False
) -> Comparison:
    """Compare outputs by name.

    Args:
        is_half: values are stored in float16, which decides the tolerances.
    """
    if not is_half:
        return compare.compare(actual, expected)
    found = compare.compare(actual, expected, *compare.HALF)
    text = _overflow(actual, expected)
    if text:
        text += "; check(nodes=True), or --check=nodes, names the node that is first"
    return replace(found, note=text)


def compare_nodes(
    graph: Graph, actual: Mapping[str, Any], expected: Mapping[str, Any], is_half: bool = False
) -> Comparison:
    """Compare node after node, and stop at the first whose outputs differ.

    Args:
        is_half: values are stored in float16; the first node that overflows it is looked for first.
    """
    largest = relative = 0.0
    notes = _first_overflow(graph, actual, expected) if is_half else {}
    tolerance = compare.HALF if is_half else (compare.RTOL, compare.ATOL)
    for number, node in enumerate(graph.nodes, 1):
        names = _compared(node, expected)
        found = compare.compare({n: actual[n] for n in names}, {n: expected[n] for n in names},
                              *tolerance)  # fmt: skip
        largest = max(largest, found.max_abs_error)
        relative = max(relative, found.max_rel_error)
        if number in notes or (not notes and not found.passed):
            return replace(found, node=str(node), nodes=number, note=notes.get(number, ""))
    return Comparison(True, largest, relative, (), nodes=len(graph.nodes))


def _compared(node: Node, expected: Mapping[str, Any]) -> list[str]:
    return [name for name in node.outputs if isinstance(expected.get(name), np.ndarray)]


def _first_overflow(
    graph: Graph, actual: Mapping[str, Any], expected: Mapping[str, Any]
) -> dict[int, str]:
    """Return the number of the first node that overflows float16, and what to do about it."""
    for number, node in enumerate(graph.nodes, 1):
        found = _overflow(actual, {name: expected[name] for name in _compared(node, expected)})
        if found:
            return {number: f"node {node.name!r} ({node.qualified_type}): {found}; keep it in "
                            f"float32 by KEEP_FLOAT32={node.name}"}  # fmt: skip
    return {}


def _overflow(actual: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Say how many values are infinite or NaN where those of the reference are finite."""
    count = total = 0
    largest = 0.0
    for name, truth in expected.items():
        got = actual.get(name)
        if got is None or got.shape != truth.shape or truth.dtype.kind != "f":
            continue
        lost = ~np.isfinite(got) & np.isfinite(truth)
        count, total = count + int(lost.sum()), total + truth.size
        largest = max(largest, float(np.abs(truth[lost]).max(initial=0.0)))
    if not count:
        return ""
    if largest > LARGEST:
        return (f"{count} of {total} values overflow float16 (largest reference value "
                f"{largest:g} > {LARGEST:g})")  # fmt: skip
    return (f"{count} of {total} values are infinite or NaN in float16 (largest reference value "
            f"there {largest:g})")  # fmt: skip
