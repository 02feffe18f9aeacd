"""Measure the ladder of matrix products, the runtime's product and the latency of one load.

Labs 08 and 08b draw the record. As a program it prints a record as JSON, for `data/recorded/`:
first `rung_kernels.py FOLDER`, where a shader compiler is installed, then
`products.py FOLDER > record.json` with VKLAB_CHILD_BARE=1: vulkan, numpy and platformdirs suffice.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vklab.shader import compiler, reflection
from vklab.vulkan import api, physical_device
from vklab.vulkan.command import CommandBuffer, CommandPool, Submission
from vklab.vulkan.descriptors import DescriptorPool
from vklab.vulkan.device import Device
from vklab.vulkan.instance import Instance
from vklab.vulkan.memory import Allocator, Buffer
from vklab.vulkan.pipeline import ComputePipeline, Constant, PipelineCache
from vklab.vulkan.query import TimestampQueries
from vklab.vulkan.sync import Fence
from vklab_labs.lab_08.rungs import LADDER, RUNTIME, SIZES, Rung

__all__ = ["measure", "record"]


CHAINS_KIB = (16, 4096, 262144)  # data that a first cache, a second cache or neither can hold
LINE, STEPS, CHECKED_ROWS = 128, 20_000, 16
WARM_S, LIMIT_S = 0.3, 60.0
_REPORT = "VK_KHR_pipeline_executable_properties"


# ------------------------------------------------------------------------------------- measuring


class _ReportingDevice(Device):
    """A device that reports what its compiler has made of a pipeline."""

    def _features(self, name: str, **chain: Any) -> Any:
        if "pNext" in chain and chain["pNext"] is None:
            chain["pNext"] = api.struct(
                "VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR", pipelineExecutableInfo=1
            )
        return super()._features(name, **chain)

    def _create(self) -> Any:
        self.extensions |= {_REPORT}
        return super()._create()


class _ReportingPipeline(ComputePipeline):
    def _make_pipeline(self, stage: Any, cache: PipelineCache | None, label: str) -> Any:
        flags = api.constant("VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR")
        info = api.struct(
            "VkComputePipelineCreateInfo", stage=stage, layout=self.layout, flags=flags
        )
        out = api.ffi.new("VkPipeline *")
        self.device.call("vkCreateComputePipelines", api.ffi.NULL, 1, info, api.ffi.NULL, out)
        return out[0]

    def statistics(self) -> dict[str, int | float | bool]:
        """Return the driver's numbers. Vulkan: vkGetPipelineExecutableStatisticsKHR"""
        asked = api.struct("VkPipelineExecutableInfoKHR", pipeline=self.handle, executableIndex=0)
        command = self.device.command("vkGetPipelineExecutableStatisticsKHR")
        count = api.ffi.new("uint32_t *")
        api.check("count", command(self.device.handle, asked, count, api.ffi.NULL))
        rows = api.ffi.new("VkPipelineExecutableStatisticKHR[]", count[0])
        for row in rows:
            row.sType = api.structure_type("VkPipelineExecutableStatisticKHR")
        api.check("read", command(self.device.handle, asked, count, rows))
        kinds = ("b32", "i64", "u64", "f64")
        return {api.text(row.name): getattr(row.value, kinds[row.format]) for row in rows}


@dataclasses.dataclass
class _Bench:
    """One open device and what every measurement shares."""

    device: Device
    allocator: Allocator
    pool: CommandPool
    fence: Fence
    times: TimestampQueries
    warm_s: float = WARM_S
    repeats: int = 9

    def buffer(self, stack: contextlib.ExitStack, size: int) -> Buffer:
        return stack.enter_context(Buffer(self.allocator, size, "device"))

    def copy(self, source: Buffer, target: Buffer, size: int) -> None:
        with CommandBuffer(self.pool) as commands:
            commands.begin()
            commands.barrier(("host", "compute_shader"), ("transfer",))
            commands.copy_buffer(source.handle, target.handle, size)
            commands.barrier(("transfer",), ("host", "compute_shader"))
            commands.end()
            Submission(commands, self.fence).submit()
            self.fence.wait(LIMIT_S)

    def upload(self, target: Buffer, array: np.ndarray) -> None:
        with Buffer(self.allocator, array.nbytes, "staging") as staging:
            np.frombuffer(staging.mapped, np.uint8)[: array.nbytes] = array.view(np.uint8)
            self.copy(staging, target, array.nbytes)

    def download(self, source: Buffer, count: int) -> np.ndarray:
        with Buffer(self.allocator, 4 * count, "readback") as back:
            self.copy(source, back, 4 * count)
            return np.frombuffer(back.mapped, np.float32)[:count].copy()


@contextlib.contextmanager
def _bench(device: Device, **how: Any) -> Iterator[_Bench]:
    with (
        CommandPool(device, device.compute_queue) as pool,
        Fence(device) as fence,
        TimestampQueries(device, 2) as times,
    ):
        yield _Bench(device, Allocator(device), pool, fence, times, **how)


