"""The child of run_kernel: one kernel, dispatched on each input, with guard words around buffers.

Run as `python -m vklab.course.kernel_child FOLDER`.
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

from vklab.course import words
from vklab.course.child import begin
from vklab.errors import SetupError, ShaderError, TimeoutError, VklabError
from vklab.runtime import kernels, open_devices, upload
from vklab.runtime.many import device_copies
from vklab.shader import compiler
from vklab.shader.reflection import Reflection
from vklab.types import Dispatch
from vklab.vulkan.command import CommandBuffer, Submission
from vklab.vulkan.descriptors import DescriptorPool
from vklab.vulkan.memory import Buffer
from vklab.vulkan.pipeline import ComputePipeline
from vklab.vulkan.sync import Fence

__all__ = ["dropped", "main", "run_one"]

# Before and after each buffer; as float32 the word is 1.233, near enough to 1 that an addition
# changes its bits (a NaN would stay as it is). Each buffer has a word of its own: what is read
# behind one and written behind another is seen.
GUARD_BYTES, GUARD_WORD = 4096, 0x3F9DDE00
OP_ARRAY_LENGTH = 68
REPORTED = 8


def main(folder: Path) -> None:
    """Carry out FOLDER/job.json; write one result a dispatch, or why there is none."""
    job = json.loads((folder / "job.json").read_text("utf-8"))
    begin(folder)
    try:
        opened = open_devices.open_device(job["device"])
        shader = compiler.compile_variant(str(folder / job["kernel"]))
        text = (folder / job["kernel"]).read_text("utf-8")
        formats = {name: member.format for name, member in shader.reflection.push.items()}
        for number, run in enumerate(job["runs"]):
            arrays = {
                name: np.load(folder / f"in-{number}-{place}.npy", allow_pickle=False)
                for place, name in enumerate(run["buffers"])
            }
            unused = dropped(text, shader.reflection, arrays, run["push"])
            after, outside = run_one(opened, shader, arrays, run, job["seconds"], unused)
            for place, array in enumerate(after.values()):
                np.save(folder / f"out-{number}-{place}.npy", array)
            facts = {"buffers": list(after), "out_of_bounds": outside, "unused": unused,
                     "push_formats": formats}  # fmt: skip
            _write(folder / f"out-{number}.json", facts)
    except TimeoutError:
        said = f"the kernel did not end within {job['seconds']:g} s; does every loop stop?"
        _stop(folder, "timeout", said)
    except SetupError as error:
        _stop(folder, "no_device", str(error))
    except ShaderError as error:
        # The file is a temporary one: its name says nothing, its line does.
        text = str(error).replace(str(folder) + os.sep, "")
        _stop(folder, "compile_error" if "kernel." in text else "mismatch", text)
    except VklabError as error:
        _stop(folder, "crashed", str(error))


def _stop(folder: Path, status: str, message: str) -> None:
    _write(folder / "failed.json", {"status": status, "message": message[:4000]})
    # A device that is still busy is not waited for: this process ends, and its work with it.
    os._exit(0)


def _write(path: Path, facts: Mapping[str, Any]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(facts), encoding="utf-8")
    partial.rename(path)


def dropped(
    text: str, reflection: Reflection, buffers: Iterable[str], push: Iterable[str]
) -> list[str]:
    """Return what a kernel's text names and never uses: the compiler has left that out.

    Raises ShaderError if a kernel uses no buffer at all.
    """
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    known = {*reflection.bindings, *reflection.push}
    gone = [name for name in (*buffers, *push)
            if name not in known and re.search(rf"\b{re.escape(name)}\b", code)]  # fmt: skip
    if gone and not reflection.bindings:
        raise ShaderError(f"{words.never_used(gone)}: this kernel reads nothing and writes nothing")
    return gone


def run_one(
    opened: open_devices.OpenDevice,
    shader: compiler.Shader,
    arrays: Mapping[str, np.ndarray],
    run: Mapping[str, Any],
    seconds: float,
    unused: Sequence[str] = (),
) -> tuple[dict[str, np.ndarray], dict[str, list[int]]]:
    """Dispatch once; return every buffer afterwards, and the guard bytes that changed.

    Raises ShaderError if the buffers or constants are not those that the shader names, apart from
    `unused`, which are left alone.
    """
    dispatch = _dispatch(run, unused)
    asked = shader.reflection.bindings
    idle = {name: array for name, array in arrays.items() if name in unused}
    arrays = {name: array for name, array in arrays.items() if name not in unused}
    if set(asked) != set(arrays):
        raise ShaderError(f"the shader has buffers {sorted(asked)}, there are {sorted(arrays)}")
    push = kernels.pack_push(shader.reflection, dispatch)
    pipeline = ComputePipeline(
        opened.device, shader.spirv, [b.number for b in asked.values()],
        shader.reflection.push_bytes, kernels.specialize(shader.reflection, dispatch),
        entry=shader.reflection.entry, label="kernel",
    )  # fmt: skip
    guarded = {name: _guarded(a, GUARD_WORD + n) for n, (name, a) in enumerate(arrays.items())}
    buffers = {name: Buffer(opened.allocator, len(guarded[name]), "readback") for name in arrays}
    for name, buffer in buffers.items():
        upload.upload(opened, buffer, [(0, guarded[name])])
    # The guard behind is in reach of the shader, or drivers that check ranges would hide the write.
    reach = 0 if _asks_length(shader.spirv) else GUARD_BYTES
    bindings = [
        (asked[name].number, buffers[name].handle, GUARD_BYTES, max(array.nbytes, 4) + reach)
        for name, array in arrays.items()
    ]
    _submit(opened, pipeline, bindings, push, run["workgroups"], seconds)
    after, outside = dict(idle), {}
    for name, array in arrays.items():
        data = device_copies.download(opened, buffers[name], 0, len(guarded[name]))
        inner = data[GUARD_BYTES : GUARD_BYTES + array.nbytes]
        after[name] = np.frombuffer(inner, array.dtype).reshape(array.shape).copy()
        changed = np.flatnonzero(np.frombuffer(data, np.uint8) != guarded[name])
        far = [int(i) - GUARD_BYTES for i in changed]
        places = sorted({i - i % 4 for i in far if not 0 <= i < array.nbytes})
        if places:
            outside[name] = places[:REPORTED]
    for part in (*buffers.values(), pipeline):
        part.close()
    return after, outside


def _dispatch(run: Mapping[str, Any], unused: Sequence[str]) -> Dispatch:
    push = {k: tuple(v) if isinstance(v, list) else v
            for k, v in run["push"].items() if k not in unused}  # fmt: skip
    return Dispatch(
        kernel="kernel", reads=(), writes=(), workgroups=(1, 1, 1), push=tuple(push.items()),
        constants=tuple(run["constants"].items()),
    )  # fmt: skip


def _guarded(array: np.ndarray, word: int) -> np.ndarray:
    """Return an array's bytes between guard words, and at least one word of its own."""
    guard = np.full(GUARD_BYTES // 4, word, np.uint32).view(np.uint8)
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    fill = np.resize(guard, max(4, -(-data.size // 4) * 4) - data.size)
    return np.concatenate([guard, data, fill, guard])


def _asks_length(spirv: bytes) -> bool:
    """Tell whether a shader asks for a buffer's length: then it must be told the real one."""
    words = struct.unpack(f"<{len(spirv) // 4}I", spirv)
    place = 5
    while place < len(words):
        if words[place] & 0xFFFF == OP_ARRAY_LENGTH:
            return True
        place += max(words[place] >> 16, 1)
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
