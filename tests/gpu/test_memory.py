"""Memory on a device: tensors beyond what one binding takes, models beyond what there is, and
bytes that nobody may read any more.
"""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import vklab
from support.graphs.small_models import DATA, model, random_array, value
from support.models import exported_models
from support.runs.waits import work
from vklab import settings
from vklab.errors import OutOfMemoryError
from vklab.plan import arenas
from vklab.runtime import open_devices
from vklab.runtime.program import Program
from vklab.vulkan import api


@pytest.fixture
def narrow(device_index, monkeypatch):
    """Return a function that makes the device bind no more than some bytes at once."""
    opened = open_devices.open_device(device_index)

    def limit(size):
        limits = {**opened.info.limits, "maxStorageBufferRange": size}
        info = dataclasses.replace(opened.info, limits=limits)
        monkeypatch.setattr(opened, "info", info)

    return limit


def single(op_type, shapes, weights=None, **attributes):
    names = [f"i{n}" for n in range(len(shapes))]
    weights = {f"w{n}": random_array(shape, n) for n, shape in enumerate(weights or [])}
    node = helper.make_node(op_type, [*names, *weights], ["y"], name="it", **attributes)
    return model([node], [value(n, s) for n, s in zip(names, shapes, strict=True)], ["y"], weights)


# 64 KiB hold a few steps of each axis even where slices begin at multiples of 256 bytes.
LARGE = {
    "gemm_one_row": single("Gemm", [(1, 200)], [(400, 200), (400,)], transB=1),
    "gemm_rows": single("Gemm", [(7, 200)], [(400, 200), (400,)], transB=1, alpha=0.5, beta=2.0),
    "gemm_sums": single("Gemm", [(5, 700)], [(700, 160), (5, 160)], alpha=0.5, beta=2.0),
    "gemm_column": single("Gemm", [(1, 200)], [(400, 200), (1,)], transB=1),
    "matmul_sums": single("MatMul", [(2, 3, 640)], [(640, 96)]),
    "matmul_column": single("MatMul", [(640, 96), (96, 1)]),
    "matmul_many_rows": single("MatMul", [(512, 96)], [(96, 80)]),
    "matmul_batches": single("MatMul", [(6, 32, 64), (6, 64, 48)]),
    "matmul_two_batches": single("MatMul", [(6, 3, 16, 64), (6, 1, 64, 48)]),
    "conv_filters": single("Conv", [(2, 24, 8, 8)], [(192, 24, 3, 3), (192,)], pads=[1] * 4),
    "conv_batch": single("Conv", [(8, 16, 32, 32)], [(8, 8, 3, 3)], group=2, pads=[1] * 4),
    "conv_wide": single("Conv", [(1, 4, 15, 15)], [(192, 4, 3, 3), (192,)], pads=[1] * 4),
    "relu": single("Relu", [(64, 1027)]),
    "add_row": single("Add", [(64, 1040), (1040,)]),
    "add_column": single("Mul", [(512, 130), (512, 1)]),
    "transpose": single("Transpose", [(16, 65, 64)], perm=[0, 2, 1]),
    "softmax": single("Softmax", [(3, 50, 130)]),
    "softmax_few_columns": single("Softmax", [(1100, 17)]),
    "softmax_other_axis": single("LogSoftmax", [(40, 16, 33)], axis=1),
    "layer_norm": single("LayerNormalization", [(9, 23, 130)], [(130,), (130,)]),
    "instance_norm": single("InstanceNormalization", [(8, 7, 16, 31)], [(7,), (7,)]),
}


@pytest.mark.parametrize("name", LARGE)
def test_work_beyond_the_range_is_cut(device_index, narrow, name):
    proto = LARGE[name]
    inputs = {
        i.name: random_array([d.dim_value for d in i.type.tensor_type.shape.dim], 3)
        for i in proto.graph.input
    }
    with vklab.load(proto, device_index) as session:
        plain = session.run(inputs)["y"]
        few = len(session.plan.dispatches)
    narrow(64 << 10)
    with vklab.load(proto, device_index) as session:
        got = session.run(inputs)["y"]
        assert not session.host_reasons and len(session.plan.dispatches) > few
        for dispatch in session.plan.dispatches:
            for _, info in dispatch.reads + dispatch.writes:
                assert info.size_bytes <= 64 << 10
    np.testing.assert_allclose(got, plain, rtol=1e-4, atol=1e-4 * np.abs(plain).max())


