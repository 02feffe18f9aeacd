"""Checks of the doctor, from Python up to the devices, and `examine`, which runs them all.

Each check takes facts and returns Checks; `detect` and `child` collect the facts.
Visited by lab 00.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from vklab.apps.bootstrap import system
from vklab.apps.doctor import child, detect, report
from vklab.apps.doctor.devices import check_devices
from vklab.apps.doctor.report import Check, Report
from vklab.base import draw, store
from vklab.errors import SetupError
from vklab.shader import modules, stock, toolchain

LIST_LIMIT_S = 60.0
PACKAGES = ("numpy", "onnx", "onnxruntime", "vulkan", "rich", "typer", "tqdm", "platformdirs")
OPTIONAL = {"torch": "vklab.from_torch", "slangtorch": "the Slang compiler"}
LEAST_FREE_BYTES = 200 << 20
VALIDATION_LAYER = "VK_LAYER_KHRONOS_validation"


def examine(run: bool = True) -> Report:
    """Check this machine from Python up to kernels that run, and return the report.

    Args:
        run: also run a kernel on every device.
    """
    machine = system.inspect_machine()
    manifests = detect.find_manifests(machine.system)
    listed = child.ask(["list"], LIST_LIMIT_S)
    foundations = [
        check_loader(detect.find_loader(machine.system), machine),
        check_bindings(listed, machine),
        check_drivers(manifests, machine),
    ]
    device_checks, devices = check_devices(listed, manifests, foundations, machine, run)
    checks = [
        check_python(),
        *check_packages(),
        *foundations,
        check_layers(listed, machine),
        check_vulkaninfo(machine),
        *check_compilers(machine),
        *device_checks,
        *check_caches(),
        check_jupyter(),
    ]
    return Report(tuple(checks), devices)


def check_python() -> Check:
    """Check this Python's version."""
    fits = (3, 11) <= sys.version_info[:2] <= (3, 13)
    repair = "" if fits else "install Python 3.11, 3.12 or 3.13 and run vklab with it"
    return Check("Python", fits, f"{platform.python_version()} at {sys.executable}", repair)


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def check_packages() -> list[Check]:
    """Check that vklab's required packages are installed; missing optional ones are notes."""
    versions = {name: _version(name) for name in PACKAGES}
    missing = [name for name, version in versions.items() if not version]
    installed = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    required = Check("packages", not missing, installed)
    if missing:
        line = f"{sys.executable} -m pip install {' '.join(missing)}"
        required = Check("packages", False, f"not installed: {', '.join(missing)}", line)
    extra = {name: _version(name) for name in OPTIONAL}
    there = [f"{name} {version}" for name, version in extra.items() if version]
    absent = [f"no {name} ({OPTIONAL[name]})" for name, version in extra.items() if not version]
    return [
        required,
        Check(
            "optional packages", True, ", ".join(there + absent), report.SET_UP if absent else ""
        ),
    ]


def check_loader(loader: detect.Loader, machine: system.Machine) -> Check:
    """Check that the Vulkan loader opens."""
    if loader.problem:
        repair = report.install_line(machine, "libvulkan1", "the Vulkan loader")
        return Check("Vulkan loader", False, loader.problem, repair)
    return Check("Vulkan loader", True, f"{loader.library}, Vulkan {loader.version}")


def check_bindings(listed: child.Answer, machine: system.Machine) -> Check:
    """Check that the Python bindings open the loader; `check_devices` checks their list."""
    version = _version("vulkan")
    if not version or "No module named 'vulkan'" in listed.problem:
        line = f"{sys.executable} -m pip install vulkan"
        return Check("Vulkan bindings", False, "the Python package vulkan is missing", line)
    if "loader cannot be opened" in listed.problem:
        repair = report.install_line(machine, "libvulkan1", "the Vulkan loader")
        if machine.system == "Darwin":
            # Homebrew on Apple silicon installs it outside of dlopen's search path.
            repair = "export DYLD_FALLBACK_LIBRARY_PATH=/opt/homebrew/lib:/usr/local/lib"
        return Check("Vulkan bindings", False, listed.problem, repair)
    return Check("Vulkan bindings", True, f"vulkan {version}")


def check_drivers(manifests: Sequence[detect.Manifest], machine: system.Machine) -> Check:
    """Check that there are driver manifests, and that their libraries exist."""
    good = [manifest for manifest in manifests if not manifest.problem]
    broken = [f"{manifest.path} {manifest.problem}" for manifest in manifests if manifest.problem]
    names = ", ".join(manifest.path.name for manifest in good)
    variable = machine.drivers_named_by
    if good:
        kept = os.pathsep.join(str(manifest.path) for manifest in good)
        return Check(
            "drivers",
            True,
            "; ".join([names, *broken]),
            report.assign("VK_DRIVER_FILES", kept) if broken else "",
        )
    if variable:
        detail = f"{variable} names no driver manifest that works"
        return Check("drivers", False, "; ".join([detail, *broken]), report.assign(variable, ""))
    if machine.system == "Windows":
        # Drivers of graphics cards stand under their adapter's key; the device checks list them.
        key = rf"HKEY_LOCAL_MACHINE\{detect.REGISTRY_KEY}"
        return Check("drivers", True, "; ".join([f"none under {key}", *broken]))
    repair = report.driver_line(machine)
    return Check("drivers", False, "; ".join(broken) or "no driver manifest was found", repair)


