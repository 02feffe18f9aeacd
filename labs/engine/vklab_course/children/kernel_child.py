"""Child process of run_kernel: dispatches a kernel on each input, with guard words around buffers.

A kernel is a text to compile, or a SPIR-V module; the child holds the device and nothing else.
Run as `python -m vklab_course.children.kernel_child FOLDER`.
"""

from __future__ import annotations

import json
import os
import re
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vklab.errors import DeviceLostError, SetupError, ShaderError, TimeoutError, VklabError
from vklab.runtime import kernels, open_devices, upload
from vklab.runtime.many import device_copies
from vklab.shader import compiler, reflection
from vklab.shader.reflection import Reflection
from vklab.types import Dispatch
from vklab.vulkan.command import CommandBuffer, Submission
from vklab.vulkan.descriptors import DescriptorPool
from vklab.vulkan.memory import Buffer
from vklab.vulkan.pipeline import ComputePipeline, Constant
from vklab.vulkan.sync import Fence
from vklab_course import words
from vklab_course.children.child import begin, without
from vklab_course.children.run_kernel import ending

__all__ = ["GUARD_BYTES", "Pipelines", "dropped", "main", "require_buffers", "run_one"]

# Guard words stand before and after each buffer. As float32 a word is 1.233, close enough to 1
# that an addition changes its bits (a NaN would not change). Each buffer has a different word, so
# that a copy from behind one buffer to behind another is detected.
GUARD_BYTES, GUARD_WORD = 4096, 0x3F9DDE00
OP_ARRAY_LENGTH = 68
# Most shared memory of a workgroup, a rule of the course: both CPU drivers have as much.
SHARED_BYTES = 32 << 10
# How GLSL names a buffer.
NAMES = (
    ". In GLSL a buffer has the name of its block: `buffer X { float x[]; };` is X. But with "
    "an instance name, `buffer X { float x[]; } data;`, it is data. Rename the block, and "
    "delete the instance name"
)
REPORTED = 8


def main(folder: Path) -> None:
    """Run the dispatches of FOLDER/job.json; write the result of each, or the reason of failure."""
    job = json.loads((folder / "job.json").read_text("utf-8"))
    begin(folder)
    shaders: dict[str, compiler.Shader] = {}
    pipelines = Pipelines()
    try:
        opened = open_devices.open_device(job["device"])
        for number, run in enumerate(job["runs"]):
            if run["kernel"] not in shaders:
                shaders[run["kernel"]] = _shader(folder / run["kernel"])
            shader = shaders[run["kernel"]]
            arrays = {
                name: np.load(folder / f"in-{number}-{index}.npy", allow_pickle=False)
                for index, name in enumerate(run["buffers"])
            }
            unused = run["unused"]
            if unused is None:
                text = (folder / run["kernel"]).read_text("utf-8")
                unused = dropped(text, shader.reflection, arrays, run["push"])
            after, outside = run_one(opened, shader, arrays, run, job["seconds"], unused, pipelines)
            for index, array in enumerate(after.values()):
                np.save(folder / f"out-{number}-{index}.npy", array)
            push = shader.reflection.push
            facts = {
                "buffers": list(after),
                "out_of_bounds": outside,
                "unused": unused,
                "push_formats": {name: member.format for name, member in push.items()},
                "push_offsets": {name: member.offset for name, member in push.items()},
            }
            _write(folder / f"out-{number}.json", facts)
            if run["stop"] and after[run["stop"][0]].reshape(-1)[run["stop"][1]]:
                break
        pipelines.close()
    except TimeoutError:
        said = f"the kernel did not end within {job['seconds']:g} s; does every loop stop?"
        _stop(folder, "timeout", said)
    except DeviceLostError as error:
        said = f"{error}; does every loop stop, and is each index inside its array?"
        _stop(folder, "crashed", said)
    except SetupError as error:
        _stop(folder, "no_device", str(error))
    except ShaderError as error:
        text = without(folder, error)
        _stop(folder, "compile_error" if "kernel." in text else "mismatch", text)
    except VklabError as error:
        _stop(folder, "crashed", str(error))


def _shader(path: Path) -> compiler.Shader:
    """Return the shader of a text, which is compiled, or of a SPIR-V module."""
    if path.suffix != ".spv":
        return compiler.compile_variant(str(path))
    spirv = path.read_bytes()
    return compiler.Shader(path.stem, (), spirv, reflection.reflect(spirv), "given")


