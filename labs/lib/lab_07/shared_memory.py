"""Measure what workgroups share: sums by three ways, banks, branches, atomics, order of sums.

Labs 07 and 07b show a record of it beside the student's counts. As a program it prints a record as
JSON, for `data/recorded/`: first `shared_memory.py --compile FOLDER`, where a shader compiler is
installed, then `shared_memory.py --kernels FOLDER > record.json`. It needs the packages numpy,
vulkan and platformdirs only.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vklab.shader import compiler, reflection
from vklab.vulkan import physical_device
from vklab.vulkan.command import CommandBuffer, CommandPool, Submission
from vklab.vulkan.descriptors import DescriptorPool
from vklab.vulkan.device import Device
from vklab.vulkan.instance import Instance
from vklab.vulkan.memory import Allocator, Buffer
from vklab.vulkan.pipeline import ComputePipeline
from vklab.vulkan.query import TimestampQueries
from vklab.vulkan.sync import Fence

__all__ = ["KERNELS", "STRIDES", "compile_kernels", "record"]

LOCAL = 256  # invocations of a workgroup, in every kernel
COUNT = 1 << 22  # elements of x
ORDERED = 1 << 16  # elements whose sum is taken again and again
STRIDES = (0, 1, 2, 3, 4, 8, 16, 32, 33)
PATHS = (1, 2, 4, 8, 16, 32)
BINS = 256
_COUNTED = """
struct Params { uint count; };
[vk::push_constant] ConstantBuffer<Params> params;
"""
_CHOSEN = _COUNTED.replace("uint count", "uint count, value")
_MAIN = """
[shader("compute")]
[numthreads(256, 1, 1)]
void main(uint3 id : SV_DispatchThreadID, uint3 group : SV_GroupID, uint lane : SV_GroupIndex) {
"""
_SUM = "StructuredBuffer<float> x;\nRWStructuredBuffer<float> y;\ngroupshared float part[256];\n"
_LOAD = "    part[lane] = x[id.x];\n    GroupMemoryBarrierWithGroupSync();\n"
_COUNT = "StructuredBuffer<uint> x;\nRWStructuredBuffer<uint> y;\n"

KERNELS: Mapping[str, str] = {
    # Sums of 256 elements.
    "serial": _SUM + _MAIN + _LOAD + """
    if (lane == 0) {
        float sum = 0.0;
        for (uint i = 0; i < 256; ++i) sum += part[i];
        y[group.x] = sum;
    }
}""",
    "tree": _SUM + _MAIN + _LOAD + """
    for (uint far = 128; far > 0; far /= 2) {
        if (lane < far) part[lane] += part[lane + far];
        GroupMemoryBarrierWithGroupSync();
    }
    if (lane == 0) y[group.x] = part[0];
}""",
    "subgroups": _SUM + _MAIN + """
    float sum = WaveActiveSum(x[id.x]);
    uint width = WaveGetLaneCount();
    if (WaveIsFirstLane()) part[lane / width] = sum;
    GroupMemoryBarrierWithGroupSync();
    if (lane == 0) {
        for (uint i = 1; i < 256 / width; ++i) sum += part[i];
        y[group.x] = sum;
    }
}""",
    # Loads from shared memory whose words lie `value` apart in the lanes of a subgroup of 32.
    "banks": "RWStructuredBuffer<float> y;\ngroupshared float tile[4096];\n" + _CHOSEN + _MAIN + """
    for (uint i = lane; i < 4096; i += 256) tile[i] = float(i & 7);
    GroupMemoryBarrierWithGroupSync();
    float sum = 0.0;
    for (uint i = 0; i < params.count; ++i)
        sum += tile[((lane & 31) * params.value + i) & 4095];
    y[id.x] = sum;
}""",
    # One of `value` branches for each lane, or for each 32 lanes.
    "branches inside a subgroup": "RWStructuredBuffer<float> y;\n" + _CHOSEN + _MAIN + """
    float v = float(lane);
    for (uint path = 0; path < params.value; ++path)
        if (lane % params.value == path)
            for (uint i = 0; i < params.count; ++i) v = v * 0.999 + float(path);
    y[id.x] = v;
}""",
    "branches between subgroups": "RWStructuredBuffer<float> y;\n" + _CHOSEN + _MAIN + """
    float v = float(lane);
    for (uint path = 0; path < params.value; ++path)
        if (lane / 32 % params.value == path)
            for (uint i = 0; i < params.count; ++i) v = v * 0.999 + float(path);
    y[id.x] = v;
}""",
    # Histograms of 256 bins; an invocation counts `count` elements.
    "no atomics": _COUNT + _COUNTED + _MAIN + """
    for (uint i = 0; i < params.count; ++i) {
        uint bin = x[(group.x * params.count + i) * 256 + lane];
        y[bin] = y[bin] + 1;
    }
}""",
    "global atomics": _COUNT + _COUNTED + _MAIN + """
    for (uint i = 0; i < params.count; ++i)
        InterlockedAdd(y[x[(group.x * params.count + i) * 256 + lane]], 1);
}""",
    "shared atomics": _COUNT + "groupshared uint own[256];\n" + _COUNTED + _MAIN + """
    own[lane] = 0;
    GroupMemoryBarrierWithGroupSync();
    for (uint i = 0; i < params.count; ++i)
        InterlockedAdd(own[x[(group.x * params.count + i) * 256 + lane]], 1);
    GroupMemoryBarrierWithGroupSync();
    if (own[lane] != 0) InterlockedAdd(y[lane], own[lane]);
}""",
    # A sum in the order in which invocations arrive. y holds the bits of a float.
    "sum of floats": _COUNT.replace("uint", "float", 1) + _COUNTED + _MAIN + """
    float mine = x[id.x];
    uint before = 0, seen;
    for (uint tries = 0; tries < params.count; ++tries) {
        InterlockedCompareExchange(y[0], before, asuint(asfloat(before) + mine), seen);
        if (seen == before) break;
        before = seen;
    }
}""",
}  # fmt: skip


def compile_kernels(folder: Path) -> None:
    """Write the SPIR-V of every kernel into a folder, with its text beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, kernel in KERNELS.items():
        path = folder / _file(name, ".slang")
        path.write_text(kernel, encoding="utf-8")
        path.with_suffix(".spv").write_bytes(compiler.compile_variant(str(path)).spirv)


