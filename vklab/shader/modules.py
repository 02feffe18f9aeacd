"""Precompiled copies of the modules in shaders/lib, which cut a kernel's compile time to a third.

A folder is named by a digest of all texts and the compiler, so an edited module is compiled anew;
one whose files differ from its checksums is made again. Visited by lab 05.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from vklab.base import forking, store
from vklab.shader import processes, source
from vklab.shader.toolchain import Toolchain

CHECKSUMS = "checksums"
_lock = forking.lock()
_checked: set[Path] = set()


def folder(toolchain: Toolchain) -> Path | None:
    """Return an include folder with the compiled modules of lib/; None if caches are off.

    A module that does not compile is left out: the compiler reports it with the importing kernel.
    """
    base = store.folder("modules")
    if base is None or toolchain.language != "slang":
        return None
    files: dict[str, Path] = {}
    for root in source.roots():
        for path in sorted((root / "lib").glob("*.slang")):
            files.setdefault(path.stem, path)
    digest = hashlib.sha256(toolchain.version.encode())
    for name, path in sorted(files.items()):
        digest.update(f"{name}\0".encode() + path.read_bytes())
    target = base / digest.hexdigest()[:32]
    with _lock:
        if target not in _checked or not target.is_dir():
            try:
                if not is_whole(target):
                    _make(toolchain, list(files.values()), target)
            except OSError:
                return None  # without the cache, kernels compile more slowly
            _checked.add(target)
    return target


def is_whole(target: Path) -> bool:
    """Tell whether the files of a folder are those that were written, by their checksums."""
    return store.read(target / CHECKSUMS) == _checksums(target)


def _checksums(target: Path) -> bytes:
    """Return a line for each module of a folder: its name and the SHA-256 of its bytes."""
    paths = sorted((target / "lib").glob("*"))
    lines = (f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n" for path in paths)
    return "".join(lines).encode()


def _make(toolchain: Toolchain, files: list[Path], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix="making-"))
    damaged = temporary.with_name(f"{temporary.name}-damaged")
    (temporary / "lib").mkdir()
    includes = [f"-I{root}" for root in source.roots()]

    def compile_module(path: Path) -> None:
        output = temporary / "lib" / f"{path.stem}.slang-module"
        processes.run([toolchain.program, str(path), *includes, "-o", str(output)])

    try:
        with processes.pool(len(files)) as submit:
            for future in [submit(compile_module, path) for path in files]:
                processes.result(future)
        store.write(temporary / CHECKSUMS, _checksums(temporary))
        if target.is_dir() and not is_whole(target):
            target.rename(damaged)
        temporary.rename(target)
    except (OSError, subprocess.TimeoutExpired):
        if not is_whole(target):  # else another process has written it
            raise OSError(f"{target} cannot be written") from None
    finally:
        for folder in (temporary, damaged):
            shutil.rmtree(folder, ignore_errors=True)