@pytest.mark.parametrize(("op_type", "shape", "indices", "attributes"), [
    ("Gather", (1000, 67), [[0, 999, -1], [243, 244, 245], [-1000, 500, 733]], {}),
    ("Gather", (190, 301), [300, 0, -301, 7], {"axis": 1}),
    ("GatherElements", (15000, 3), [[0, 14999, 5461], [-1, -15000, 5462]], {}),
    ("GatherND", (300, 9, 17), [[0, 0], [299, 8], [-1, -9], [150, 4]], {}),
])  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_tables_beyond_the_range_are_chosen_from_in_parts(
    device_index, narrow, op_type, shape, indices, attributes, dtype
):
    table, fed = (99 * random_array(shape)).astype(dtype), {"i": np.array(indices)}
    node = helper.make_node(op_type, ["w", "i"], ["y"], **attributes)
    proto = model([node], [value("i", fed["i"].shape, TensorProto.INT64)], ["y"], {"w": table})
    with vklab.load(proto, device_index) as session:
        whole, expected = session.run(fed)["y"], session.reference(fed)["y"]
        assert len(session.plan.dispatches) == 1
    np.testing.assert_array_equal(whole, expected)
    narrow(64 << 10)
    with vklab.load(proto, device_index) as session:
        np.testing.assert_array_equal(session.run(fed)["y"], whole)
        bound = [i.size_bytes for d in session.plan.dispatches for _, i in d.reads]
        assert max(bound) <= 64 << 10 and len(session.plan.dispatches) > 1
        assert session.plan.memory.weights_bytes < 1.01 * table.nbytes + 4096


# ------------------------------------------------------------- bytes that nobody may read

NAN = 0x7FC00000
EVERYWHERE = ("compute_shader", "transfer")


@pytest.fixture
def poison(monkeypatch):
    """Fill, before each dispatch, what is dead then or not written yet with NaN; count bytes."""
    record, filled = Program._record_dispatch, []

    def poisoned(self, commands, dispatch, bound):
        memory = self.chunk.memory
        (step,) = (n for n, d in enumerate(self.chunk.dispatches) if d is dispatch)
        staged = {copy.name for copy in self.chunk.copies}
        alive = [
            memory.slots[life.name]
            for life in memory.lifetimes
            if life.first < step <= life.last
            or (life.name in staged and life.first <= step <= life.last)
        ]
        fill = commands.device.command("vkCmdFillBuffer")
        commands.barrier(EVERYWHERE, EVERYWHERE)
        for arena, size in memory.arenas.items():
            if not arena.startswith("activations"):
                continue
            kept = sorted(
                (s.offset_bytes, s.offset_bytes + -(-s.size_bytes // 4) * 4)
                for s in alive
                if s.arena == arena
            )
            start = 0
            for first, last in [*kept, (size, size)]:
                if first > start:
                    target = self._buffers[arena].handle
                    fill(commands.handle, target, start, first - start, NAN)
                    filled.append(first - start)
                start = max(start, last)
        commands.barrier(EVERYWHERE, EVERYWHERE)
        return record(self, commands, dispatch, bound)

    def begin():
        monkeypatch.setattr(Program, "_record_dispatch", poisoned)
        return filled

    return begin


def residual(count=4):
    """Return blocks of products, activations and sums: values of many lives."""
    nodes, weights, last = [], {}, "x"
    for i in range(count):
        weights[f"w{i}"] = random_array((64, 64), i) / 8
        nodes += [
            helper.make_node("MatMul", [last, f"w{i}"], [f"m{i}"]),
            helper.make_node("Sigmoid", [f"m{i}"], [f"s{i}"]),
            helper.make_node("Mul", [f"m{i}", f"s{i}"], [f"g{i}"]),
            helper.make_node("Add", [f"g{i}", last], [f"a{i}"]),
        ]
        last = f"a{i}"
    nodes.append(helper.make_node("Softmax", [last], ["y"]))
    return model(nodes, [value("x", (5, 64))], ["y"], weights)


PROTOS = {"residual": residual, "bert": lambda: exported_models.load("bert"),
          "digits_cnn": lambda: onnx.load(DATA / "digits_cnn.onnx")}  # fmt: skip


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "plain"])
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.full) if name == "bert" else name for name in PROTOS],
)
def test_dead_bytes_are_never_read(device_index, name, fused, poison):
    proto = PROTOS[name]()
    inputs = exported_models.inputs_of(proto, {"batch": 2, "sequence": 6})
    for switches in ({}, {"DISABLE_DIRECT_IO": 1}):
        with settings.settings(DISABLE_FUSION=not fused, **switches):
            with vklab.load(proto, device_index) as session:
                expected = session.run(inputs)
                memory = session.plan.memory
            filled = poison()
            with vklab.load(proto, device_index) as session:
                got = session.run(inputs)
        assert sum(filled) > memory.arena_bytes
        for key, array in expected.items():
            np.testing.assert_array_equal(got[key], array)
        if not fused:
            slots = [memory.slots[life.name] for life in memory.lifetimes]
            assert any(a.overlaps(b) for a in slots for b in slots if a is not b)
            values = {s for s in memory.slots.values() if s.arena == "activations"}
            assert len(values) < sum(s.arena == "activations" for s in memory.slots.values())


