"""Lower a graph to dispatches: each operator returns its dispatches, and their tensors get names.

Views, values that share memory, are known from here on; offsets are not. Visited by lab 09.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from vklab.base.names import internal
from vklab.graph import shapes
from vklab.graph.graph import Graph
from vklab.ops.registry import Result
from vklab.types import DeviceInfo, Dispatch, TensorInfo

# (axis, name of the int32[1] with the true size along the axis)
Trim = tuple[int, str]


@dataclass(frozen=True)
class Lowered:
    """A graph's dispatches in order, the node of each, and which values share memory.

    `roots` maps every value to the value whose memory it shares; `constants` are roots with a known
    value; `trims` cut outputs whose true size is known only after the run; `slices` maps a slice of
    a root to its first element; `layers` gives each dispatch a growing number: dispatches of one
    layer have no barrier between them and may run concurrently. Empty: one dispatch a layer.
    `kept` are the roots that must stay in memory, where fusion has found them.
    """

    dispatches: tuple[Dispatch, ...]
    nodes: tuple[str, ...]
    roots: dict[str, str]
    constants: dict[str, TensorInfo]
    trims: dict[str, tuple[Trim, ...]] = field(default_factory=dict)
    slices: dict[str, int] = field(default_factory=dict)
    layers: tuple[int, ...] = ()
    kept: frozenset[str] | None = None

    @property
    def times(self) -> Sequence[tuple[int, int]]:
        """Return for each dispatch the first and last that may run concurrently with it."""
        numbers = range(len(self.dispatches))
        if not self.layers:
            return [(number, number) for number in numbers]
        left, right = bisect.bisect_left, bisect.bisect_right
        return [(left(self.layers, at), right(self.layers, at) - 1) for at in self.layers]

    def start_bytes(self, info: TensorInfo) -> int:
        """Return the offset in bytes of a tensor in its root."""
        return self.slices.get(info.name, 0) * np.dtype(info.dtype).itemsize


def lower(graph: Graph) -> Lowered:
    """Return the dispatches of all nodes, in order, with a name for every tensor."""
    infos = {info.name: info for info in (*graph.inputs, *graph.initializers.values())}
    roots = {name: name for name in infos}
    dispatches: list[Dispatch] = []
    nodes: list[str] = []
    trims: dict[str, tuple[Trim, ...]] = {}
    for node in graph.nodes:
        result, outputs = shapes.apply_node(graph, node, infos)
        assert isinstance(result, Result), f"{node} should have been expanded"
        used = {id(old): new for old, new in zip(result.outputs, outputs, strict=False) if new.name}
        renamed = dict(used)
        for number, extra in enumerate(result.outputs):
            if id(extra) not in used:
                renamed[id(extra)] = replace(extra, name=internal(node.name, f"unused{number}"))
        for number, scratch in enumerate(result.scratch):
            renamed[id(scratch)] = replace(scratch, name=internal(node.name, f"scratch{number}"))
        # Tables are numbers that a kernel reads from a buffer, such as the strides of many axes.
        tables = {id(i): i for d in result.dispatches for _, i in d.reads if not i.name}
        for number, info in enumerate(tables.values()):
            renamed.setdefault(id(info), replace(info, name=internal(node.name, f"table{number}")))
        infos |= {info.name: info for info in renamed.values()}
        roots |= {info.name: info.name for info in renamed.values()}
        for old, name in zip(result.inputs, node.inputs, strict=False):
            if old is not None:
                renamed.setdefault(id(old), infos[name])
        for written, read in result.views:
            roots[renamed[id(result.outputs[written])].name] = roots[node.inputs[read]]
        for number, axis, count in result.trims:
            if number < len(outputs):
                name = outputs[number].name
                trims[name] = (*trims.get(name, ()), (axis, renamed[id(count)].name))
        for dispatch in needed(result, used.keys()):
            dispatches.append(rename(dispatch, renamed))
            nodes.append(node.name)
    constants = {name: info for name, info in infos.items() if info.constant is not None}
    return Lowered(tuple(dispatches), tuple(nodes), roots, constants, trims)


def needed(result: Result, used: Collection[int]) -> list[Dispatch]:
    """Return the dispatches of a node without those that write only unused outputs.

    Source: Aho, Lam, Sethi and Ullman, Compilers (2006), section 9.1, Dead-Code Elimination
    """
    wanted = {*used, *(id(count) for _, _, count in result.trims)}
    kept: list[Dispatch] = []
    for dispatch in reversed(result.dispatches):
        if any(id(written) in wanted for _, written in dispatch.writes):
            kept.append(dispatch)
            wanted.update(id(read) for _, read in dispatch.reads)
    return kept[::-1]


def written_bytes(dispatch: Dispatch, info: TensorInfo) -> tuple[int, int]:
    """Return the offset and the number of the bytes that a dispatch may write in a result.

    A dispatch that copies one operand of a Concat writes the bytes of that operand only.
    """
    ends: list[int] = []
    for work in dispatch.siblings or (dispatch.pointwise or dispatch.epilogue,):
        if len(dispatch.writes) > 1 or not work or not work.target or not work.count:
            return 0, info.size_bytes
        pairs = zip(work.shape, work.target.strides, strict=True)
        steps = [(size - 1) * stride for size, stride in pairs]
        ends.append(work.target.start + sum(step for step in steps if step < 0))
        ends.append(work.target.start + sum(step for step in steps if step > 0) + 1)
    width = np.dtype(info.dtype).itemsize
    return min(ends) * width, (max(ends) - min(ends)) * width


def with_exact_division(lowered: Lowered, info: DeviceInfo) -> Lowered:
    """Replace float32 division by a correctly rounded one on GPUs, where it costs no time.

    Source: IEEE 754-2019, section 5.4.1, division
    """
    if info.is_cpu:
        return lowered
    return replace(lowered, dispatches=tuple(map(_exact, lowered.dispatches)))


def _exact(dispatch: Dispatch) -> Dispatch:
    work = dispatch.pointwise
    plain, exact = "onnx::div(a, b)", "onnx::exact_div(a, b)"
    in_float32 = ("A_LOAD", "float") in dispatch.defines
    if work is None or not in_float32 or [f.text for f in work.formulas] != [plain]:
        return dispatch
    return replace(
        dispatch,
        pointwise=replace(work, formulas=(replace(work.formulas[0], text=exact),)),
        defines=tuple((n, exact if v == plain else v) for n, v in dispatch.defines),
    )


def rename(dispatch: Dispatch, renamed: dict[int, TensorInfo]) -> Dispatch:
    """Return a dispatch of other tensors; `renamed` has the new ones by the ids of the old."""
    reads, writes = (
        tuple((binding, renamed.get(id(info), info)) for binding, info in operands)
        for operands in (dispatch.reads, dispatch.writes)
    )
    work = dispatch.pointwise
    if work:
        named = (replace(o, info=renamed.get(id(o.info), o.info)) for o in work.operands)
        work = replace(work, operands=tuple(named))
    return replace(dispatch, reads=reads, writes=writes, pointwise=work)
