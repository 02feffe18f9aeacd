"""Tell whether a device can run one node, before the node is placed there.

`partition` uses the answer to choose between device and host, `place.placement` to choose between
devices. Visited by labs 09 and 13.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from vklab.base.names import internal
from vklab.errors import ModelError, PlanError
from vklab.graph import operator_cache, shapes
from vklab.graph.graph import Graph, Node
from vklab.ops import registry
from vklab.plan import limits, lowering, storage
from vklab.plan.lowering import Lowered
from vklab.types import DeviceInfo, Dispatch, TensorInfo

# Cuts dispatches to a device's limits and chooses its faster kernels: `tuning.tune.adapt`.
Tune = Callable[..., Lowered]
# Returns why a device cannot run a node, or "": `refusal` with its last two arguments bound.
Refusal = Callable[[Graph, Node, DeviceInfo], str]


def require(
    graph: Graph,
    node: Node,
    inputs: Sequence[TensorInfo | None],
    result: registry.Result,
    info: DeviceInfo,
    kernel_refusal: Callable[[Dispatch], str],
    tune: Callable[..., Lowered] | None = None,
) -> None:
    """Raise PlanError if a device cannot run the dispatches of a node.

    Args:
        graph: the graph of the node.
        node: the node.
        inputs: its inputs; None for an omitted one.
        result: the outputs and dispatches that its operator returns for these inputs.
        info: the device.
        kernel_refusal: returns why this machine has no kernel for a dispatch, or "".
        tune: cuts dispatches and chooses faster kernels, which are then checked instead.
    """
    key = operator_cache.key(graph, node, inputs, False)  # equal layers differ in their weights
    # Switches and tools are not in the key: the cache ends with this planning.
    fits = (
        "fits",
        info.index,
        info.name,
        key,
        tuple(map(bool, node.outputs)),
        tuple(
            (each.variant, each.workgroups, each.push, each.constants) for each in result.dispatches
        ),
    )
    if key and operator_cache.get(fits):
        return
    used = {id(o): name for o, name in zip(result.outputs, node.outputs, strict=False) if name}
    dispatches = lowering.needed(result, used)
    # As in a plan, every tensor has a name: tuning tells values apart by their names.
    tensors = [old for each in dispatches for _, old in (*each.reads, *each.writes)]
    named = {
        id(old): replace(
            old, name=old.name or used.get(id(old)) or internal(node.name, f"tensor{number}")
        )
        for number, old in enumerate(tensors)
    }
    lowered = Lowered(
        tuple(lowering.rename(dispatch, named) for dispatch in dispatches),
        (node.name,) * len(dispatches),
        {info.name: info.name for info in named.values()},
        {},
    )
    try:
        adapted = storage.adapt(tune(lowered, info) if tune else lowered, info)
        limits.check(adapted.dispatches, info)
    except PlanError as error:
        raise PlanError(f"node {node.name!r} ({node.op_type}): {error}") from error
    for reason in map(kernel_refusal, adapted.dispatches):
        if reason:
            raise PlanError(f"node {node.name!r} ({node.op_type}): {reason}")
    if key:
        operator_cache.put(fits, True)


def refusal(
    graph: Graph,
    node: Node,
    info: DeviceInfo,
    kernel_refusal: Callable[[Dispatch], str] = lambda dispatch: "",
    tune: Tune | None = None,
) -> str:
    """Return why a device cannot run a node of a shaped graph; "" if it can.

    Args:
        graph: the shaped graph.
        node: one of its nodes.
        info: the device.
        kernel_refusal: as in `require`.
        tune: as in `require`.
    """
    known = graph.infos
    try:
        result, _ = shapes.apply_node(graph, node, known)
        if not isinstance(result, registry.Result):
            return f"node {node.name!r} ({node.op_type}) has no dispatches of its own"
        inputs = [known[name] if name else None for name in node.inputs]
        require(graph, node, inputs, result, info, kernel_refusal, tune)
    except (ModelError, PlanError) as error:
        return str(error)
    return ""
