"""Measure the creation of pipelines, and their first and second dispatch, with each kind of cache.

Lab 05 measures the student's device with it. As a program it prints a record as JSON, for
`data/recorded/`: first `creation.py --compile FOLDER`, where a shader compiler is installed, then
`creation.py --kernels FOLDER > record.json`. It needs the packages vulkan and platformdirs only.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import vklab
import vklab_labs
from vklab.shader import compiler, reflection
from vklab.vulkan import physical_device
from vklab.vulkan.command import CommandBuffer, CommandPool, Submission
from vklab.vulkan.descriptors import DescriptorPool
from vklab.vulkan.device import Device
from vklab.vulkan.instance import Instance
from vklab.vulkan.memory import Allocator, Buffer
from vklab.vulkan.pipeline import ComputePipeline, PipelineCache
from vklab.vulkan.sync import Fence

__all__ = ["KERNELS", "MODES", "STAGES", "compile_kernels", "measure", "record"]

FLOAT = {"T": "float", "T_LOAD": "float", "Y": "float", "Y_STORE": "float"}
# The first kernel is not measured: with it, driver and device get ready.
KERNELS: dict[str, tuple[str, dict[str, str]]] = {
    "warm-up": ("elementwise", {
        "ARITY": "1", "LAYOUT": "0", "EXPRESSION": "onnx::relu(a)", "PLACE": "0", "A": "float",
        "A_LOAD": "float", "Y": "float", "Y_STORE": "float"}),
    "vector_add": ("labs/vector_add", {}),
    "pool": ("pool", {"MODE": "MAXIMUM", "R": "float", "X": "float", "X_LOAD": "float",
                      "Y": "float", "Y_STORE": "float"}),
    "conv": ("conv", {"BIAS": "1", "SUBGROUP": "0", **FLOAT}),
}  # fmt: skip
STAGES = ("create", "first", "second")
# Switches of the driver's own files: of Mesa, and of NVIDIA's driver on Linux.
OFF = {"__GL_SHADER_DISK_CACHE": "0", "MESA_SHADER_CACHE_DISABLE": "true"}
ON = {"__GL_SHADER_DISK_CACHE": "1", "MESA_SHADER_CACHE_DISABLE": "false"}
MODES = {
    "cold": "both caches are empty",
    "driver's files": "the driver's own cache files, from an earlier process",
    "pipeline cache": "a VkPipelineCache, saved by an earlier process",
}
BUFFER_BYTES = 1 << 20
LIMIT_S = 120


def compile_kernels(folder: Path) -> None:
    """Write the SPIR-V of every kernel into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (kernel, defines) in KERNELS.items():
        shader = compiler.compile_variant(kernel, tuple(sorted(defines.items())))
        (folder / f"{name}.spv").write_bytes(shader.spirv)


def measure(folder: Path, index: int = 0, processes: int = 5) -> dict[str, Any]:
    """Return nanoseconds, {mode: {kernel: {stage: time}}}: medians over fresh processes.

    The modes take turns. A driver that puts nothing into a VkPipelineCache has no times for it.

    Args:
        folder: the kernels, from `compile_kernels`.
        index: number of the device, as in `vklab.devices()`.
        processes: counted processes of each mode.
    """
    runs: dict[str, list[Any]] = {mode: [] for mode in MODES}
    for _ in range(processes):
        with tempfile.TemporaryDirectory(prefix="vklab-") as own:
            for mode in ("cold", "driver's files"):
                runs[mode].append(_in_a_process(folder, index, own, ON))
            if any(Path(own, "pipelines").glob("*.bin")):
                _in_a_process(folder, index, own, OFF, "--pipeline-cache")
                runs["pipeline cache"].append(
                    _in_a_process(folder, index, own, OFF, "--pipeline-cache")
                )
    return {
        mode: {
            kernel: {
                stage: statistics.median(run[kernel][stage] for run in listed) for stage in STAGES
            }
            for kernel in listed[0]
        }
        if listed
        else {}
        for mode, listed in runs.items()
    }


