"""Each chunk is planned by the limits of its own device, whichever device was named first."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from support.checks import plan_checks, spread_checks
from support.fakes.fake_device import fake_device
from support.graphs.small_models import model, value
from support.models import planned
from vklab.errors import PlanError
from vklab.graph import onnx_import, passes, shapes
from vklab.plan import limits
from vklab.plan import plan as plans
from vklab.plan.options import Facts
from vklab.plan.plan import Plan
from vklab.types import DeviceInfo, Dispatch

# No real device asks for so wide an alignment: memory that is planned for another has it not.
SMALL = {"maxStorageBufferRange": 1 << 20, "maxComputeWorkGroupInvocations": 256,
         "maxComputeSharedMemorySize": 8 << 10,
         "minStorageBufferOffsetAlignment": 1024}  # fmt: skip
LARGE = {"maxStorageBufferRange": 1 << 30, "maxComputeWorkGroupInvocations": 1024,
         "maxComputeSharedMemorySize": 64 << 10, "minStorageBufferOffsetAlignment": 16}  # fmt: skip


def machines(small_first: bool) -> list[DeviceInfo]:
    """Return a small and a large device, in either order."""
    pair = [SMALL, LARGE] if small_first else [LARGE, SMALL]
    return [fake_device(each, index=n, name=f"GPU {n}") for n, each in enumerate(pair)]


# Rows and columns of the products. Results of the first size are no multiple of SMALL's alignment;
# for the second, LARGE takes a tile that is too large for SMALL's shared memory.
ODD, WIDE = (190, 1000), (2000, 1024)


def spread_over(devices: list[DeviceInfo], real: list[DeviceInfo] | None = None,
                size: tuple[int, int] = ODD) -> Plan:  # fmt: skip
    """Plan products with weights of 4 MiB, by turns on one device and on the other.

    Args:
        devices: the devices, as they are named.
        real: what the devices turn out to be when all is placed.
        size: rows and columns of the products.
    """
    nodes, weights, place = [], {}, {}
    for k in range(4):
        nodes += [
            helper.make_node("MatMul", [f"v{k}", f"w{k}"], [f"m{k}"], f"m{k}"),
            helper.make_node("Softmax", [f"m{k}"], [f"s{k}"], f"s{k}"),
            helper.make_node("MatMul", [f"s{k}", f"w{k}"], [f"v{k + 1}"], f"t{k}"),
        ]
        weights[f"w{k}"] = np.ones((size[1], size[1]), np.float32)
        place |= {f"[mst]{k}": k % 2}
    source = model(nodes, [value("v0", size)], ["v4"], weights)
    graph = passes.run(shapes.infer(onnx_import.load_graph(source)))
    facts = Facts(placement=planned.place(graph, devices, pins=place))
    return plans.make_plan(
        graph, {info.name: info for info in graph.inputs}, real or devices, facts=facts
    )


def shared_bytes(dispatch: Dispatch) -> int:
    """Return the shared memory of a tiled product: a tile of each operand, with its margin."""
    constants = dispatch.constant_values
    if "TILE_M" not in constants:
        return 0
    rows_and_columns = constants["TILE_M"] + constants["TILE_N"]
    return int(4 * constants.get("TILE_K", 16) * (rows_and_columns + 8))


def broken(plan: Plan) -> list[str]:
    """Return which limits of its own device a chunk breaks."""
    found = []
    for chunk in plan.chunks:
        info = plan.devices[chunk.device]
        for dispatch in chunk.dispatches:
            if any(
                t.size_bytes > info.limit("maxStorageBufferRange")
                for _, t in dispatch.reads + dispatch.writes
            ):
                found.append("range")
            invocations = dispatch.constant_values.get("WORKGROUP", 64)
            if invocations > info.limit("maxComputeWorkGroupInvocations"):
                found.append("invocations")
            if shared_bytes(dispatch) > info.limit("maxComputeSharedMemorySize"):
                found.append("shared memory")
            if any(
                chunk.memory.slots[t.name].offset_bytes
                % info.limit("minStorageBufferOffsetAlignment")
                for _, t in dispatch.reads + dispatch.writes
            ):
                found.append("alignment")
    return found


@pytest.mark.parametrize("small_first", [True, False])
def test_each_chunk_respects_its_own_device(small_first):
    devices = machines(small_first)
    plan = spread_over(devices)
    assert [chunk.device for chunk in plan.chunks] == [0, 1, 0, 1]
    assert not broken(plan)
    counts = spread_checks.dispatch_counts(plan)
    small, large = counts.values() if small_first else reversed(counts.values())
    assert small > large  # there, what cannot be bound at once is cut
    for chunk in plan.chunks:
        limits.check(chunk.dispatches, devices[chunk.device])


def test_chunks_planned_with_the_first_device_break_limits_of_the_others(monkeypatch):
    devices = machines(small_first=False)
    sound = spread_over(devices)

    lower = plans.lower_chunk

    def first(chunk, info, *others):
        return lower(chunk, devices[0], *others)

    monkeypatch.setattr(plans, "lower_chunk", first)
    with pytest.raises(AssertionError, match="is planned for"):
        spread_over(devices)
    plan_checks.problems.clear()
    with plan_checks.unchecked("chunks are planned for the wrong device"):
        wrong, wide = spread_over(devices), spread_over(devices, size=WIDE)
    assert set(broken(wrong)) == {"range", "alignment"}
    assert set(broken(wide)) == {"range", "shared memory"}
    assert spread_checks.dispatch_counts(wrong) != spread_checks.dispatch_counts(sound)
    narrow = [devices[0], fake_device({**SMALL, "maxComputeWorkGroupInvocations": 128}, index=1)]
    with plan_checks.unchecked("chunks are planned for the wrong device"):
        assert set(broken(spread_over(devices, narrow))) >= {"invocations"}
    monkeypatch.undo()
    with pytest.raises(PlanError, match="256 invocations a workgroup, .* has 128"):
        spread_over(devices, narrow)