def _stop(folder: Path, status: str, message: str) -> None:
    _write(folder / "failed.json", {"status": status, "message": message[:4000]})
    # Exit without waiting for a busy device: the end of the process ends its work.
    os._exit(0)


def _write(path: Path, facts: Mapping[str, Any]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(facts), encoding="utf-8")
    partial.rename(path)


def dropped(
    text: str, reflection: Reflection, buffers: Iterable[str], push: Iterable[str]
) -> list[str]:
    """Return the buffers and push constants that the compiler removed because nothing uses them.

    Raises ShaderError if a kernel uses no buffer at all, or a buffer of another name.

    Args:
        text: the kernel's source.
        reflection: the interface of the compiled kernel.
        buffers: names of the buffers of a dispatch.
        push: names of its push constants.
    """
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    gone = []
    for given, known in ((list(buffers), reflection.bindings), (list(push), reflection.push)):
        if known.keys() <= set(given):  # otherwise something given has another name in the kernel
            gone += [
                name
                for name in given
                if name not in known and re.search(rf"\b{re.escape(name)}\b", code)
            ]
    if not reflection.bindings.keys() <= set(buffers):
        require_buffers(reflection, buffers, NAMES if ending(text) == ".comp" else "")
    if gone and not reflection.bindings:
        raise ShaderError(f"{words.never_used(gone)}: this kernel reads nothing and writes nothing")
    return gone


class Pipelines:
    """Pipelines of the dispatches, made once for each shader and its constants."""

    def __init__(self) -> None:
        self._made: dict[tuple[bytes, tuple[Constant, ...]], ComputePipeline] = {}

    def of(
        self, opened: open_devices.OpenDevice, shader: compiler.Shader, constants: list[Constant]
    ) -> ComputePipeline:
        """Return the pipeline of a shader with these constants.

        Args:
            opened: the device.
            shader: the kernel.
            constants: its specialization constants.
        """
        key = (shader.spirv, tuple(constants))
        if key not in self._made:
            _check_shared(opened, shader, constants)
            self._made[key] = ComputePipeline(
                opened.device,
                shader.spirv,
                [binding.number for binding in shader.reflection.bindings.values()],
                shader.reflection.push_bytes,
                constants,
                entry=shader.reflection.entry,
                label="kernel",
            )
        return self._made[key]

    def close(self) -> None:
        """Free all pipelines."""
        while self._made:
            self._made.popitem()[1].close()


def _check_shared(
    opened: open_devices.OpenDevice, shader: compiler.Shader, constants: list[Constant]
) -> None:
    """Raise ShaderError for more shared memory than every device has, though a driver may do it.

    Args:
        opened: the device.
        shader: the kernel.
        constants: its specialization constants.
    """
    values = {number: value for number, _, value in constants}
    asked = shader.reflection.workgroup.shared_bytes(values)
    has = opened.device.info.limit("maxComputeSharedMemorySize")
    if asked > min(has, SHARED_BYTES):
        raise ShaderError(
            f"it has {asked:,} bytes of shared memory a workgroup; kernels of the "
            f"course have at most {SHARED_BYTES:,}, which every driver of the course "
            f"has, and {opened.device.info.name} has {has:,}"
        )


