"""Environments of peers: packages that cannot stand beside those of this process, a folder each.

Full builds of ONNX Runtime own one module, so each is installed in a folder of its own, which
`worker.Worker` puts first in its child. `vklab bench peers` makes the folders;
`vklab parity` finds them.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from vklab.base import store
from vklab.errors import SetupError
from vklab.types import DeviceInfo

# Environments of several packages. Their dependencies are those of vklab; pnnx also asks for torch,
# which its program does not use.
REQUIREMENTS = {
    "ncnn": ("--no-deps", "ncnn", "pnnx"),
    "iree": ("--no-deps", "iree-base-compiler", "iree-base-runtime"),
}
NVIDIA = 0x10DE
SECONDS = 1800.0  # for one installation
SHOWN = 300  # characters of pip's last line


def folder(given: Path | None = None) -> Path | None:
    """Return the folder above the environments: the given one, or that of vklab's cache.

    None where caches are switched off.
    """
    return given or store.folder("peers")


def environment(package: str, root: Path | None = None) -> Path | None:
    """Return the environment of a package for `worker.Worker`, or None if it is not set up."""
    above = folder(root)
    return above / package if above and (above / package).is_dir() else None


def command(package: str, target: Path) -> list[str]:
    """Return the command that installs a package with its dependencies into a folder."""
    return [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--target",
        str(target),
        *REQUIREMENTS.get(package, (package,)),
    ]


def set_up(package: str, root: Path | None = None, seconds: float = SECONDS) -> Path:
    """Install a package into an environment of its own, and return its folder.

    One that is there already stays. An installation that fails leaves nothing.

    Args:
        package: name for pip.
        root: folder above the environments; None for that of vklab's cache.
        seconds: time limit.

    Raises SetupError with the last line that pip printed.
    """
    above = folder(root)
    if above is None:
        raise SetupError(
            "there is no folder for environments of peers: caches are switched off",
            "unset VKLAB_DISABLE_CACHE, or name a folder",
        )
    target = above / package
    if target.is_dir():
        return target
    above.mkdir(parents=True, exist_ok=True)
    unfinished = above / f".installing-{secrets.token_hex(8)}"
    try:
        _install(package, unfinished, seconds)
        os.replace(unfinished, target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


def needed(info: DeviceInfo | None) -> tuple[str, ...]:
    """Return the environments of peers that can run on a machine with this device."""
    on_nvidia = ("onnxruntime-gpu",) if info and info.vendor_id == NVIDIA else ()
    return (*on_nvidia, "onnxruntime-webgpu", "ncnn", "iree")


def set_up_all(
    names: Sequence[str], root: Path | None, progress: Callable[[str], object]
) -> Iterator[tuple[str, str]]:
    """Make environments; yield each name with the reason why it failed, "" if it is there.

    Args:
        names: names of environments.
        root: folder above them; None for that of vklab's cache.
        progress: called with each name before its installation.
    """
    for name in names:
        progress(name)
        try:
            set_up(name, root)
            yield name, ""
        except SetupError as error:
            yield name, str(error)


def _install(package: str, target: Path, seconds: float) -> None:
    words = command(package, target)
    repair = f"pip install --target {target.parent / package} {package}"
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise SetupError(f"pip did not install {package} in {seconds:g} s", repair) from error
    if done.returncode or not target.is_dir():
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        said = lines[-1][:SHOWN] if lines else f"exit code {done.returncode}"
        raise SetupError(f"pip cannot install {package}: {said}", repair)
