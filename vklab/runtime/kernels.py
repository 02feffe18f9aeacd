"""Kernels of one device: a Dispatch becomes a pipeline, push-constant bytes and bindings.

The names and counts that a dispatch supplies are checked against the shader's reflection. Visited
by lab 05.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from vklab import settings
from vklab.errors import ShaderError
from vklab.shader import compiler, processes
from vklab.shader.reflection import Reflection
from vklab.types import Dispatch
from vklab.vulkan import descriptors
from vklab.vulkan.device import Device
from vklab.vulkan.pipeline import ComputePipeline, Constant, PipelineCache

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Kernel:
    """One compiled kernel of one device, and its bindings, push and specialization constants."""

    pipeline: ComputePipeline
    reflection: Reflection


def pack_push(reflection: Reflection, dispatch: Dispatch) -> bytes:
    """Return the push-constant block of a dispatch.

    Raises ShaderError, which lists both sides, if names or lengths differ.
    """
    given = dispatch.push_values
    kernel = f"kernel {dispatch.kernel}"
    if given.keys() != reflection.push.keys():
        raise ShaderError(
            f"{kernel} takes push constants {sorted(reflection.push)}, the dispatch "
            f"supplies {sorted(given)}"
        )
    values = [v if isinstance(v, tuple) else (v,) for v in map(given.__getitem__, reflection.push)]
    for (name, member), value in zip(reflection.push.items(), values, strict=True):
        if len(value) != member.count:
            raise ShaderError(
                f"{kernel}: push constant {name} has {member.count} elements, the "
                f"dispatch supplies {len(value)}"
            )
    try:
        return reflection.packing.pack(*itertools.chain(*values))
    except struct.error as error:
        raise ShaderError(f"{kernel}: push constants {given} do not fit: {error}") from error


def specialize(reflection: Reflection, dispatch: Dispatch) -> list[tuple[int, str, int | float]]:
    """Return the specialization constants of a dispatch by id; ShaderError for unknown names."""
    unknown = [name for name, _ in dispatch.constants if name not in reflection.constants]
    if unknown:
        raise ShaderError(
            f"kernel {dispatch.kernel} has specialization constants "
            f"{sorted(reflection.constants)}, the dispatch names {unknown}"
        )
    known = ((reflection.constants[name], value) for name, value in dispatch.constants)
    return [(constant.id, constant.format, value) for constant, value in known]


def _check_bindings(reflection: Reflection, dispatch: Dispatch) -> None:
    given = dict.fromkeys((name for name, _ in dispatch.reads), False)
    given |= dict.fromkeys((name for name, _ in dispatch.writes), True)
    wanted = {name: binding.writable for name, binding in reflection.bindings.items()}
    if given != wanted:
        raise ShaderError(
            f"kernel {dispatch.kernel} has buffers {wanted} (name: writable), "
            f"the dispatch supplies {given}"
        )


class Kernels:
    """All pipelines of one device, each created once per SPIR-V module and specialization."""

    def __init__(self, device: Device, cache: PipelineCache) -> None:
        self.device = device
        self.cache = cache
        self._made: dict[tuple[bytes, tuple[object, ...], bool], Kernel] = {}
        self._lock = threading.Lock()

    def prepare(
        self,
        dispatches: Iterable[Dispatch],
        progress: Progress | None = None,
        known: dict[tuple[object, ...], Kernel] | None = None,
    ) -> dict[tuple[object, ...], Kernel]:
        """Return the kernel of every dispatch by `key`; compile missing kernels in parallel.

        Args:
            dispatches: the dispatches that are to be recorded.
            progress: called as (done, of, kernel) while kernels compile.
            known: kernels to reuse even if their shader files have changed since; new kernels are
                added to it.
        """
        known = {} if known is None else known
        push = descriptors.uses_push_descriptors(self.device)
        unique = {key(dispatch): dispatch for dispatch in dispatches}
        missing = [d for name, d in unique.items() if (*name, push) not in known]
        if missing:
            shaders = compiler.compile_all((d.variant for d in missing), progress)
            with processes.pool(len(missing)) as submit:
                futures = [submit(self._make, d, shaders[d.variant]) for d in missing]
                for dispatch, future in zip(missing, futures, strict=True):
                    known[(*key(dispatch), push)] = processes.result(future)
            self.cache.save()
        return {name: known[(*name, push)] for name in unique}

    def _make(self, dispatch: Dispatch, shader: compiler.Shader) -> Kernel:
        _check_bindings(shader.reflection, dispatch)
        pack_push(shader.reflection, dispatch)
        constants = specialize(shader.reflection, dispatch)
        lacking = shader.reflection.features - self.device.features
        if lacking:  # drivers may crash on such a kernel
            raise ShaderError(
                f"kernel {dispatch.kernel} {dispatch.defines} needs "
                f"{', '.join(sorted(lacking))}, which {self.device.info.name} lacks"
            )
        self._check_workgroup(dispatch, shader.reflection, constants)
        push = descriptors.uses_push_descriptors(self.device)
        made_key = (hashlib.sha256(shader.spirv).digest(), tuple(sorted(constants)), push)
        with self._lock:
            if made_key in self._made:
                return self._made[made_key]
        limit = self.device.info.limit("maxPushConstantsSize")
        if shader.reflection.push_bytes > limit:
            raise ShaderError(
                f"kernel {dispatch.kernel} has {shader.reflection.push_bytes} bytes of push "
                f"constants, {self.device.info.name} takes {limit}"
            )
        bindings = [binding.number for binding in shader.reflection.bindings.values()]
        pipeline = ComputePipeline(
            self.device,
            shader.spirv,
            bindings,
            shader.reflection.push_bytes,
            constants,
            push,
            None if settings.get("DISABLE_CACHE") else self.cache,
            shader.reflection.entry,
            dispatch.kernel,
        )
        with self._lock:
            kernel = self._made.setdefault(made_key, Kernel(pipeline, shader.reflection))
        if kernel.pipeline is not pipeline:
            pipeline.close()  # another thread was faster
        return kernel

    def _check_workgroup(
        self, dispatch: Dispatch, reflection: Reflection, constants: Sequence[Constant]
    ) -> None:
        """Raise ShaderError for a workgroup beyond the device's limits, on which drivers crash."""
        info, values = self.device.info, {number: value for number, _, value in constants}
        shape = reflection.workgroup.shape(values)
        shared = reflection.workgroup.shared_bytes(values)
        sizes = info.limits["maxComputeWorkGroupSize"]
        assert isinstance(sizes, tuple)
        limits = [
            (f"{shared} bytes of shared memory", shared, "maxComputeSharedMemorySize"),
            (f"{math.prod(shape)} invocations", math.prod(shape), "maxComputeWorkGroupInvocations"),
        ]
        for text, value, limit in limits:
            if value > info.limit(limit):
                raise ShaderError(
                    f"kernel {dispatch.kernel} {dispatch.constant_values} has {text} "
                    f"a workgroup, {info.name} has {info.limit(limit)} ({limit})"
                )
        if any(value > most for value, most in zip(shape, sizes, strict=True)):
            raise ShaderError(
                f"kernel {dispatch.kernel} has workgroups of {shape} invocations, "
                f"{info.name} takes {sizes} (maxComputeWorkGroupSize)"
            )

    def close(self) -> None:
        """Destroy every pipeline."""
        self.cache.save()
        with self._lock:
            while self._made:
                self._made.popitem()[1].pipeline.close()


def unavailable(dispatch: Dispatch) -> str:
    """Return the reason why no kernel can be compiled for a dispatch; empty if one can."""
    return compiler.unavailable(*dispatch.variant)


def key(dispatch: Dispatch) -> tuple[object, ...]:
    """Return the identity of a dispatch's kernel: shader variant and specialization constants."""
    return (*dispatch.variant, dispatch.constants)
