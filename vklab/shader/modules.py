"""The modules that kernels import, compiled once: a kernel then costs a third of the time.

A folder is named by a digest of all texts and the compiler, so edited modules are made afresh.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from vklab import store
from vklab.shader import source
from vklab.shader.toolchain import LIMIT_SECONDS, Toolchain

__all__ = ["folder"]

_lock = threading.Lock()


def folder(toolchain: Toolchain) -> Path | None:
    """Return an include folder with the compiled modules of lib/; None where caches are off.

    A module that does not compile is left out: the kernel that imports it will say why.
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
        if not target.is_dir():
            try:
                _make(toolchain, list(files.values()), target)
            except OSError:
                return None  # a cache that cannot be written costs time, not results
    return target


def _make(toolchain: Toolchain, files: list[Path], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=target.parent, prefix="making-"))
    (made / "lib").mkdir()
    includes = [f"-I{root}" for root in source.roots()]

    def compile_module(path: Path) -> None:
        output = made / "lib" / f"{path.stem}.slang-module"
        command = [toolchain.program, str(path), *includes, "-o", str(output)]
        subprocess.run(command, capture_output=True, timeout=LIMIT_SECONDS, check=False,
                       stdin=subprocess.DEVNULL)  # fmt: skip

    try:
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            list(pool.map(compile_module, files))
        made.rename(target)
    except (OSError, subprocess.TimeoutExpired):
        if not target.is_dir():  # else another process was faster
            raise OSError(f"{target} cannot be made") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)