def _milliseconds(
    bench: _Bench, spirv: bytes, buffers: Mapping[str, Buffer], groups: tuple[int, ...],
    push: Mapping[str, Any], constants: Mapping[str, int] | None = None,
) -> float:  # fmt: skip
    """Return the median time of a dispatch on the device's clock, after a warm-up."""
    facts = reflection.reflect(spirv)
    names = {
        name.removesuffix("_buffer"): binding.number for name, binding in facts.bindings.items()
    }
    bound = [(names[name], buffer.handle, 0, buffer.size_bytes) for name, buffer in buffers.items()]
    values = [
        value
        for name in facts.push
        for value in np.atleast_1d(np.asarray(push.get(name, 0))).tolist()
    ]
    special: list[Constant] = [
        (known.id, known.format, (constants or {})[name]) for name, known in facts.constants.items()
    ]
    packed = facts.packing.pack(*values)
    with (
        ComputePipeline(
            bench.device, spirv, list(names.values()), len(packed), special, entry=facts.entry
        ) as pipeline,
        DescriptorPool(bench.device, 1, len(bound)) as sets,
        CommandBuffer(bench.pool) as commands,
    ):
        commands.begin()
        commands.reset_queries(bench.times)
        commands.bind_pipeline(pipeline)
        commands.bind_descriptor_set(pipeline, sets.allocate(pipeline.set_layout, bound))
        commands.push_constants(pipeline, packed)
        commands.write_timestamp(bench.times, 0)
        commands.dispatch(*groups)
        commands.barrier(("compute_shader",), ("compute_shader", "host", "transfer"))
        commands.write_timestamp(bench.times, 1)
        commands.end()
        submission = Submission(commands, bench.fence)

        def once() -> float:
            submission.submit()
            bench.fence.wait(LIMIT_S)
            return bench.times.nanoseconds(bench.times.ticks())[1] / 1e6

        end = time.perf_counter() + bench.warm_s
        while time.perf_counter() < end:
            once()
        return statistics.median(once() for _ in range(bench.repeats))


def _product(
    bench: _Bench, name: str, spirv: bytes, size: int,
    operands: tuple[np.ndarray, np.ndarray], takes: Mapping[str, Any],
) -> dict[str, float]:  # fmt: skip
    """Return the time of one product, and its largest error on some rows, against float64."""
    a, b = operands
    rung = LADDER.get(name, Rung((1, 1)))
    given = rung.operands(a, b)
    rows, columns, depth = rung.padded(size, size, size)
    stored = columns if rung.half else size
    with contextlib.ExitStack() as stack:
        buffers = {key: bench.buffer(stack, array.nbytes) for key, array in given.items()}
        for key, array in given.items():
            bench.upload(buffers[key], array)
        buffers["y"] = bench.buffer(stack, 4 * rows * stored)
        if name == RUNTIME:
            ms = _milliseconds(
                bench, spirv, buffers, takes["workgroups"], takes["push"], takes["constants"]
            )
        else:
            ms = _milliseconds(
                bench, spirv, buffers, rung.groups(size, size), rung.push(size, size, size)
            )
        y = bench.download(buffers["y"], rows * stored).reshape(rows, stored)
    some = np.linspace(0, size - 1, CHECKED_ROWS).astype(int)
    exact = a[some].astype(np.float64) @ b.astype(np.float64)
    kind = np.float16 if rung.half else np.float32
    stored_exact = a[some].astype(kind).astype(np.float64) @ b.astype(kind).astype(np.float64)
    got = y[some, :size]
    return {
        "ms": ms,
        "gflops": 2 * size**3 / ms / 1e6,
        "max_error": float(np.abs(got - exact).max()),
        "max_error_of_stored": float(np.abs(got - stored_exact).max()),
        "rms": float(np.sqrt((exact**2).mean())),
    }


