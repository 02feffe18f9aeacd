"""Compilers and the runtime's caches, asked about one shader's text. Visited by lab 05.

Compiles a text in any of three languages, reads the layout of a struct back from SPIR-V, and sends
requests to the runtime's two caches.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from vklab import settings
from vklab.base import draw, store
from vklab.errors import ShaderError, VklabError
from vklab.runtime import kernels, open_devices
from vklab.shader import compiler, reflection, source, toolchain
from vklab.types import Dispatch, TensorInfo
from vklab.vulkan.pipeline import PipelineCache
from vklab_course.swap import swap
from vklab_labs.shared import compilers

__all__ = ["SCALE", "Member", "Request", "answer_requests", "compile_text", "reflected_blocks",
           "requests_of", "requests_table", "routes_table", "vector_add",
           "vector_adds"]  # fmt: skip

# (name, bytes of one component, components, elements of an array or None)
Member = tuple[str, int, int, int | None]
# (name, text, defines, specialization constants, a push constant)
Request = tuple[str, str, tuple[tuple[str, str], ...], tuple[tuple[str, int], ...], int]
FILES = {"slang": "labs/vector_add.slang", "glsl": "labs/vector_add.comp"}
WIDTHS = {1: "uint8_t", 2: "half", 4: "float", 8: "double"}
_NAME, _RUNTIME_ARRAY, _DECORATE, _MEMBER_DECORATE = 5, 29, 71, 72
_ARRAY_STRIDE, _OFFSET = 6, 35

HLSL = """struct Params { uint count; };
[[vk::push_constant]] ConstantBuffer<Params> params;
[[vk::binding(0)]] StructuredBuffer<float> a;
[[vk::binding(1)]] StructuredBuffer<float> b;
[[vk::binding(2)]] RWStructuredBuffer<float> y;