def _file(name: str, ending: str) -> str:
    return name.replace(" ", "_") + ending


class _Bench:
    """Dispatches of the kernels on one device, each with its time on the device's clock.

    Args:
        device: the device.
        folder: the kernels, from `compile_kernels`.
        own: closes everything in the end.
    """

    def __init__(self, device: Device, folder: Path, own: contextlib.ExitStack) -> None:
        self.device, self.folder, self._own = device, folder, own
        allocator = Allocator(device)
        self.buffers = {
            name: own.enter_context(Buffer(allocator, 4 * COUNT, "upload")) for name in "xy"
        }
        self.fence = own.enter_context(Fence(device))
        self.pool = own.enter_context(CommandPool(device, device.compute_queue))
        self.queries = own.enter_context(TimestampQueries(device, 2))
        self.kernels: dict[str, tuple[Any, Any, Any]] = {}

    def array(self, name: str, dtype: type) -> np.ndarray:
        """Return the content of x or y."""
        mapped = self.buffers[name].mapped
        assert mapped is not None
        return np.frombuffer(mapped, dtype)

    def _kernel(self, name: str) -> tuple[Any, Any, Any]:
        if name not in self.kernels:
            enter = self._own.enter_context
            spirv = (self.folder / _file(name, ".spv")).read_bytes()
            facts = reflection.reflect(spirv)
            slots = {kind: binding.number for kind, binding in facts.bindings.items()}
            pipeline = enter(
                ComputePipeline(
                    self.device,
                    spirv,
                    list(slots.values()),
                    len(facts.packing.pack(*[0] * len(facts.push))),
                    entry=facts.entry,
                )
            )
            sets = enter(DescriptorPool(self.device, 1, len(slots)))
            bound = [
                (slot, self.buffers[kind].handle, 0, 4 * COUNT) for kind, slot in slots.items()
            ]
            self.kernels[name] = pipeline, sets.allocate(pipeline.set_layout, bound), facts
        return self.kernels[name]

    def run(self, name: str, groups: int, count: int = 0, value: int = 0) -> float:
        """Return the nanoseconds of one dispatch.

        Args:
            name: the kernel.
            groups: number of workgroups.
            count: its push constant of this name.
            value: its push constant of this name.
        """
        pipeline, descriptors, facts = self._kernel(name)
        pushed = {"count": count, "value": value}
        with CommandBuffer(self.pool) as commands:
            commands.begin()
            commands.reset_queries(self.queries)
            commands.barrier(("host",), ("compute_shader",))
            commands.bind_pipeline(pipeline)
            commands.bind_descriptor_set(pipeline, descriptors)
            if facts.push:
                commands.push_constants(
                    pipeline, facts.packing.pack(*(pushed[member] for member in facts.push))
                )
            commands.write_timestamp(self.queries, 0)
            commands.dispatch(groups)
            commands.write_timestamp(self.queries, 1)
            commands.barrier(("compute_shader",), ("host",))
            commands.end()
            submission = Submission(commands, self.fence)
            submission.submit()
            submission.wait(polls=True)
            return self.queries.nanoseconds(self.queries.ticks())[1]

    def median(self, name: str, groups: int, count: int = 0, value: int = 0) -> float:
        """Return the median of seven dispatches, after two that are not counted."""
        return statistics.median([self.run(name, groups, count, value) for _ in range(9)][2:])


