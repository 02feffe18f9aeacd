"""Shader compilers of this machine: their search, command lines and error messages.

Slang comes from VKLAB_SLANGC, the slangtorch wheel or PATH; GLSL from glslc or
glslangValidator on PATH. Visited by labs 00 and 04.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vklab import settings
from vklab.errors import SetupError, ShaderError
from vklab.shader import processes

REPAIRS = {
    "slang": "pip install slangtorch   (Linux, Windows; after torch), or install the Vulkan SDK "
    "(brings slangc), or set VKLAB_SLANGC to the compiler",
    "glsl": "apt-get install glslang-tools   (Debian, Ubuntu), or install the Vulkan SDK",
}
Defines = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Toolchain:
    """One shader compiler: its language, its program, and a version for cache keys."""

    language: str
    program: str
    version: str

    def command(
        self, source: Path, output: Path, defines: Defines, includes: Sequence[Path]
    ) -> list[str]:
        """Return the command line that compiles one file.

        Args:
            source: file to compile.
            output: SPIR-V file to write.
            defines: pairs of name and value.
            includes: folders searched for imports.
        """
        defined = [f"-D{name}={value}" for name, value in defines]
        folders = [f"-I{folder}" for folder in includes]
        if self.language == "slang":
            # -O0: the wheel lacks the optimiser's library, and drivers optimise anyway.
            options = "-target spirv -O0 -entry main -stage compute"
        elif Path(self.program).name.startswith("glslc"):
            options = "--target-env=vulkan1.3"
        else:
            options = "-V --target-env vulkan1.3"
        return [self.program, str(source), *folders, *defined, *options.split(), "-o", str(output)]


def find_toolchain(language: str) -> Toolchain | None:
    """Return the compiler for slang or glsl, or None."""
    return _find(language, str(settings.get("SLANGC")), os.environ.get("PATH", ""))


@functools.lru_cache(maxsize=16)
def _find(language: str, slangc: str, path: str) -> Toolchain | None:
    names: tuple[str, ...] = ("glslc", "glslangValidator")
    if language == "slang":
        wheel = None if slangc else _slangtorch()
        if wheel:
            return wheel
        names = (slangc or "slangc",)
    for name in names:
        program = shutil.which(name, path=path)
        if program:
            return Toolchain(language, program, _identity(Path(program)))
    if language == "slang" and slangc:
        raise SetupError(f"VKLAB_SLANGC={slangc} is not a program", REPAIRS["slang"])
    return None


def _slangtorch() -> Toolchain | None:
    # find_spec does not import: slangtorch would load torch, and only its program is used.
    spec = importlib.util.find_spec("slangtorch")
    for location in (spec.submodule_search_locations or []) if spec else []:
        program = Path(location) / "bin" / f"slangc{'.exe' if os.name == 'nt' else ''}"
        if program.is_file() and os.access(program, os.X_OK):
            version = importlib.metadata.version("slangtorch")
            return Toolchain("slang", str(program), f"slangtorch-{version}-{platform.machine()}")
    return None


def _identity(program: Path) -> str:
    status = program.resolve().stat()
    return f"{program.name}-{status.st_size}-{status.st_mtime_ns}"


def run(
    toolchain: Toolchain, source: Path, output: Path, defines: Defines, includes: Sequence[Path]
) -> None:
    """Compile one file; on failure ShaderError with file:line and the compiler's message.

    Args:
        toolchain: compiler to run.
        source: file to compile.
        output: SPIR-V file to write.
        defines: pairs of name and value.
        includes: folders searched for imports.
    """
    command = toolchain.command(source, output, defines, includes)
    variant = " ".join(f"{name}={value}" for name, value in defines)
    label = f"{source}" + (f" [{variant}]" if variant else "")
    try:
        done = processes.run(command)
    except subprocess.TimeoutExpired as error:
        raise ShaderError(f"{label}: the compiler did not end in {error.timeout:g} s") from None
    except OSError as error:
        raise SetupError(
            f"{toolchain.program} does not start: {error}", REPAIRS[toolchain.language]
        ) from error
    if done.returncode != 0 or not output.is_file():
        raise ShaderError(_explain(label, done.stdout + done.stderr, done.returncode))


# slangc: "error[E30015]: undefined identifier", " --> dir/file.slang:5:11", the line, "^^^ detail"
_SLANG = re.compile(
    r"^error\S*: (?P<text>.*)\n\s*--> (?P<file>.+?):(?P<line>\d+)(?::\d+)?"
    r"(?:\n.*){2}\n\s*\|\s*\^+ (?P<detail>.*)",
    re.M,
)
# glslc: "file.comp:5: error: ..."; glslangValidator: "ERROR: file.comp:5: ..."
_GLSL = re.compile(r"^(?:ERROR: )?(?P<file>[^\n:]+):(?P<line>\d+):(?: error:)? (?P<text>.*)$", re.M)


def _explain(label: str, output: str, code: int) -> str:
    matches = list(_SLANG.finditer(output)) or list(_GLSL.finditer(output))
    if not matches:
        return f"{label}: the compiler ended with code {code}\n{output.strip()[-2000:]}"
    lines = [
        f"{_short(m['file'])}:{m['line']}: {m.groupdict().get('detail') or m['text'].strip()}"
        for m in matches[:10]
    ]
    return "\n".join([*lines, f"  while compiling {label}"])


def _short(file: str) -> str:
    parts = Path(file).parts
    return "/".join(parts[parts.index("shaders") :]) if "shaders" in parts else file
