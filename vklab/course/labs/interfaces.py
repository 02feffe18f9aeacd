"""Compilers and the runtime's caches, asked about one shader's text. Visited by lab 05.

Compiles a text in any of three languages, reads the layout of a struct back from SPIR-V, and sends
requests to the runtime's two caches, each start of the program in a process of its own.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from vklab import draw, settings, store
from vklab.course.children.run_limited import run_limited
from vklab.errors import ShaderError, VklabError
from vklab.runtime import kernels, open_devices
from vklab.shader import compiler, reflection, source, toolchain
from vklab.types import Dispatch, TensorInfo
from vklab.vulkan.pipeline import PipelineCache

__all__ = ["SCALE", "Member", "Request", "answer_requests", "compile_text", "reflected_block",
           "requests_of", "requests_table", "routes_table", "vector_adds"]  # fmt: skip

# (name, bytes of one component, components, elements of an array or None)
Member = tuple[str, int, int, int | None]
# (name, text, defines, specialization constants, a push constant)
Request = tuple[str, str, tuple[tuple[str, str], ...], tuple[tuple[str, int], ...], int]
ENDINGS = {"slang": "slang", "glsl": "comp", "hlsl": "hlsl"}
WIDTHS = {1: "uint8_t", 2: "half", 4: "float", 8: "double"}
_STRUCT, _RUNTIME_ARRAY, _DECORATE, _MEMBER_DECORATE = 30, 29, 71, 72
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
    """Return the text of vector_add in Slang, GLSL and HLSL."""
    files = {"slang": "labs/vector_add.slang", "glsl": "labs/vector_add.comp"}
    return {language: source.find(name).read_text("utf-8")
            for language, name in files.items()} | {"hlsl": HLSL}  # fmt: skip


def compile_text(text: str, language: str = "slang", *options: str) -> bytes:
    """Return the SPIR-V of a kernel in slang, glsl or hlsl; slangc reads HLSL, too.

    Raises SetupError without the compiler, ShaderError with the compiler's words.

    Args:
        text: the kernel.
        language: slang, glsl or hlsl.
        options: further words of the command line.
    """
    tools = toolchain.require_toolchain("glsl" if language == "glsl" else "slang")
    with tempfile.TemporaryDirectory(prefix="vklab-") as name:
        path, output = Path(name) / f"kernel.{ENDINGS[language]}", Path(name) / "kernel.spv"
        path.write_text(text, encoding="utf-8")
        command = [*tools.command(path, output, (), ()), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode or not output.is_file():
            raise ShaderError((done.stdout + done.stderr).strip()[-1000:])
        return output.read_bytes()


def reflected_block(fields: Sequence[Member], rules: str) -> tuple[dict[str, int], int]:
    """Return the offsets of a struct's members, and its bytes in an array, from SPIR-V.

    Args:
        fields: at least two members.
        rules: std430 or scalar.
    """
    lines = [f"{WIDTHS[width]} {name}" if components == 1 else
             f"vector<{WIDTHS[width]}, {components}> {name}"
             for name, width, components, _ in fields]  # fmt: skip
    lines = [f"{line};" if count is None else f"{line}[{count}];"
             for line, (*_, count) in zip(lines, fields, strict=True)]  # fmt: skip
    text = (f"struct Block {{ {' '.join(lines)} }};\nStructuredBuffer<Block> blocks;\n"
            "RWStructuredBuffer<Block> copies;\n[shader(\"compute\")] [numthreads(1, 1, 1)]\n"
            "void main(uint3 id : SV_DispatchThreadID) { copies[id.x] = blocks[id.x]; }\n")
    options = ["-fvk-use-scalar-layout"] if rules == "scalar" else []
    listed = list(reflection.instructions(compile_text(text, "slang", *options)))
    structs = {words[0] for code, words in listed
               if code == _STRUCT and len(words) == len(fields) + 1}  # fmt: skip
    block, array = next((words[1], words[0]) for code, words in listed
                        if code == _RUNTIME_ARRAY and words[1] in structs)  # fmt: skip
    places = {fields[words[1]][0]: words[3] for code, words in listed
              if code == _MEMBER_DECORATE and words[0] == block and words[2] == _OFFSET}
    size = next(words[2] for code, words in listed
                if code == _DECORATE and words[:2] == (array, _ARRAY_STRIDE))  # fmt: skip
    return places, size


def routes_table(texts: Mapping[str, str]) -> str:
    """Return a table of what each language compiles to, as HTML.

    Args:
        texts: one kernel, by language.
    """
    rows = []
    for language, text in texts.items():
        try:
            spirv = compile_text(text, language)
        except VklabError as error:
            rows.append((language, "", "", "", str(error)))
            continue
        facts = reflection.reflect(spirv)
        numbers = ", ".join(str(binding.number) for binding in facts.bindings.values())
        rows.append((language, f"{len(spirv):,}", numbers, str(facts.push_bytes), ""))
    return draw.table_html("One kernel, three languages", (
        "language", "bytes of SPIR-V", "bindings", "push-constant bytes", "missing"), rows)


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
    rows = [(number, name, text, " ".join(f"{key}={value}" for key, value in defines),
             " ".join(f"{key}={value}" for key, value in constants), push)
            for number, requests in enumerate(starts, 1)
            for name, text, defines, constants, push in requests]  # fmt: skip
    return draw.table_html("Requests", COLUMNS, rows)


def answer_requests(
    starts: Sequence[Sequence[Request]], texts: Mapping[str, str] = TEXTS
) -> dict[str, tuple[str, float]]:
    """Return what the runtime's caches do with each request, and its milliseconds.

    Each start is a fresh process; all share one cache folder, which is empty at first.

    Args:
        starts: the requests of each start of the program.
        texts: the kernel that the text of a request stands for.
    """
    answers: dict[str, tuple[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="vklab-") as folder:
        library = store.folder("modules")  # the modules of shaders/lib are not the question
        if library and library.is_dir():
            shutil.copytree(library, Path(folder) / "modules")
        for requests in starts:
            done = run_limited(_answer, list(requests), dict(texts), folder, seconds=120)
            if done.status != "returned":
                raise RuntimeError(f"the process of a start {done.message}")
            answers |= done.value
    return answers


def _answer(
    requests: Sequence[Request], texts: Mapping[str, str], folder: str
) -> dict[str, tuple[str, float]]:
    """Ask the compiler's cache for SPIR-V, then the device's kernels for a pipeline."""
    info = TensorInfo("x", "float32", (64,))
    answers: dict[str, tuple[str, float]] = {}
    shaders: list[compiler.Shader] = []
    made: list[kernels.Kernel] = []
    path = Path(folder) / "kernel.slang"
    with settings.settings(CACHE=folder, DISABLE_CACHE=False):
        device = open_devices.open_device().device
        with PipelineCache(device) as cache:
            known = kernels.Kernels(device, cache)
            for name, text, defines, constants, push in requests:
                path.write_text(texts[text], encoding="utf-8")
                dispatch = Dispatch(str(path), (), (("y", info),), (2, 1, 1), (("count", push),),
                                    defines, constants)  # fmt: skip
                start = time.perf_counter_ns()
                shader = compiler.compile_variant(*dispatch.variant)
                origin = "memory" if any(shader is each for each in shaders) else shader.origin
                origin = {"cache": "disk"}.get(origin, origin)
                kernel, = known.prepare([dispatch]).values()
                elapsed_ns = time.perf_counter_ns() - start
                how = "reused" if any(kernel is each for each in made) else "made"
                shaders.append(shader)
                made.append(kernel)
                answers[name] = f"{origin}, {how}", elapsed_ns / 1e6
            known.close()
    return answers
