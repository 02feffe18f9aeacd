"""From a kernel's name and defines to SPIR-V: memory, disk cache, compiler, stock, in this order.

Keys carry the expanded text, defines and compiler, so that an edited file is never mistaken for
an old one. Visited by labs 04 and 05.
"""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vklab import settings, store
from vklab.errors import SetupError, ShaderError
from vklab.shader import exact, modules, reflection, source, stock, toolchain

__all__ = ["Shader", "Variant", "clear_memory", "compile_all", "compile_variant", "given",
           "text_key", "unavailable"]

# The last word is what is done to the modules that the compiler makes.
TARGET = "spirv-vulkan1.3-exact"
Defines = tuple[tuple[str, str], ...]
# A kernel, its defines, and generated Slang that goes before its text.
Variant = tuple[str, Defines, str]


@dataclass(frozen=True)
class Shader:
    """One compiled variant; `origin` says where it came from: cache, compiler or stock."""

    name: str
    defines: Defines
    spirv: bytes
    reflection: reflection.Reflection
    origin: str


_given: contextvars.ContextVar[Mapping[Variant, Shader]] = contextvars.ContextVar(
    "vklab_given", default={}  # noqa: B039  (never mutated, only replaced)
)
_memory: dict[tuple[str, ...], Shader] = {}
_lock = threading.Lock()


def clear_memory() -> None:
    """Forget what this process has compiled; the disk cache stays."""
    with _lock:
        _memory.clear()


@contextlib.contextmanager
def given(shaders: Mapping[Variant, Shader]) -> Iterator[None]:
    """Take shaders from a compiled model instead of the compiler inside a `with` block."""
    token = _given.set(shaders)
    try:
        yield
    finally:
        _given.reset(token)


def text_key(name: str, defines: Defines = (), fragment: str = "") -> str:
    """Return a digest of all that decides a variant, but for the compiler."""
    return stock.key(source.expand(source.find(name), fragment), defines, TARGET)


def compile_variant(name: str, defines: Defines = (), fragment: str = "") -> Shader:
    """Return one variant of a kernel, compiled if it has to be.

    Raises ShaderError as file:line if it does not compile, SetupError if there is no compiler
    and no stock SPIR-V for this very text.
    """
    shipped = _given.get().get((name, defines, fragment))
    if shipped is not None:
        _dump(shipped)
        return shipped
    path = source.find(name)
    stock_key = text_key(name, defines, fragment)
    found = toolchain.find_toolchain(source.language(path))
    key = (stock_key, found.version if found else "stock")
    with _lock:
        shader = _memory.get(key)
    if shader is None:
        spirv, origin = _spirv(path, defines, fragment, stock_key, found)
        shader = Shader(name, defines, spirv, reflection.reflect(spirv), origin)
        with _lock:
            shader = _memory.setdefault(key, shader)
    _dump(shader)
    return shader


def unavailable(name: str, defines: Defines = (), fragment: str = "") -> str:
    """Return why a variant cannot be had on this machine; empty if it can.

    With a compiler every variant can be; without one, those that ship.
    """
    language = source.language(source.find(name))
    if (
        (name, defines, fragment) in _given.get()
        or toolchain.find_toolchain(language)
        or stock.read(text_key(name, defines, fragment))
    ):
        return ""
    return (f"kernel {name} {dict(defines)} does not ship, and there is no shader compiler: "
            f"{toolchain.REPAIRS[language]}")  # fmt: skip


def _spirv(
    path: Path, defines: Defines, fragment: str, stock_key: str, found: toolchain.Toolchain | None
) -> tuple[bytes, str]:
    if found is None:
        shipped = stock.read(stock_key)
        if shipped is None:
            language = source.language(path)
            raise SetupError(
                f"{path.name} [{defines}] was edited or is not among the stock kernels, and no "
                f"compiler for {language} was found",
                toolchain.REPAIRS[language],
            )
        return shipped, "stock"
    folder = store.folder("spirv")
    digest = hashlib.sha256(f"{stock_key}\0{found.version}".encode()).hexdigest()
    cached = folder / f"{path.stem}-{digest[:32]}.spv" if folder else None
    spirv = store.read(cached)
    if spirv is not None:
        return spirv, "cache"
    spirv = _compile(found, path, defines, fragment)
    store.write(cached, spirv)
    return spirv, "compiler"


def _compile(
    found: toolchain.Toolchain, path: Path, defines: Defines, fragment: str
) -> bytes:
    with tempfile.TemporaryDirectory(prefix="vklab-") as folder:
        output = Path(folder) / "out.spv"
        if fragment:
            text = path.read_text(encoding="utf-8")
            generated = Path(folder) / f"generated_{path.name}"
            generated.write_text(f'{fragment}\n#line 1 "{path.as_posix()}"\n{text}', "utf-8")
            path = generated
        compiled = modules.folder(found)
        includes = [*([compiled] if compiled else []), *source.roots()]
        toolchain.run(found, path, output, defines, includes)
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
    """Compile variants in parallel; `progress` is called as (done, of, name) after each.

    Every failure is reported, not only the first.
    """
    wanted = list(dict.fromkeys(variants))
    shaders: dict[Variant, Shader] = {}
    failures: list[ShaderError] = []
    context = contextvars.copy_context
    with ThreadPoolExecutor(max_workers=max(1, min(len(wanted), os.cpu_count() or 1))) as pool:
        # Threads of a pool do not see `with settings(...)`: each gets a copy of the caller's.
        futures = [
            (variant, pool.submit(context().run, partial(compile_variant, *variant)))
            for variant in wanted
        ]
        for done, (variant, future) in enumerate(futures, 1):
            try:
                shaders[variant] = future.result()
            except ShaderError as error:
                failures.append(error)
            if progress:
                progress(done, len(wanted), variant[0])
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ShaderError("\n".join(str(error) for error in failures))
    return shaders