def _sums(bench: _Bench, x: np.ndarray) -> dict[str, float]:
    """Return the nanoseconds of each kind of sum; every sum is compared."""
    values = bench.array("x", np.float32)
    values[:] = x
    wanted, times = x.reshape(-1, LOCAL).sum(1, np.float64), {}
    for name in ("serial", "tree", "subgroups"):
        times[name] = bench.median(name, COUNT // LOCAL)
        got = bench.array("y", np.float32)[: wanted.size]
        if not np.allclose(got, wanted, 1e-4):
            raise AssertionError(f"{name}: the sums are wrong")
    return times


def _histograms(bench: _Bench, x: np.ndarray, turns: int = 16) -> dict[str, Any]:
    """Return for each kind of histogram its nanoseconds, and how many elements it lost."""
    bench.array("x", np.uint32)[:] = x
    found = {}
    for name in ("no atomics", "global atomics", "shared atomics"):
        times, lost = [], []
        for _ in range(5):
            bench.array("y", np.uint32)[:BINS] = 0
            times.append(bench.run(name, COUNT // LOCAL // turns, turns))
            bins = bench.array("y", np.uint32)[:BINS].astype(np.int64)
            lost.append(COUNT - int(bins.sum()))
            if name != "no atomics" and (bins != np.bincount(x, minlength=BINS)).any():
                raise AssertionError(f"{name}: the histogram is wrong")
        found[name] = {"time_ns": statistics.median(times), "lost": lost}
    return found


def _orders(bench: _Bench, x: np.ndarray, runs: int = 50) -> dict[str, Any]:
    """Return the sums of the same floats in the order of arrival, again and again."""
    bench.array("x", np.float32)[:ORDERED] = x[:ORDERED]
    sums = []
    for _ in range(runs):
        bench.array("y", np.uint32)[:1] = 0
        bench.run("sum of floats", ORDERED // LOCAL, 1 << 24)
        sums.append(float(bench.array("y", np.float32)[0]))
    exact = float(x[:ORDERED].sum(dtype=np.float64))
    return {"elements": ORDERED, "exact": exact, "sums": sums}


def record(folder: Path, index: int = 0, loads: int = 4096) -> dict[str, Any]:
    """Return all measurements of one device, and where they come from.

    Args:
        folder: the kernels, from `compile_kernels`.
        index: number of the device.
        loads: loads of an invocation from shared memory, and half as many turns in a branch.
    """
    random = np.random.default_rng(7)
    with contextlib.ExitStack() as stack:
        instance = stack.enter_context(Instance())
        handle = instance.physical_devices()[index]
        info = physical_device.describe(instance, handle, index)
        device = stack.enter_context(Device(instance, handle, info))
        bench = _Bench(device, folder, stack)
        end = time.perf_counter() + 0.3  # an idle device lowers its clocks
        while time.perf_counter() < end:
            bench.run("banks", 512, 512, 1)
        floats = random.random(COUNT, np.float32)
        found = {
            "sums": {"elements": COUNT, "time_ns": _sums(bench, floats)},
            "banks": {
                "loads": loads,
                "time_ns": {
                    str(stride): bench.median("banks", 512, loads, stride) for stride in STRIDES
                },
            },
            "branches": {
                "turns": loads // 2,
                "time_ns": {
                    name: {
                        str(paths): bench.median(f"branches {name}", 512, loads // 2, paths)
                        for paths in PATHS
                    }
                    for name in ("inside a subgroup", "between subgroups")
                },
            },
            "histograms": {
                "elements": COUNT,
                "bins": BINS,
                **{
                    kind: _histograms(bench, x.astype(np.uint32))
                    for kind, x in (
                        ("evenly spread", random.integers(0, BINS, COUNT)),
                        ("one bin", np.full(COUNT, 7)),
                    )
                },
            },
            "orders": _orders(bench, floats),
        }
    return {
        "device": info.name,
        "type": info.type,
        "driver": info.driver,
        "api_version": list(info.api_version),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "made_by": "labs/lib/lab_07/shared_memory.py, medians of 7",
        "subgroup_size": info.subgroup_size,
        "shared_memory_bytes": info.limits["maxComputeSharedMemorySize"],
        **found,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", type=Path, help="write the kernels' SPIR-V into this folder")
    parser.add_argument("--kernels", type=Path, help="the folder with the kernels' SPIR-V")
    parser.add_argument("--device", type=int, default=0, help="number of the device")
    parser.add_argument("--loads", type=int, default=4096, help="fewer for a slow device")
    chosen = parser.parse_args()
    if chosen.compile:
        compile_kernels(chosen.compile)
    else:
        json.dump(record(chosen.kernels, chosen.device, chosen.loads), sys.stdout, indent=1)