def test_a_life_that_ends_one_step_early_is_seen(device_index, poison, monkeypatch):
    proto, lifetimes = residual(), arenas._lifetimes
    inputs = {"x": random_array((5, 64))}
    with settings.settings(DISABLE_FUSION=1):
        with vklab.load(proto, device_index) as session:
            expected = session.run(inputs)["y"]
            lives = session.plan.memory.lifetimes
        poison()
        for life in lives:
            cut = dataclasses.replace(life, last=life.last - 1)
            monkeypatch.setattr(
                arenas,
                "_lifetimes",
                lambda *given, cut=cut: tuple(
                    cut if each.name == cut.name else each for each in lifetimes(*given)
                ),
            )
            with vklab.load(proto, device_index) as session:
                got = session.run(inputs)["y"]
            assert not np.array_equal(got, expected), cut
    assert len(lives) > 4


# --------------------------------------------------------------------------- host and device


def external(folder: Path, count: int, size: int) -> Path:
    """Write a model of square weights in another file, which is a hole: it holds zeros."""
    nodes = [helper.make_node("MatMul", [f"v{i}", f"w{i}"], [f"v{i + 1}"]) for i in range(count)]
    proto = model(nodes, [value("v0", (1, size))], [f"v{count}"])
    for i in range(count):
        tensor = proto.graph.initializer.add(name=f"w{i}", data_type=TensorProto.FLOAT)
        tensor.dims[:] = [size, size]
        tensor.data_location = TensorProto.EXTERNAL
        for key, text in {"location": "w.bin", "offset": str(i * size * size * 4)}.items():
            tensor.external_data.add(key=key, value=text)
    with (folder / "w.bin").open("wb") as file:
        file.truncate(count * size * size * 4)
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    return folder / "m.onnx"


def own_bytes() -> int:
    """Return the bytes of this process that are no pages of a file."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return sum(int(lines[name].split()[0]) << 10 for name in ("RssAnon", "RssShmem"))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="counts as Linux does")
def test_weights_take_no_second_copy_on_the_host(device_index, tmp_path):
    with vklab.load(external(tmp_path, 4, 64), device_index):
        pass  # compiles the kernels
    path, size = external(tmp_path, 4, 4096), 256 << 20
    on_host = open_devices.open_device(device_index).info.is_cpu  # its memory is ours
    before, peak, done = own_bytes(), [0], threading.Event()

    def watch():
        while not done.is_set():
            peak[0] = max(peak[0], own_bytes() - before)
            work(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with vklab.load(path, device_index) as session:
            assert session.states[0].weights.uploaded_bytes == size
    finally:
        done.set()
        watcher.join()
    assert peak[0] < (1.3 if on_host else 0.3) * size


@pytest.mark.full
def test_weights_beyond_the_memory_are_refused(device_index, tmp_path):
    path = external(tmp_path, 3, 4096)
    with vklab.load(path, device_index) as session:  # its pipelines stay with the device
        assert session.run(np.zeros((1, 4096), np.float32))["v3"].shape == (1, 4096)
    before = api.live_handles()
    with settings.settings(MEMORY_LIMIT=0.001):
        with pytest.raises(
            OutOfMemoryError,
            match=(
                r"201326592 bytes of weights do not fit: asked for \d+ bytes on .*, \d+ are left "
                "under the limit VKLAB_MEMORY_LIMIT=0.001"
            ),
        ):
            vklab.load(path, device_index)
        assert api.live_handles() == before
    with vklab.load(path, device_index) as session:
        assert session.run(np.zeros((1, 4096), np.float32))["v3"].shape == (1, 4096)


def test_a_new_shape_uploads_only_what_it_adds(device_index):
    table = np.arange(30000, dtype=np.float32)
    nodes = [
        helper.make_node("Shape", ["x"], ["n"]),
        helper.make_node("Slice", ["t", "zero", "n"], ["part"]),
        helper.make_node("Add", ["x", "part"], ["sum"]),
        helper.make_node("Mul", ["sum", "w"], ["y"]),
    ]
    weights = {"t": table, "zero": np.int64([0]), "w": np.full((5, 1), 2, np.float32)}
    proto = model(nodes, [value("x", ("n",))], ["y"], weights)
    with vklab.load(proto, device_index) as session:
        for count in (20000, 30000, 20000):
            x = random_array((count,))
            np.testing.assert_array_equal(session.run(x)["y"], (x + table[:count]) * weights["w"])
        added = session.states[0].weights.uploaded_bytes
        assert added <= 4 * (20000 + 30000) + 4096
        session.run(random_array((30000,)))
        assert session.states[0].weights.uploaded_bytes == added


def test_weights_go_with_the_last_program_that_needs_them(device_index):
    with vklab.load(residual(), device_index) as session:
        session.run({"x": random_array((5, 64))})
        chunk, weights = session.plan.chunks[0], session.states[0].weights
        one, other = weights.lease(chunk), weights.lease(chunk)
        assert one.buffers == other.buffers and weights.uploaded_bytes == 4 * 64 * 64 * 4
        before = api.live_handles()["VkBuffer"]
        one.close()
        one.close()
        other.close()
        assert api.live_handles()["VkBuffer"] == before
        session.roots[0].close()
        assert not weights._uses
        again = weights.lease(chunk)
        assert weights.uploaded_bytes == 2 * 4 * 64 * 64 * 4
        again.close()
