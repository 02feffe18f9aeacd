"""Reference of a session: the same model in ONNX Runtime on the CPU, outputs or every node.

Comparing every node locates the first one that differs, and the first one that overflows float16
and should stay in float32.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import weakref
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from vklab import settings
from vklab.base.worker import Failure
from vklab.errors import CheckError, ModelError, SetupError
from vklab.graph import onnx_import
from vklab.graph.graph import Graph, Node
from vklab.runtime import host
from vklab.runtime.many import device_options
from vklab.runtime.observe import compare, given
from vklab.runtime.observe.compare import Comparison
from vklab.runtime.on_cpu import cpu_session
from vklab.runtime.on_cpu.reference_process import ProcessModel
from vklab.runtime.plan_cache import PlanCache

OVERRIDING_IR = 4  # in older models ONNX Runtime takes all initializers as constants
SHOWN_INPUTS = 4
LARGEST = float(np.finfo(np.float16).max)
Outputs = dict[str, np.ndarray]
_references: weakref.WeakKeyDictionary[Any, SessionReference] = weakref.WeakKeyDictionary()


def outputs(session: Any, *inputs: Any) -> Outputs:
    """Return the outputs that ONNX Runtime computes on the CPU for the same inputs."""
    return _of(session).outputs(session.arrays(inputs))


def check(session: Any, *inputs: Any, nodes: bool = False) -> Comparison:
    """Run the model, and compare every output with ONNX Runtime on the CPU.

    If values are stored in float16, errors up to `compare.HALF` pass. Replicas are compared one
    after the other, up to the first that differs.

    Args:
        session: the session.
        inputs: the inputs as in `run`.
        nodes: True to compare the outputs of every node, and name the first that differs.
    """
    if len(inputs) > 1 and isinstance(inputs[0], Mapping):
        nodes, inputs = bool(inputs[-1]), inputs[:1]  # `nodes` by its position
    values = session.arrays(inputs)
    for replica in range(len(session.roots)):
        comparison = _compare(session, values, replica, nodes)
        if not comparison.passed:
            break
    return comparison


def require_equal(
    session: Any, inputs: Mapping[str, Any], replica: int, made: Mapping[str, Any]
) -> None:
    """Raise CheckError if outputs differ from the CPU's; CHECK selects outputs or nodes.

    Args:
        session: the session.
        inputs: arrays by input name.
        replica: the number of the device that ran, among the devices that have the whole model.
        made: the computed outputs by name.
    """
    comparison = _compare(session, inputs, replica, given.check_kind() == "nodes", made)
    if not comparison.passed:
        used = session.states[replica:][:1] if len(session.roots) > 1 else session.states
        names = " and ".join(state.opened.info.name for state in used)
        raise CheckError(f"{names} {comparison}")


def _of(session: Any) -> SessionReference:
    """Return the reference of a session, created at its first use."""
    if session not in _references:
        given = (*session.graph.inputs, *session.graph.initializers.values())
        is_half = bool(session.roots[0].plan.options.dtype) or any(
            info.dtype == "float16" for info in given
        )
        made = SessionReference(session.model, session.graph, is_half)
        _references[session] = made
        session.at_close.append(made.close)
    return _references[session]


def _compare(
    session: Any, inputs: Mapping[str, Any], replica: int, nodes: bool,
    made: Mapping[str, Any] | None = None,
) -> Comparison:  # fmt: skip
    reference = _of(session)
    with settings.settings(CHECK=""):
        if nodes:
            return reference.compare_nodes(_all_values(session, inputs, replica), inputs)
        if made is None:
            made = _run_on(session, replica, inputs)
    return reference.compare(made, inputs)


def _run_on(session: Any, replica: int, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run once on one of the replicas, and return the outputs by name."""
    with session.exclusive():
        root = session.roots[replica]
        made: Mapping[str, Any] = root.executor.run(root, session.arrays((inputs,)))
        return made


def _all_values(session: Any, inputs: Mapping[str, Any], replica: int) -> Mapping[str, Any]:
    """Run the model with every node's values as outputs, each node on the device of its chunk."""
    session.require_open()
    root = session.roots[replica]
    opened, options = [session.states[replica].opened], None
    if session.is_split:
        _run_on(session, replica, inputs)  # makes the plan that places the nodes
        opened = [state.opened for state in session.states]
        options = device_options.DeviceOptions(place=_devices(root))
    dtype = root.plan.options.dtype
    again = type(session)
    with again(all_values(session.graph), opened, None, dtype=dtype, options=options) as whole:
        values: Mapping[str, Any] = whole.run(inputs)
        return values