[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    if (id.x < params.count) y[id.x] = a[id.x] + b[id.x];
}
"""
SCALE = """RWStructuredBuffer<float> y;
struct Params { uint count; };
[vk::push_constant] ConstantBuffer<Params> params;
[vk::constant_id(0)] const uint GROUP = 32;
[shader("compute")] [numthreads(GROUP, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    if (id.x < params.count) y[id.x] = R * y[id.x] + S;
}
"""
TEXTS = {"scale": SCALE, "scale // tidy": f"// tidy\n{SCALE}"}
COLUMNS = ("start", "request", "text", "defines", "constants", "push constant")


def vector_adds() -> dict[str, str]:
    """Return the text of vector_add in Slang, GLSL and HLSL, without lines of comments."""
    texts = {language: source.find(name).read_text("utf-8") for language, name in FILES.items()}
    return {
        language: "\n".join(line for line in text.splitlines() if not line.startswith("//"))
        for language, text in texts.items()
    } | {"hlsl": HLSL}


def vector_add(language: str) -> bytes:
    """Return the SPIR-V of vector_add from one of the three languages."""
    if language in FILES:
        return compiler.compile_variant(FILES[language]).spirv
    return compile_text(HLSL, language)


def compile_text(text: str, language: str = "slang") -> bytes:
    """Return the SPIR-V that slangc makes of a kernel; it reads HLSL, too.

    Raises SetupError without the compiler, ShaderError with the compiler's words.

    Args:
        text: the kernel.
        language: slang or hlsl.
    """
    tools = compilers.required("slang")
    with tempfile.TemporaryDirectory(prefix="vklab-") as name:
        path, output = Path(name) / f"kernel.{language}", Path(name) / "kernel.spv"
        path.write_text(text, encoding="utf-8")
        command = tools.command(path, output, (), ())
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode or not output.is_file():
            raise ShaderError((done.stdout + done.stderr).strip()[-1000:])
        return output.read_bytes()


def reflected_blocks(fields: Sequence[Member]) -> dict[str, tuple[dict[str, int], int]]:
    """Return the offsets of a struct's members, and its bytes in an array, by std430 and scalar.

    Args:
        fields: at least two members.
    """
    lines = [
        f"{WIDTHS[width]} {name}"
        if components == 1
        else f"vector<{WIDTHS[width]}, {components}> {name}"
        for name, width, components, _ in fields
    ]
    lines = [
        f"{line};" if count is None else f"{line}[{count}];"
        for line, (*_, count) in zip(lines, fields, strict=True)
    ]
    text = (
        f"struct Block {{ {' '.join(lines)} }};\nStructuredBuffer<Block, Std430DataLayout> a;"
        '\nRWStructuredBuffer<Block, ScalarDataLayout> b;\n[shader("compute")] '
        "[numthreads(1, 1, 1)]\nvoid main(uint3 id : SV_DispatchThreadID) { b[0] = a[0]; }\n"
    )
    listed = list(reflection.instructions(compile_text(text)))
    names = {
        words[0]: struct.pack(f"<{len(words) - 1}I", *words[1:])
        for code, words in listed
        if code == _NAME
    }
    sizes = {
        words[0]: words[2]
        for code, words in listed
        if code == _DECORATE and words[1] == _ARRAY_STRIDE
    }
    blocks: dict[str, tuple[dict[str, int], int]] = {}
    for array, block in (words for code, words in listed if code == _RUNTIME_ARRAY):
        places = {
            fields[words[1]][0]: words[3]
            for code, words in listed
            if code == _MEMBER_DECORATE and words[0] == block and words[2] == _OFFSET
        }
        blocks["std430" if b"std430" in names[block] else "scalar"] = places, sizes[array]
    return blocks


def routes_table() -> str:
    """Return a table of what vector_add compiles to from each language, as HTML."""
    rows: list[tuple[object, ...]] = []
    for language in (*FILES, "hlsl"):
        try:
            facts = reflection.reflect(spirv := vector_add(language))
        except VklabError as error:
            rows.append((language, f"missing: {error}", "", "", ""))
            continue
        tools = toolchain.find_toolchain("glsl" if language == "glsl" else "slang")
        numbers = ", ".join(str(binding.number) for binding in facts.bindings.values())
        rows.append(
            (
                language,
                Path(tools.program).stem if tools else "shipped as SPIR-V",
                f"{len(spirv):,}",
                numbers,
                facts.push_bytes,
            )
        )
    return draw.table_html(
        "One kernel, three languages",
        ("language", "compiler", "bytes of SPIR-V", "bindings", "push-constant bytes"),
        rows,
    )


def requests_of(trace: str) -> list[list[Request]]:
    """Return the requests of each start, from lines such as `A R=2 S=1 G=32 push=7`.

    R and S are defines, G is the constant GROUP, `tidy` adds a comment to the text, and a line `|`
    stands between two starts of the program.
    """
    starts: list[list[Request]] = []
    for part in trace.split("|"):
        starts.append([])
        for line in part.strip().splitlines():
            name, *said = line.split()
            given = dict(word.split("=") for word in said if "=" in word)
            text = "scale // tidy" if "tidy" in said else "scale"
            defines = tuple((key, given[key]) for key in given if key in "RS")
            constants = (("GROUP", int(given["G"])),) if "G" in given else ()
            starts[-1].append((name, text, defines, constants, int(given["push"])))
    return starts


def requests_table(starts: Sequence[Sequence[Request]]) -> str:
    """Return a table of the requests of each start of a program, as HTML."""
    rows = [
        (
            number,
            name,
            text,
            " ".join(f"{key}={value}" for key, value in defines),
            " ".join(f"{key}={value}" for key, value in constants),
            push,
        )
        for number, requests in enumerate(starts, 1)
        for name, text, defines, constants, push in requests
    ]
    return draw.table_html("Requests", COLUMNS, rows)


def answer_requests(
    starts: Sequence[Sequence[Request]], texts: Mapping[str, str] = TEXTS
) -> dict[str, tuple[str, float, float]]:
    """Return what the runtime's caches do with each request, and the milliseconds of both parts.

    A start begins with nothing in memory; all share one cache folder, which is empty at first.

    Args:
        starts: the requests of each start of the program.
        texts: the kernel that the text of a request stands for.
    """
    answers: dict[str, tuple[str, float, float]] = {}
    with tempfile.TemporaryDirectory(prefix="vklab-") as folder:
        library = store.folder("modules")  # the modules of shaders/lib are not the question
        if library and library.is_dir():
            shutil.copytree(library, Path(folder) / "modules")
        with settings.settings(CACHE=folder, DISABLE_CACHE=False):
            device = open_devices.open_device().device
            for requests in starts:
                with swap("vklab.shader.compiler._memory", {}), PipelineCache(device) as cache:
                    known = kernels.Kernels(device, cache)
                    answers |= _answer(requests, texts, Path(folder) / "kernel.slang", known)
                    known.close()
    return answers


def _answer(
    requests: Sequence[Request], texts: Mapping[str, str], path: Path, known: kernels.Kernels
) -> dict[str, tuple[str, float, float]]:
    """Ask the compiler's cache for SPIR-V, then the device's kernels for a pipeline."""
    info = TensorInfo("x", "float32", (64,))
    answers: dict[str, tuple[str, float, float]] = {}
    shaders: list[compiler.Shader] = []
    made: list[kernels.Kernel] = []
    for name, text, defines, constants, push in requests:
        path.write_text(texts[text], encoding="utf-8")
        dispatch = Dispatch(
            str(path), (), (("y", info),), (2, 1, 1), (("count", push),), defines, constants
        )
        start = time.perf_counter_ns()
        shader = compiler.compile_variant(*dispatch.variant)
        middle = time.perf_counter_ns()
        (kernel,) = known.prepare([dispatch]).values()
        end = time.perf_counter_ns()
        origin = {"cache": "disk"}.get(shader.origin, shader.origin)
        origin = "memory" if any(shader is each for each in shaders) else origin
        how = "reused" if any(kernel is each for each in made) else "made"
        shaders.append(shader)
        made.append(kernel)
        answers[name] = f"{origin}, {how}", (middle - start) / 1e6, (end - middle) / 1e6
    return answers
