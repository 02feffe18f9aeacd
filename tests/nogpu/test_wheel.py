"""The wheel: with the SPIR-V of the stock kernels, or with a warning that it has none."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from types import SimpleNamespace

import pytest

from support.graphs.small_models import ROOT
from vklab.shader import stock_builder, toolchain

KERNELS = ("softmax.slang", "trilu.slang")


@pytest.fixture
def hook():
    """Return the module of the build hook."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def small_project(tmp_path):
    """Return a copy of the project with few kernels and no compiled ones."""
    skipped = shutil.ignore_patterns("__pycache__", "_spirv")
    for name in ("vklab", "shaders"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=skipped)
    for name in ("pyproject.toml", "README.md", "LICENSE", "hatch_build.py"):
        shutil.copy(ROOT / name, tmp_path)
    for path in (tmp_path / "shaders" / "ops").glob("*.slang"):
        if path.name not in KERNELS:
            path.unlink()
    return tmp_path


@pytest.mark.full
def test_a_wheel_carries_the_stock_kernels(small_project):
    if toolchain.find_toolchain("slang") is None:
        pytest.skip("no slangc to build the stock with")
    expected = sum(len(stock_builder.variants(ROOT / "shaders/ops" / name)) for name in KERNELS)
    for _ in range(2):  # the second build finds them compiled
        done = subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel"],
            cwd=small_project,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0 and "NO COMPILED" not in done.stderr, done.stderr
        (wheel,) = (small_project / "dist").glob("*.whl")
        with zipfile.ZipFile(wheel) as file:
            names = file.namelist()
        assert sum(name.startswith("vklab/_spirv/") for name in names) == expected > 1
        assert "vklab/_shaders/ops/softmax.slang" in names


@pytest.mark.full
def test_a_wheel_without_a_compiler_says_so(hook, monkeypatch):
    said = []
    build = hook.StockKernels.__new__(hook.StockKernels)
    monkeypatch.setattr(hook.StockKernels, "root", ROOT, raising=False)
    monkeypatch.setattr(
        hook.StockKernels, "app", SimpleNamespace(display_warning=said.append), raising=False
    )
    monkeypatch.setattr(stock_builder, "is_complete", lambda: False)
    monkeypatch.setattr(stock_builder, "build", lambda: pytest.fail("there is no compiler"))
    monkeypatch.setattr(toolchain, "find_toolchain", lambda language: None)
    monkeypatch.setattr(hook, "installed", lambda: None)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    build.initialize("editable", {})
    assert not said
    build.initialize("standard", {})
    (text,) = said
    assert text.startswith("THIS WHEEL HAS NO COMPILED KERNELS") and "slangtorch==" in text


def test_the_downloaded_compiler_is_the_pinned_one(hook, monkeypatch, tmp_path):
    """The wheel is that of the extra `compiler`; of its files only those of slangc are used."""
    asked = []

    def fetch(command, **more):
        asked.append(command[-1])
        with zipfile.ZipFile(tmp_path / "slangtorch-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr("slangtorch/bin/slangc", "#!/bin/sh\n")
            wheel.writestr("slangtorch/bin/libslang.so", "")
            wheel.writestr("slangtorch/__init__.py", "import torch")
        assert "PYTHONPATH" not in more["env"]
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(hook.subprocess, "run", fetch)
    program = hook.download(ROOT, tmp_path)
    assert program == tmp_path / "slangtorch/bin/slangc"
    assert asked[0].startswith("slangtorch==")
    assert os.access(program, os.X_OK) and not (tmp_path / "slangtorch/__init__.py").exists()


SECRET = ("labs/source/", "labs/answers/", "labs/solutions/", "labs/checks/")


def packed(kind: str, folder: str) -> set[str]:
    """Return the paths of the files in a project's wheel or sdist."""
    module = importlib.import_module(f"hatchling.builders.{kind}")
    made = getattr(module, f"{kind.capitalize()}Builder")(str(ROOT / folder))
    return {file.distribution_path for file in made.recurse_included_files()}


def test_no_package_carries_solutions_or_oracles():
    files = packed("sdist", ".") | packed("wheel", ".")
    assert "vklab/runtime/session.py" in files
    assert not [file for file in files if file.startswith(SECRET)]


def test_the_wheel_of_vklab_has_no_course_in_it():
    files = packed("wheel", ".")
    assert [file for file in files if "course" in file] == ["vklab/course.py"]
    assert not [file for file in files if file.startswith("labs/") or "/grade/" in file]


def test_the_wheel_of_the_course_has_its_two_packages_and_nothing_else():
    files = packed("wheel", "labs")
    assert {
        "vklab_course/grade/batch.py",
        "vklab_course/pages/report.html.j2",
        "vklab_labs/__init__.py",
        "vklab_labs/shared/diagram.py",
        "vklab_labs/lab_09/onnx_files.py",
    } <= files
    assert {file.split("/")[0] for file in files} == {"vklab_course", "vklab_labs"}
    assert {file.split("/")[0] for file in packed("sdist", "labs")} <= {
        "engine",
        "lib",
        "README.md",
        "pyproject.toml",
        ".gitignore",
    }


@pytest.mark.parametrize("version", ["standard", "editable"])
def test_the_wheel_of_the_course_puts_the_extension_where_jupyterlab_looks(tmp_path, version):
    builder = importlib.import_module("hatchling.builders.wheel").WheelBuilder(str(ROOT / "labs"))
    (wheel,) = builder.build(directory=str(tmp_path), versions=[version])
    folder = "data/share/jupyter/labextensions/vklab-slang/"
    with zipfile.ZipFile(wheel) as file:
        found = {name.partition(folder)[2] for name in file.namelist() if folder in name}
    assert found == {"package.json", "static/slang.js"}