def run_one(
    opened: open_devices.OpenDevice,
    shader: compiler.Shader,
    arrays: Mapping[str, np.ndarray],
    run: Mapping[str, Any],
    seconds: float,
    unused: Sequence[str] = (),
    pipelines: Pipelines | None = None,
) -> tuple[dict[str, np.ndarray], dict[str, list[int]]]:
    """Dispatch once; return every buffer afterwards, and the changed guard bytes by buffer.

    Raises ShaderError if the buffers or constants are not those of the shader.

    Args:
        opened: the device.
        shader: the compiled kernel.
        arrays: content of every buffer before the dispatch, by name.
        run: a Run as JSON: push, constants and workgroups.
        seconds: time limit.
        unused: buffers and push constants to leave out, because the compiler removed them.
        pipelines: keeps the pipeline for further dispatches; without it the pipeline is closed.
    """
    dispatch = _dispatch(run, unused)
    bindings_of = shader.reflection.bindings
    idle = {name: array for name, array in arrays.items() if name in unused}
    arrays = {name: array for name, array in arrays.items() if name not in unused}
    require_buffers(shader.reflection, arrays)
    push = kernels.pack_push(shader.reflection, dispatch)
    kept = pipelines or Pipelines()
    pipeline = kept.of(opened, shader, kernels.specialize(shader.reflection, dispatch))
    guarded = {name: _guarded(a, GUARD_WORD + n) for n, (name, a) in enumerate(arrays.items())}
    buffers = {name: Buffer(opened.allocator, len(guarded[name]), "readback") for name in arrays}
    for name, buffer in buffers.items():
        upload.upload(opened, buffer, [(0, guarded[name])])
    # Bind the guard behind a buffer, too, or drivers that check ranges would hide a write to it.
    reach = 0 if _asks_length(shader.spirv) else GUARD_BYTES
    bindings = [
        (bindings_of[name].number, buffers[name].handle, GUARD_BYTES, max(array.nbytes, 4) + reach)
        for name, array in arrays.items()
    ]
    _submit(opened, pipeline, bindings, push, run["workgroups"], seconds)
    after, outside = dict(idle), {}
    for name, array in arrays.items():
        data = device_copies.download(opened, buffers[name], 0, len(guarded[name]))
        inner = data[GUARD_BYTES : GUARD_BYTES + array.nbytes]
        after[name] = np.frombuffer(inner, array.dtype).reshape(array.shape).copy()
        changed = np.frombuffer(data, np.uint8) != guarded[name]
        changed[GUARD_BYTES : GUARD_BYTES + array.nbytes] = False
        far = np.flatnonzero(changed) - GUARD_BYTES
        offsets = sorted({*(far - far % 4).tolist()})  # np.unique imports numpy.ma: 0.15 s
        if offsets:
            outside[name] = offsets[:REPORTED]
    for part in buffers.values():
        part.close()
    if pipelines is None:
        kept.close()
    return after, outside


def require_buffers(reflection: Reflection, names: Iterable[str], advice: str = "") -> None:
    """Raise ShaderError unless these are the buffers of a shader.

    Args:
        reflection: what the shader takes.
        names: the buffers that a dispatch gives.
        advice: what the message adds.
    """
    if set(reflection.bindings) != set(names):
        raise ShaderError(
            f"the shader has buffers {sorted(reflection.bindings)}, the dispatch "
            f"gives {sorted(names)}: use the same names{advice}"
        )


def _dispatch(run: Mapping[str, Any], unused: Sequence[str]) -> Dispatch:
    push = {
        k: tuple(v) if isinstance(v, list) else v for k, v in run["push"].items() if k not in unused
    }
    return Dispatch(
        kernel="kernel",
        reads=(),
        writes=(),
        workgroups=(1, 1, 1),
        push=tuple(push.items()),
        constants=tuple(run["constants"].items()),
    )


def _guarded(array: np.ndarray, word: int) -> np.ndarray:
    """Return an array's bytes between guard words, padded to at least one word."""
    guard = np.full(GUARD_BYTES // 4, word, np.uint32).view(np.uint8)
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    fill = np.resize(guard, max(4, -(-data.size // 4) * 4) - data.size)
    return np.concatenate([guard, data, fill, guard])


def _asks_length(spirv: bytes) -> bool:
    """Tell whether a shader reads a buffer's length, which must then be the real one.

    Source: SPIR-V specification, section "Physical Layout of a SPIR-V Module and Instruction"
    """
    words = struct.unpack(f"<{len(spirv) // 4}I", spirv)
    position = 5
    while position < len(words):
        if words[position] & 0xFFFF == OP_ARRAY_LENGTH:
            return True
        position += max(words[position] >> 16, 1)
    return False


def _submit(
    opened: open_devices.OpenDevice,
    pipeline: ComputePipeline,
    bindings: list[tuple[int, Any, int, int]],
    push: bytes,
    workgroups: list[int],
    seconds: float,
) -> None:
    pool = opened.command_pool()
    descriptors = DescriptorPool(opened.device, 1, len(bindings))
    commands = CommandBuffer(pool)
    fence = Fence(opened.device)
    commands.begin()
    commands.barrier(("host",), ("compute_shader",))
    commands.bind_pipeline(pipeline)
    commands.bind_descriptor_set(pipeline, descriptors.allocate(pipeline.set_layout, bindings))
    if push:
        commands.push_constants(pipeline, push)
    commands.dispatch(*workgroups)
    commands.barrier(("compute_shader",), ("host", "transfer"))
    commands.end()
    Submission(commands, fence).submit()
    fence.wait(seconds)
    for part in (fence, commands, descriptors, pool):
        part.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    open_devices.close_all()