def _in_a_process(
    folder: Path, index: int, own: str, switches: dict[str, str], *options: str
) -> dict[str, Any]:
    """Return the times of a fresh process: a driver keeps what it has compiled in memory."""
    roots = [str(Path(file).parent.parent) for file in (vklab.__file__, vklab_labs.__file__)]
    paths = os.pathsep.join([*roots, *filter(None, [os.environ.get("PYTHONPATH")])])
    arguments = ["--kernels", str(folder), "--device", str(index), "--child", *options]
    variables = {
        **switches,
        "__GL_SHADER_DISK_CACHE_PATH": own,
        "MESA_SHADER_CACHE_DIR": own,
        "VKLAB_CACHE": own,
        "VKLAB_CHILD_BARE": "1",
        "PYTHONPATH": paths,
    }
    done = subprocess.run(
        [sys.executable, "-m", "vklab_labs.lab_05.creation", *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            f"the measuring process ended with {done.returncode}: {done.stderr.strip()[-500:]}"
        )
    times: dict[str, Any] = json.loads(done.stdout)
    return times


def _measure_here(folder: Path, index: int, uses_cache: bool) -> dict[str, Any]:
    """Return {kernel: {stage: nanoseconds}} of this process; the kernels run one after another."""
    with contextlib.ExitStack() as stack:
        own = stack.enter_context
        instance = own(Instance())
        handle = instance.physical_devices()[index]
        device = own(Device(instance, handle, physical_device.describe(instance, handle, index)))
        cache = own(PipelineCache(device))
        buffers = [
            own(Buffer(allocator, BUFFER_BYTES))
            for allocator in [Allocator(device)]
            for _ in range(4)
        ]
        pool, fence = own(CommandPool(device, device.compute_queue)), own(Fence(device))
        times = {
            name: _stages(device, folder / f"{name}.spv", cache, uses_cache, buffers, pool, fence)
            for name in KERNELS
        }
        cache.save()
    return {name: times[name] for name in list(KERNELS)[1:]}


def _stages(
    device: Device, path: Path, cache: PipelineCache, uses_cache: bool, buffers: list[Buffer],
    pool: CommandPool, fence: Fence,
) -> dict[str, int]:  # fmt: skip
    """Return the nanoseconds of each stage; every push constant is 1, so that the work is small.

    A pipeline that is measured without the cache is made with it at the end, uncounted: the file
    then shows whether the driver puts anything into it.
    """
    spirv = path.read_bytes()
    facts = reflection.reflect(spirv)
    slots = [binding.number for binding in facts.bindings.values()]
    bound = [
        (slot, buffer.handle, 0, BUFFER_BYTES) for slot, buffer in zip(slots, buffers, strict=False)
    ]
    ones = facts.packing.pack(*(1 for member in facts.push.values() for _ in range(member.count)))
    make = functools.partial(ComputePipeline, device, spirv, slots, len(ones), entry=facts.entry)
    start = time.perf_counter_ns()
    pipeline = make(cache=cache if uses_cache else None)
    times = {"create": time.perf_counter_ns() - start}
    with pipeline, DescriptorPool(device, 1, len(bound)) as sets, CommandBuffer(pool) as commands:
        commands.begin()
        commands.bind_pipeline(pipeline)
        commands.bind_descriptor_set(pipeline, sets.allocate(pipeline.set_layout, bound))
        commands.push_constants(pipeline, ones)
        commands.dispatch(1)
        commands.end()
        submission = Submission(commands, fence)
        for stage in STAGES[1:]:
            start = time.perf_counter_ns()
            submission.submit()
            submission.wait(polls=True)
            times[stage] = time.perf_counter_ns() - start
    make(cache=cache).close()
    return times


def record(folder: Path, index: int = 0, processes: int = 5) -> dict[str, Any]:
    """Return what `measure` finds, and where the numbers come from.

    Args:
        folder: the kernels, from `compile_kernels`.
        index: number of the device.
        processes: counted processes of each mode.
    """
    with Instance() as instance:
        info = physical_device.describe(instance, instance.physical_devices()[index], index)
    return {
        "device": info.name,
        "type": info.type,
        "driver": info.driver,
        "api_version": list(info.api_version),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "made_by": f"labs/lib/lab_05/creation.py, median of {processes} processes",
        "modes": MODES,
        "spirv_bytes": {name: (folder / f"{name}.spv").stat().st_size for name in KERNELS},
        "time_ns": measure(folder, index, processes),
    }


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", type=Path, help="write the kernels' SPIR-V into this folder")
    parser.add_argument("--kernels", type=Path, help="the folder with the kernels' SPIR-V")
    parser.add_argument("--device", type=int, default=0, help="number of the device")
    parser.add_argument("--processes", type=int, default=9, help="counted processes of each mode")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--pipeline-cache", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.compile:
        compile_kernels(chosen.compile)
    elif chosen.child:
        times = _measure_here(chosen.kernels, chosen.device, chosen.pipeline_cache)
        json.dump(times, sys.stdout)
    else:
        json.dump(record(chosen.kernels, chosen.device, chosen.processes), sys.stdout, indent=1)


if __name__ == "__main__":
    _main()