def _chain(kib: int, random: np.random.Generator) -> np.ndarray:
    """Return indices that lead through all lines of some memory, in a random order, and back."""
    words = LINE // 4
    order = random.permutation(kib * 1024 // LINE - 1) + 1
    chain = np.zeros(kib * 256, np.uint32)
    chain[np.concatenate([[0], order]) * words] = np.concatenate([order, [0]]) * words
    return chain


def _latency(bench: _Bench, folder: Path, kib: int) -> float:
    """Return the nanoseconds of one load that waits for the load before it."""
    chain = _chain(kib, np.random.default_rng(kib))
    steps = max(STEPS, kib * 1024 // LINE)  # all lines: else the second cache holds those in use
    with contextlib.ExitStack() as stack:
        buffers = {"next": bench.buffer(stack, chain.nbytes), "y": bench.buffer(stack, 4)}
        bench.upload(buffers["next"], chain)
        spirv = (folder / "latency.spv").read_bytes()
        ms = _milliseconds(bench, spirv, buffers, (1,), {"steps": steps})
    return ms * 1e6 / steps


def _statistics(device: Device, folder: Path) -> dict[str, Any]:
    """Return what the driver's compiler says of each kernel: registers, shared memory."""
    found: dict[str, Any] = {}
    takes = json.loads((folder / "runtime.json").read_text("utf-8"))
    paths = {name: folder / f"matmul_{name}.spv" for name in LADDER}
    paths[RUNTIME] = folder / f"{RUNTIME}_{SIZES[-1]}.spv"
    for name, path in paths.items():
        spirv = path.read_bytes()
        facts = reflection.reflect(spirv)
        special = [
            (known.id, known.format, takes[str(SIZES[-1])]["constants"][key])
            for key, known in facts.constants.items()
        ]
        numbers = [binding.number for binding in facts.bindings.values()]
        with _ReportingPipeline(
            device, spirv, numbers, facts.packing.size, special, entry=facts.entry
        ) as pipeline:
            found[name] = pipeline.statistics()
    return found


@contextlib.contextmanager
def _opened(instance: Instance, index: int, kind: Callable[..., Device]) -> Any:
    handle = instance.physical_devices()[index]
    with kind(instance, handle, physical_device.describe(instance, handle, index)) as device:
        yield device


def _matrices(instance: Instance, index: int) -> list[dict[str, Any]]:
    """Return the device's table of cooperative matrices with their scopes."""
    handle = instance.physical_devices()[index]
    shapes = physical_device.describe(instance, handle, index).cooperative_matrices
    if not shapes:
        return []
    rows = api.enumerate_all(
        instance.command("vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"),
        "VkCooperativeMatrixPropertiesKHR",
        handle,
    )
    return [
        {
            **dataclasses.asdict(shape),
            "scope": int(row.scope),
            "saturating": bool(row.saturatingAccumulation),
        }
        for shape, row in zip(shapes, rows, strict=True)
    ]


def measure(index: int, size: int, names: Sequence[str]) -> dict[str, float]:
    """Return the GFLOP/s of some kernels of the ladder on a device, after a short warm-up.

    Args:
        index: number of the device, as in `vklab.devices()`.
        size: side of the matrices.
        names: kernels of `LADDER`.
    """
    random = np.random.default_rng(8)
    pair = [random.uniform(-1, 1, (size, size)).astype(np.float32) for _ in "ab"]
    with (
        Instance() as instance,
        _opened(instance, index, Device) as device,
        _bench(device, warm_s=0.02, repeats=3) as bench,
    ):
        made = {
            name: _product(
                bench,
                name,
                compiler.compile_variant(f"labs/matmul_{name}").spirv,
                size,
                (pair[0], pair[1]),
                {},
            )
            for name in names
        }
    return {name: each["gflops"] for name, each in made.items()}


def record(folder: Path, index: int = 0, largest: int = 4096, reports: bool = True) -> Any:
    """Return times and errors of all products, and where the numbers come from.

    Args:
        folder: the kernels, from `rung_kernels.py`.
        index: number of the device.
        largest: side of the largest matrices.
        reports: whether the driver is asked for registers, where it can tell.
    """
    random = np.random.default_rng(8)
    takes = json.loads((folder / "runtime.json").read_text("utf-8"))
    products: dict[str, Any] = {}
    with Instance() as instance:
        info = physical_device.describe(instance, instance.physical_devices()[index], index)
        fitting = [
            name for name, rung in LADDER.items() if not rung.half or info.cooperative_matrices
        ]
        with _opened(instance, index, Device) as device, _bench(device) as bench:
            for size in (size for size in SIZES if size <= largest):
                pair = [random.uniform(-1, 1, (size, size)).astype(np.float32) for _ in "ab"]
                for name in (*fitting, *([RUNTIME] if str(size) in takes else [])):
                    stem = f"{RUNTIME}_{size}" if name == RUNTIME else f"matmul_{name}"
                    made = _product(
                        bench,
                        name,
                        (folder / f"{stem}.spv").read_bytes(),
                        size,
                        (pair[0], pair[1]),
                        takes.get(str(size), {}),
                    )
                    products.setdefault(name, {})[str(size)] = made
            latency = {str(kib): _latency(bench, folder, kib) for kib in CHAINS_KIB}
        registers = {}
        if reports and _REPORT in info.extensions:
            with _opened(instance, index, _ReportingDevice) as device:
                registers = _statistics(device, folder)
        matrices = _matrices(instance, index)
    return {
        "device": info.name,
        "type": info.type,
        "driver": info.driver,
        "api_version": list(info.api_version),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "made_by": "labs/lib/lab_08/products.py, median of 9 dispatches after a warm-up",
        "inputs": "uniform in -1 .. 1; errors on 16 rows against float64",
        "cooperative_matrices": matrices,
        "has_cooperative_matrix_2": "VK_NV_cooperative_matrix2" in info.extensions,
        "latency_ns": latency,
        "pipelines": registers,
        "products": products,
    }


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernels", type=Path, help="the folder with the kernels' SPIR-V")
    parser.add_argument("--device", type=int, default=0, help="number of the device")
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="side of the matrices")
    parser.add_argument("--no-statistics", action="store_true", help="do not ask for registers")
    chosen = parser.parse_args()
    json.dump(
        record(chosen.kernels, chosen.device, chosen.largest, not chosen.no_statistics),
        sys.stdout,
        indent=1,
    )


if __name__ == "__main__":
    _main()
