"""Build hook of the wheel: compile the stock kernels, so that no compiler is needed to run models.

The compiler is that of this machine; else its pinned wheel is downloaded alone, without PyTorch,
for the time of the build. Without a compiler the wheel has no kernels, and a warning says so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.requirements import Requirement

NO_KERNELS = (
    "THIS WHEEL HAS NO COMPILED KERNELS: there is no Slang compiler here ({reason}). Without one "
    "where it is installed, all models run on the host. Set VKLAB_SLANGC to slangc and build again."
)


class StockKernels(BuildHookInterface):
    """Compile vklab/_spirv before it is packed; an editable install compiles what it needs."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the stock kernels, or warn that the wheel has none."""
        if version == "editable":
            return
        reason = provide(Path(self.root))
        if reason:
            self.app.display_warning(NO_KERNELS.format(reason=reason))


def provide(root: Path) -> str:
    """Compile the stock kernels of a project root; return why this is impossible, or ""."""
    sys.path.insert(0, str(root))
    try:
        from vklab.shader import stock_builder, toolchain
    finally:
        sys.path.remove(str(root))
    if stock_builder.is_complete():
        return ""
    with tempfile.TemporaryDirectory() as folder:
        reason = ""
        if toolchain.find_toolchain("slang") is None:
            program = installed() or download(root, Path(folder))
            if isinstance(program, str):
                reason = program
            else:
                os.environ["VKLAB_SLANGC"] = str(program)
        if not reason:
            stock_builder.build()
    return reason


def installed() -> Path | None:
    """Return slangc of the environment that builds, which an isolated build does not import."""
    name = "slangc.exe" if os.name == "nt" else "slangc"
    program = Path(sysconfig.get_path("platlib")) / "slangtorch" / "bin" / name
    return program if program.is_file() else None


def download(root: Path, folder: Path) -> Path | str:
    """Return slangc of the wheel that the extra `compiler` pins, or why it is not to be had."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = Requirement(project["optional-dependencies"]["compiler"][0])
    if wanted.marker and not wanted.marker.evaluate():
        return "the Vulkan SDK of this system brings slangc"
    # Without the isolated build's path, which hides the environment's pip.
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--quiet",
            "--disable-pip-version-check",
            "--dest",
            str(folder),
            f"{wanted.name}{wanted.specifier}",
        ],
        capture_output=True,
        text=True,
        env=environment,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        said = (done.stderr.strip().splitlines() or ["it wrote nothing"])[-1]
        return f"pip cannot download {wanted.name}{wanted.specifier}: {said}"
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(folder, [n for n in wheel.namelist() if n.startswith("slangtorch/bin/")])
    (program,) = (folder / "slangtorch" / "bin").glob("slangc*")
    program.chmod(0o755)
    return program
