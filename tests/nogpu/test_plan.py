"""Plans: what they say, where they put things, and what a device cannot hold."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from onnx import helper

from support.checks.hazards import hazards, superfluous, work_of
from support.fakes.fake_device import DISCRETE, UNIFIED, fake_device
from support.graphs.small_models import ROOT, model, random_array, relu, value
from support.models.planned import NAMES, plan_of, proto_of
from vklab import settings
from vklab.errors import PlanError
from vklab.plan import limits

SWITCHES = [{}, {"DISABLE_ALIASING": 1}, {"DISABLE_DIRECT_IO": 1}, {"DISABLE_VARIANTS": 1},
            {"DISABLE_FUSION": 1}]  # fmt: skip
# DESIGN, section 7.
KEYS = {"nodes", "dispatches", "barriers", "chunks", "transfers", "arena_bytes",
        "lower_bound_bytes", "weights_bytes", "host_nodes", "placement"}  # fmt: skip


@pytest.mark.parametrize("switches", SWITCHES, ids=lambda s: "".join(s) or "plain")
@pytest.mark.parametrize("types", [UNIFIED, DISCRETE], ids=["unified", "discrete"])
@pytest.mark.parametrize("name", NAMES)
def test_real_plans_have_no_hazard_and_no_superfluous_barrier(name, types, switches):
    with settings.settings(**switches):
        plan = plan_of(proto_of(name), fake_device(memory_types=types))
    work, barriers, host = work_of(plan.chunks[0])
    assert hazards(work, barriers, host) == []
    assert superfluous(work, barriers, host) == []


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "apart"])
@pytest.mark.parametrize("name", NAMES)
def test_dropping_any_barrier_of_a_real_plan_is_noticed(name, fused):
    with settings.settings(DISABLE_FUSION=not fused):
        work, barriers, host = work_of(plan_of(proto_of(name)).chunks[0])
    assert len(barriers) >= (3 if fused else 5)
    for barrier in barriers:
        assert hazards(work, [b for b in barriers if b is not barrier], host)


@pytest.mark.parametrize("name", NAMES)
def test_the_summary_has_the_keys_that_others_rely_on(name):
    plan = plan_of(proto_of(name))
    summary = json.loads(json.dumps(plan.summary()))
    assert set(summary) >= KEYS
    assert summary["host_nodes"] == [] and summary["chunks"] == 1
    assert summary["dispatches"] == len(plan.dispatches) > 0
    assert summary["lower_bound_bytes"] <= summary["arena_bytes"]
    assert set(summary["placement"]) == {node.name for node in plan.graph.nodes}
    assert summary["arena_bytes"] <= 1.05 * max(summary["lower_bound_bytes"], 1)


@pytest.mark.parametrize("name", NAMES)
def test_slots_lie_in_their_arenas_and_fit_their_values(name):
    plan = plan_of(proto_of(name))
    slots, arenas = plan.memory.slots, plan.memory.arenas
    for dispatch in plan.dispatches:
        for _, info in dispatch.reads + dispatch.writes:
            slot = slots[info.name]
            assert info.size_bytes <= slot.size_bytes
            assert slot.offset_bytes + slot.size_bytes <= arenas[slot.arena]
            assert slot.offset_bytes % 256 == 0


def test_a_plan_draws_itself_the_same_every_time():
    first, second = (plan_of(proto_of("digits_cnn")) for _ in range(2))
    assert str(first) == str(second) and first._repr_html_() == second._repr_html_()
    assert repr(first) == str(first) and repr(first.memory) == str(first.memory)
    assert re.match(r"plan for Fake GPU: \d+ nodes, \d+ dispatches, \d+ barriers", str(first))
    drawing = ElementTree.fromstring(f"<div>{first._repr_html_()}</div>")
    assert len(list(drawing.iter("tr"))) == len(first.rows()) + 1
    assert len(first.rows()) == len(first.chunks[0].steps)


def test_aliasing_saves_memory():
    proto = proto_of("conv_few")
    with settings.settings(DISABLE_ALIASING=True):
        plain = plan_of(proto).memory.arena_bytes
    assert plan_of(proto).memory.arena_bytes < plain


def test_where_inputs_and_outputs_are_staged():
    big = relu((1 << 20,))
    assert plan_of(big, fake_device(memory_types=UNIFIED)).summary()["transfers"] == 0
    assert plan_of(big, fake_device(memory_types=DISCRETE)).summary()["transfers"] == 2
    assert plan_of(relu((16,)), fake_device(memory_types=DISCRETE)).summary()["transfers"] == 0
    with settings.settings(DISABLE_DIRECT_IO=True):
        assert plan_of(relu((16,))).summary()["transfers"] == 2


def product(m: int, k: int, n: int) -> onnx.ModelProto:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    return model([node], [value("x", (m, k))], ["y"], {"w": random_array((k, n))})


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "apart"])
def test_the_benchmark_models_use_the_kernels_meant_for_them(fused):
    gpu, cpu = fake_device(), fake_device(type="cpu")
    sizes = ((1, 4096, 10), (8, 64, 8), (512,) * 3, (2048, 64, 2048))
    with settings.settings(DISABLE_FUSION=not fused):
        plans = [plan_of(proto_of(name), info) for name in NAMES for info in (gpu, cpu)]
        plans += [plan_of(product(*each), gpu) for each in sizes]
    used = {dispatch.kernel for plan in plans for dispatch in plan.dispatches}
    # Every Relu and Add of these models follows a product, a convolution or a pool.
    assert used == {
        "conv",
        "conv_last_tiled",
        "conv_packed",
        "matmul",
        "matmul_tiled",
        "matvec",
        "pool",
        "softmax",
        "sum_splits",
        "winograd_input",
        "winograd_output",
        *(("conv_pool",) if fused else ("conv_tiled", "elementwise")),
    }


@pytest.mark.parametrize(
    "path", sorted((ROOT / "shaders" / "ops").glob("*.slang")), ids=lambda path: path.stem
)
def test_every_kernel_file_is_named_where_operators_are_written(path):
    folders = [ROOT / "vklab" / "ops", ROOT / "vklab" / "plan"]
    texts = [file.read_text("utf-8") for folder in folders for file in folder.rglob("*.py")]
    # plan/tuning appends these.
    stem = path.stem.removesuffix("_tiled").removesuffix("_registers")
    assert any(f'"{stem}"' in text for text in texts)


@pytest.mark.parametrize("sizes", [(1, 4096, 10), (40, 70, 90), (512,) * 3, (3, 10007, 5)])
@pytest.mark.parametrize("driver", ["fake", "llvmpipe"])
def test_variants_write_the_same_tensor_and_count_the_same_work(sizes, driver):
    infos = [fake_device(type=kind, driver=driver) for kind in ("cpu", "discrete")]
    for info in infos:
        plan = plan_of(product(*sizes), info)
        last = plan.dispatches[-1]
        assert [(i.name, i.dims) for _, i in last.writes] == [("y", (sizes[0], sizes[2]))]
        assert sum(d.flops for d in plan.dispatches) >= 2 * sizes[0] * sizes[1] * sizes[2]
        assert hazards(*work_of(plan.chunks[0])) == []
    with settings.settings(DISABLE_VARIANTS=True):
        plain = [plan_of(product(*sizes), info) for info in infos]
    assert {d.kernel for plan in plain for d in plan.dispatches} <= {"matmul", "sum_splits"}


# ---------------------------------------------------------------- what a device cannot hold


def test_a_tensor_beyond_the_largest_storage_buffer():
    count = (128 << 20) // 4 + 1
    node = helper.make_node("Softmax", ["x"], ["y"])
    proto = model([node], [value("x", (1, count))], ["y"])
    with pytest.raises(
        PlanError,
        match=r"x: float32\[1,33554433\].*134217732 bytes, Fake GPU.*134"
        r"217728 \(maxStorageBufferRange\)",
    ):
        plan_of(proto)
    assert plan_of(proto, fake_device({"maxStorageBufferRange": 1 << 30})).dispatches
    first, second = plan_of(relu((count,))).dispatches  # this can be cut
    assert first.writes[0][1].count + second.writes[0][1].count == count


def test_a_grid_beyond_the_device():
    info = fake_device({"maxComputeWorkGroupCount": (2, 2, 2)})
    assert plan_of(relu((512,)), info)
    with pytest.raises(PlanError, match=r"\(3, 1, 1\) workgroups, Fake GPU launches \(2, 2, 2\)"):
        plan_of(relu((513,)), info)


def test_a_workgroup_beyond_the_device():
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    proto = model([node], [value("x", (40, 5))], ["y"], {"w": random_array((5, 40))})
    with pytest.raises(PlanError, match=r"\d+ invocations a workgroup, Fake GPU has 15"):
        plan_of(proto, fake_device({"maxComputeWorkGroupInvocations": 15}))


def test_activations_are_spread_where_one_buffer_cannot_hold_them():
    names = [f"v{i}" for i in range(5)]
    nodes = [
        helper.make_node("LeakyRelu", ["x"], [name], alpha=i / 8) for i, name in enumerate(names)
    ]
    nodes += [helper.make_node("Sum", names, ["y"])]
    proto = model(nodes, [value("x", (256,))], ["y"])
    info = fake_device({"maxMemoryAllocationSize": 2048})
    assert plan_of(proto, info).memory.arena_bytes == 0  # one dispatch keeps all to itself
    with settings.settings(DISABLE_FUSION=True):
        plan = plan_of(proto, info)
    arenas = {n: size for n, size in plan.memory.arenas.items() if n.startswith("activations")}
    assert len(arenas) > 1 and max(arenas.values()) <= 2048 == limits.arena_limit_bytes(info)
    assert plan.memory.arena_bytes == sum(arenas.values()) >= plan.memory.lower_bound_bytes
    assert hazards(*work_of(plan.chunks[0])) == []
    small = "v0 takes 1024 bytes, a buffer of Fake GPU at most 512"
    with settings.settings(DISABLE_FUSION=True), pytest.raises(PlanError, match=small):
        plan_of(proto, fake_device({"maxMemoryAllocationSize": 512}))


# ---------------------------------------------------------------- graphs of unusual form


def test_views_share_the_memory_of_what_they_show(monkeypatch):
    monkeypatch.setenv("VKLAB_DISABLE_PASSES", "all")  # they would make one view of the two
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Reshape", ["a", "shape"], ["b"]),
        helper.make_node("Flatten", ["b"], ["c"]),
        helper.make_node("Neg", ["c"], ["y"]),
    ]
    proto = model(nodes, [value("x", (2, 6))], ["y"], {"shape": np.int64([3, 4])})
    assert len(plan_of(proto).dispatches) == 1  # what works element by element sees through them
    with settings.settings(DISABLE_FUSION=True):
        plan = plan_of(proto)
    slots = plan.memory.slots
    assert slots["a"] == slots["b"] == slots["c"] and len(plan.dispatches) == 2


def test_an_input_that_is_read_late_is_not_overwritten():
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"]),
        helper.make_node("Add", ["x", "b"], ["y"]),
    ]
    for types in (UNIFIED, DISCRETE):
        with settings.settings(DISABLE_DIRECT_IO=True, DISABLE_FUSION=True):
            plan = plan_of(model(nodes, [value("x", (3,))], ["y"]), fake_device(memory_types=types))
        slots = plan.memory.slots
        assert not slots["x"].overlaps(slots["a"]) and not slots["x"].overlaps(slots["b"])
        assert hazards(*work_of(plan.chunks[0])) == []


def test_an_output_that_is_read_again_is_kept():
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"]),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    for types in (UNIFIED, DISCRETE):
        proto = model(nodes, [value("x", (1 << 20,))], ["a", "y"])
        assert len(plan_of(proto).dispatches) == 2  # only b is fused away
        with settings.settings(DISABLE_FUSION=True):
            plan = plan_of(proto, fake_device(memory_types=types))
        slots = plan.memory.slots
        assert not slots["a"].overlaps(slots["b"]) and not slots["a"].overlaps(slots["y"])
        assert hazards(*work_of(plan.chunks[0])) == []


def test_nothing_to_do_is_a_chunk_without_steps():
    plan = plan_of(relu((0, 3)))
    assert plan.summary()["chunks"] == 0
    assert plan.chunks[0].steps == () and plan.chunks[0].barriers == ()