def check_layers(listed: child.Answer, machine: system.Machine) -> Check:
    """Check the instance layers; the validation layer is optional."""
    layers = listed.facts.get("layers")
    if layers is None:
        return Check("instance layers", True, "not known: the layers could not be listed")
    if VALIDATION_LAYER in layers:
        return Check("instance layers", True, ", ".join(layers))
    repair = report.install_line(machine, "vulkan-validationlayers", "the validation layer")
    names = ", ".join(layers) or "none"
    return Check("instance layers", True, f"{names}; the validation layer is optional", repair)


def check_vulkaninfo(machine: system.Machine) -> Check:
    """Check whether vulkaninfo is installed; it is optional."""
    program = shutil.which("vulkaninfo")
    if program is None:
        repair = report.install_line(machine, "vulkan-tools", "vulkaninfo")
        return Check("vulkaninfo", True, "not installed; it is optional", repair)
    return Check("vulkaninfo", True, program)


def check_compilers(machine: system.Machine) -> list[Check]:
    """Check the shader compilers: Slang for kernels, GLSL (optional) for the labs."""
    checks = []
    for language, label in (("slang", "Slang compiler"), ("glsl", "GLSL compiler")):
        try:
            tools = toolchain.find_toolchain(language)
        except SetupError as error:  # VKLAB_SLANGC names a file that is no program
            checks.append(Check(label, False, str(error).splitlines()[0], error.repair))
            continue
        if tools:
            version, problem = _compiler_version(tools)
            repair = toolchain.REPAIRS[language] if problem else ""
            detail = f"{version or problem} at {tools.program}"
            checks.append(Check(label, not problem, detail, repair, essential=language == "slang"))
        elif language == "glsl":
            repair = report.install_line(machine, "glslang-tools", "glslangValidator")
            checks.append(Check(label, True, "none; only labs with .comp shaders need it", repair))
        else:
            shipped = stock.FOLDER.is_dir()
            detail = "none; only the stock kernels, which are shipped compiled, can run"
            detail = detail if shipped else "none, and this copy of vklab ships no compiled kernels"
            checks.append(Check(label, shipped, detail, toolchain.REPAIRS["slang"]))
    return checks


def _compiler_version(tools: toolchain.Toolchain) -> tuple[str, str]:
    """Return the version text of a compiler and "", or "" and the reason for its failure."""
    name = Path(tools.program).name
    flag = "-version" if tools.language == "slang" else "--version"
    try:
        done = subprocess.run(
            [tools.program, flag],
            capture_output=True,
            text=True,
            check=False,
            timeout=detect.TOOL_LIMIT_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"{name} does not run: {error}"
    lines = (done.stdout + done.stderr).strip().splitlines()
    if done.returncode or not lines:
        return "", f"{name} {flag} ended with code {done.returncode}"
    return f"{name} {lines[0]}", ""


def check_caches() -> list[Check]:
    """Check that the cache folder can be written, and that its disk has room."""
    folder = store.folder("spirv")
    if folder is None:
        return [Check("caches", True, "switched off by VKLAB_DISABLE_CACHE")]
    root = folder.parent
    files = [path for path in root.rglob("*") if path.is_file()] if root.is_dir() else []
    size = draw.bytes_text(sum(path.stat().st_size for path in files))
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        detail = f"{root} cannot be written ({error.strerror}): every start compiles again"
        line = report.assign("VKLAB_CACHE", "FOLDER-THAT-CAN-BE-WRITTEN")
        return [Check("caches", True, detail, line)]
    free = shutil.disk_usage(root).free
    room = f"{draw.bytes_text(free)} free at {root}"
    short = free < LEAST_FREE_BYTES
    return [
        Check("caches", True, f"{root}: {len(files)} files, {size}{_damaged(root)}"),
        Check(
            "disk", not short, room, "delete files on this disk" if short else "", essential=False
        ),
    ]


def _damaged(root: Path) -> str:
    """Return a text that names the damaged files of the cache; empty if there are none."""
    files = [*root.glob("spirv/*.spv"), *root.glob("pipelines/*.bin")]
    found = [path for path in files if store.read(path) is None]
    folders = (path.parent for path in root.glob("modules/*/lib"))
    found += [folder for folder in folders if not modules.is_whole(folder)]
    names = ", ".join(str(path.relative_to(root)) for path in found[:3])
    more = ", ..." if len(found) > 3 else ""
    return f"; {len(found)} damaged ({names}{more}), made again at the next use" if found else ""


def check_jupyter() -> Check:
    """Check that JupyterLab is installed; only `vklab lab` needs it."""
    versions = {name: _version(name) for name in ("jupyterlab", "ipykernel")}
    missing = [name for name, version in versions.items() if not version]
    if missing:
        detail = f"no {', '.join(missing)}: needed for `vklab lab`"
        return Check("Jupyter", True, detail, report.SET_UP)
    return Check("Jupyter", True, ", ".join(f"{name} {v}" for name, v in versions.items()))
