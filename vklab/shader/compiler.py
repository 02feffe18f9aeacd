"""SPIR-V of a kernel variant: from a compiled model, memory, the disk cache, or the compiler.

A machine without a compiler reads stock SPIR-V instead, which is shipped with vklab. A key digests
the expanded text, the defines and the compiler, so an edited file is compiled anew. Which variants
are needed is decided by `plan`. Visited by labs 04 and 05.
"""

from __future__ import annotations

import contextvars
import hashlib
import logging
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from vklab import settings
from vklab.base import forking, store
from vklab.errors import SetupError, ShaderError
from vklab.shader import exact, modules, processes, reflection, source, stock, toolchain

# Part of every key; the suffix names the rewrite of compiled modules by `exact`.
TARGET = "spirv-vulkan1.3-exact"
log = logging.getLogger(__name__)
Defines = tuple[tuple[str, str], ...]
# (kernel, defines, generated Slang placed before the kernel's text)
Variant = tuple[str, Defines, str]


@dataclass(frozen=True)
class Shader:
    """One compiled variant; `origin` is cache, compiler or stock."""

    name: str
    defines: Defines
    spirv: bytes
    reflection: reflection.Reflection
    origin: str


_given: contextvars.ContextVar[Mapping[Variant, Shader]] = contextvars.ContextVar(
    "vklab_given",
    default={},  # noqa: B039  (never mutated, only replaced)
)
_memory: dict[tuple[str, ...], Shader] = {}
_lock = forking.lock()


def given(shaders: Mapping[Variant, Shader]) -> AbstractContextManager[None]:
    """Use the shaders of a compiled model, before any other source, inside a `with` block."""
    return settings.within(_given, shaders)


def text_key(name: str, defines: Defines = (), fragment: str = "") -> str:
    """Return a digest of text, defines and target of a variant; the compiler is not part of it.

    Args:
        name: name of the kernel, as for `source.find`.
        defines: pairs of name and value that select the variant.
        fragment: generated Slang placed before the kernel's text.
    """
    return stock.key(source.expand(source.find(name), fragment), defines, TARGET)


def compile_variant(name: str, defines: Defines = (), fragment: str = "") -> Shader:
    """Return one variant of a kernel; compile it only if no cached or stock copy exists.

    Raises ShaderError with file:line if it does not compile, SetupError without a compiler and
    without stock SPIR-V for the present text.

    Args:
        name: name of the kernel, as for `source.find`.
        defines: pairs of name and value that select the variant.
        fragment: generated Slang placed before the kernel's text.
    """
    shipped = _given.get().get((name, defines, fragment))
    if shipped is not None:
        _dump(shipped)
        return shipped
    path = source.find(name)
    stock_key = text_key(name, defines, fragment)
    tools = toolchain.find_toolchain(source.language(path))
    key = (stock_key, tools.version if tools else "stock")
    with _lock:
        shader = _memory.get(key)
    if shader is None:
        spirv, origin = _spirv(path, defines, fragment, stock_key, tools)
        shader = Shader(name, defines, spirv, reflection.reflect(spirv), origin)
        with _lock:
            shader = _memory.setdefault(key, shader)
    _dump(shader)
    return shader


def unavailable(name: str, defines: Defines = (), fragment: str = "") -> str:
    """Return the reason why a variant is not available on this machine, or the empty string.

    Without a compiler only the stock variants are available.

    Args:
        name: name of the kernel, as for `source.find`.
        defines: pairs of name and value that select the variant.
        fragment: generated Slang placed before the kernel's text.
    """
    language = source.language(source.find(name))
    if (
        (name, defines, fragment) in _given.get()
        or toolchain.find_toolchain(language)
        or stock.read(text_key(name, defines, fragment))
    ):
        return ""
    return (
        f"kernel {name} {dict(defines)} is not a stock kernel, and there is no shader "
        f"compiler: {toolchain.REPAIRS[language]}"
    )


def _spirv(
    path: Path, defines: Defines, fragment: str, stock_key: str, tools: toolchain.Toolchain | None
) -> tuple[bytes, str]:
    if tools is None:
        shipped = stock.read(stock_key)
        if shipped is None:
            language = source.language(path)
            raise SetupError(
                f"{path.name} {dict(defines)} was edited or is not a stock kernel, and there is "
                f"no compiler for {language}",
                toolchain.REPAIRS[language],
            )
        return shipped, "stock"
    folder = store.folder("spirv")
    digest = hashlib.sha256(f"{stock_key}\0{tools.version}".encode()).hexdigest()
    cached = folder / f"{path.stem}-{digest[:32]}.spv" if folder else None
    spirv = store.read(cached)
    if spirv is not None:
        return spirv, "cache"
    log.debug("compiling %s %s", path.name, dict(defines))
    spirv = _compile(tools, path, defines, fragment)
    store.write(cached, spirv)
    return spirv, "compiler"


def _compile(tools: toolchain.Toolchain, path: Path, defines: Defines, fragment: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="vklab-") as folder:
        output = Path(folder) / "out.spv"
        if fragment:
            text = path.read_text(encoding="utf-8")
            generated = Path(folder) / f"generated_{path.name}"
            generated.write_text(f'{fragment}\n#line 1 "{path.as_posix()}"\n{text}', "utf-8")
            path = generated
        # The modules of lib/ take seconds to make: a kernel that imports nothing does without.
        compiled = modules.folder(tools) if source.IMPORT.search(path.read_text("utf-8")) else None
        includes = [*([compiled] if compiled else []), *source.roots()]
        toolchain.run(tools, path, output, defines, includes)
        return exact.exact(reflection.drop_source(output.read_bytes()))


def _dump(shader: Shader) -> None:
    folder = str(settings.get("DUMP"))
    if folder:
        digest = hashlib.sha256(repr(shader.defines).encode()).hexdigest()[:8]
        target = Path(folder) / f"{Path(shader.name).stem}-{digest}.spv"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(shader.spirv)


def compile_all(
    variants: Iterable[Variant], progress: Callable[[int, int, str], None] | None = None
) -> dict[Variant, Shader]:
    """Compile variants in parallel; `progress` receives (done, total, name) after each.

    Raises ShaderError with the messages of all variants that do not compile.
    """
    pending = list(dict.fromkeys(variants))
    shaders: dict[Variant, Shader] = {}
    failures: list[ShaderError] = []
    with processes.pool(len(pending)) as submit:
        futures = [(variant, submit(compile_variant, *variant)) for variant in pending]
        for done, (variant, future) in enumerate(futures, 1):
            try:
                shaders[variant] = processes.result(future)
            except ShaderError as error:
                failures.append(error)
            if progress:
                progress(done, len(pending), variant[0])
    if any(shader.origin == "compiler" for shader in shaders.values()):
        log.info("compiled or loaded %d kernels", len(shaders))
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ShaderError("\n".join(str(error) for error in failures))
    return shaders