def _devices(root: PlanCache) -> dict[str, int]:
    """Return the device index of each node of a device chunk, by the node's escaped name."""
    plan = [*root.path()][-1].plan
    return {
        glob.escape(node.name): plan.devices[chunk.device].index
        for chunk in plan.chunks
        if chunk.is_on_device
        for node in chunk.graph.nodes
        if node.name
    }


def all_values(graph: Graph) -> Graph:
    """Return the graph with every node's outputs as outputs of the graph."""
    made = [name for node in graph.nodes for name in node.outputs if name]
    return replace(graph, outputs=tuple(dict.fromkeys([*made, *graph.outputs])))


class SessionReference:
    """A session's model in ONNX Runtime on the CPU, in a process of its own.

    Args:
        model: the model as it was loaded; None for a compiled one, which is exported from `graph`.
        graph: the imported graph.
        is_half: True if values are stored in float16, for the tolerances.
    """

    def __init__(self, model: onnx_import.Model | None, graph: Graph, is_half: bool) -> None:
        self.graph = graph
        self._model: onnx_import.Model | onnx.ModelProto = model or host.to_proto(graph)
        self._is_half = is_half
        self._runners = {  # by whether initializers are overridden
            overrides: ProcessModel(functools.partial(self._source, overrides), cpu_session.load)
            for overrides in (False, True)
        }

    def outputs(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outputs of the CPU by name."""
        made = _run(self._runners[self._overrides(inputs)], inputs)
        return {name: made[name] for name in self.graph.outputs if name in made}

    def _overrides(self, inputs: Mapping[str, Any]) -> bool:
        return any(info.name in inputs for info in self.graph.defaults)

    def compare(self, outputs: Mapping[str, Any], inputs: Mapping[str, Any]) -> Comparison:
        """Compare outputs with the CPU's outputs for the same inputs."""
        return compare_outputs(outputs, self.outputs(inputs), self._is_half)

    def compare_nodes(self, values: Mapping[str, Any], inputs: Mapping[str, Any]) -> Comparison:
        """Compare the outputs of every node with the CPU's, up to the first node that differs."""
        source = functools.partial(self._source, self._overrides(inputs), nodes=True)
        with contextlib.closing(ProcessModel(source, cpu_session.load)) as runner:
            expected = _run(runner, inputs)
        return compare_nodes(self.graph, values, expected, self._is_half)

    def close(self) -> None:
        """Free the model in the process of references."""
        for runner in self._runners.values():
            runner.close()

    def _source(self, overrides: bool, nodes: bool = False) -> tuple[bytes, Path | None]:
        """Return the serialized model, and the folder of its external data.

        Args:
            overrides: True if inputs override initializers.
            nodes: True to make the outputs of every node outputs of the model.
        """
        proto, folder = onnx_import.load_proto(self._model)
        if nodes:
            whole = onnx.ModelProto()
            whole.CopyFrom(onnx_import.prepare(proto))
            listed = {value.name for value in whole.graph.output}
            whole.graph.output.extend(
                onnx.ValueInfoProto(name=name)
                for name in all_values(self.graph).outputs
                if name not in listed
            )
            proto = whole
        return host.serialized(_overridable(proto) if overrides else proto), folder


def _run(runner: ProcessModel, inputs: Mapping[str, Any]) -> Outputs:
    """Run the reference; raise CheckError where there is none for these inputs.

    ONNX Runtime refuses, for example, an index outside its axis, which kernels clamp.
    """
    try:
        runner.load()
    except Failure as failure:
        if failure.ended:
            raise CheckError(f"{_ending(failure)} while it loaded the model") from failure
        if failure.status == "absent":
            raise SetupError(failure.reason, failure.install) from failure
        raise ModelError(failure.reason) from failure
    try:
        return runner.run(inputs)
    except Failure as failure:
        if failure.ended:
            raise CheckError(f"{_ending(failure)} on {_described(inputs)}") from failure
        raise CheckError(
            "ONNX Runtime refuses these inputs, so there is no reference for them: "
            f"{failure.reason}"
        ) from failure


def _ending(failure: Failure) -> str:
    what = (
        "VKLAB_REFERENCE_TIMEOUT sets the limit"
        if failure.status == "timeout"
        else ("run the model without a check")
    )
    return f"there is no reference ({what}): ONNX Runtime {failure.reason}"


def _described(inputs: Mapping[str, Any]) -> str:
    """Return name, dtype, shape and range of the first inputs."""
    parts = []
    for name, value in list(inputs.items())[:SHOWN_INPUTS]:
        text = f"{name}: a {type(value).__name__}"
        if isinstance(value, np.ndarray):
            text = f"{name}: {value.dtype}{list(value.shape)}"
            if value.size and value.dtype.kind in "biuf":
                text += f" from {value.min()} to {value.max()}"
        parts.append(text)
    return ", ".join([*parts, *["..."] * (len(inputs) > SHOWN_INPUTS)])


def _overridable(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in an IR version in which ONNX Runtime overrides initializers."""
    newer = onnx.ModelProto()
    newer.CopyFrom(proto)
    newer.ir_version = max(proto.ir_version, OVERRIDING_IR)
    return newer


def compare_outputs(
    actual: Mapping[str, Any], expected: Mapping[str, Any], is_half: bool = False
) -> Comparison:
    """Compare outputs by name.

    Args:
        actual: the computed outputs.
        expected: the reference outputs.
        is_half: True if values are stored in float16, for the tolerances.
    """
    if not is_half:
        return compare.compare(actual, expected)
    comparison = compare.compare(actual, expected, *compare.HALF)
    text = _overflow(actual, expected)
    if text:
        text += "; check(nodes=True), or --check=nodes, names the first such node"
    return replace(comparison, note=text)


def compare_nodes(
    graph: Graph, actual: Mapping[str, Any], expected: Mapping[str, Any], is_half: bool = False
) -> Comparison:
    """Compare node after node, and stop at the first node whose outputs differ.

    Args:
        graph: the graph, for the order of the nodes.
        actual: the computed values by name.
        expected: the reference values by name.
        is_half: True if values are stored in float16: then a node that overflows is reported first.
    """
    largest = relative = 0.0
    shares: list[tuple[str, float]] = []
    notes = _first_overflow(graph, actual, expected) if is_half else {}
    tolerance = compare.HALF if is_half else (compare.RTOL, compare.ATOL)
    for number, node in enumerate(graph.nodes, 1):
        names = _compared(node, expected)
        each = compare.compare(
            {n: actual[n] for n in names}, {n: expected[n] for n in names}, *tolerance
        )
        largest = max(largest, each.max_abs_error)
        relative = max(relative, each.max_rel_error)
        shares.append((node.name, max((share for _, share in each.shares), default=0.0)))
        if number in notes or (not notes and not each.passed):
            return replace(
                each, node=str(node), nodes=number, note=notes.get(number, ""), shares=tuple(shares)
            )
    return Comparison(True, largest, relative, (), nodes=len(graph.nodes), shares=tuple(shares))


def _compared(node: Node, expected: Mapping[str, Any]) -> list[str]:
    return [name for name in node.outputs if expected.get(name) is not None]


def _first_overflow(
    graph: Graph, actual: Mapping[str, Any], expected: Mapping[str, Any]
) -> dict[int, str]:
    """Return the number of the first node that overflows float16, with advice; empty if none."""
    for number, node in enumerate(graph.nodes, 1):
        text = _overflow(actual, {name: expected[name] for name in _compared(node, expected)})
        if text:
            return {
                number: f"node {node.name!r} ({node.qualified_type}): {text}; keep it in "
                f"float32 by KEEP_FLOAT32={node.name}"
            }
    return {}


def _overflow(actual: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Return how many values are infinite or NaN though the reference is finite; empty if none."""
    count = total = 0
    largest = 0.0
    made = compare.arrays({name: actual[name] for name in expected if name in actual})
    for name, truth in compare.arrays(expected).items():
        got = made.get(name)
        if got is None or got.shape != truth.shape or truth.dtype.kind != "f":
            continue
        lost = ~np.isfinite(got) & np.isfinite(truth)
        count, total = count + int(lost.sum()), total + truth.size
        largest = max(largest, float(np.abs(truth[lost]).max(initial=0.0)))
    if not count:
        return ""
    if largest > LARGEST:
        return (
            f"{count} of {total} values overflow float16 (largest reference value "
            f"{largest:g} > {LARGEST:g})"
        )
    return (
        f"{count} of {total} values are infinite or NaN in float16 (largest reference value "
        f"there {largest:g})"
    )
