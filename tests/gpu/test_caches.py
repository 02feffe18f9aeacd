"""Caches on disk, edited shaders, and machines without a compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vklab
from support.graphs.small_models import DATA, relu
from support.models import suite_cases
from support.runs.child import LIMIT_S, env, python
from support.runs.overlay import write_function
from vklab import settings
from vklab.apps import conformance
from vklab.base import store
from vklab.errors import UnsupportedOperatorError
from vklab.runtime import kernels, open_devices
from vklab.shader import compiler, modules, source, stock, stock_builder, toolchain
from vklab.types import Dispatch, TensorInfo
from vklab.vulkan.pipeline import PipelineCache

X = np.array([[1, -2, 3]], np.float32)
# Load and run a model, and say where its shaders came from.
CODE = """
import sys
import numpy as np, vklab
from support.graphs.small_models import DATA
from vklab.shader import compiler
images = np.load(DATA / "digits.npz")["images"][:2]
with vklab.load(DATA / "digits_cnn.onnx", int(sys.argv[1])) as session:
    assert session.check({"image": images}).passed
print(*sorted({shader.origin for shader in compiler._memory.values()}))
"""


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """Give the test a cache folder and a memory of its own."""
    monkeypatch.setenv("VKLAB_CACHE", str(tmp_path / "cache"))
    compiler._memory.clear()
    yield tmp_path / "cache"
    compiler._memory.clear()


def shaders_of(folder: Path) -> list[Path]:
    return sorted((folder / "spirv").glob("*.spv"))


def origin_of_relu(device: int) -> str:
    """Load and run a model of one kernel; return where its shader came from."""
    compiler._memory.clear()
    with vklab.load(relu((1, 3)), device) as session:
        assert session.run(X)["y"].tolist() == [[1, 0, 3]]
    (shader,) = compiler._memory.values()
    return shader.origin


# ------------------------------------------------------------------------------------- SPIR-V


def test_shaders_are_compiled_once(device_index, fresh):
    assert origin_of_relu(device_index) == "compiler"
    assert len(shaders_of(fresh)) == 1
    assert origin_of_relu(device_index) == "cache"


@pytest.mark.parametrize("damage", [b"", b"\0" * 500, b"\3\2#\7" * 100])
def test_a_corrupt_shader_is_compiled_again(device_index, fresh, damage):
    origin_of_relu(device_index)
    (path,) = shaders_of(fresh)
    whole = path.read_bytes()
    for data in (damage, whole[:-1], whole[:100] + b"\xff" + whole[101:]):
        path.write_bytes(data)
        assert origin_of_relu(device_index) == "compiler"
        assert path.read_bytes() == whole


def test_caches_may_be_off(device_index, fresh):
    with settings.settings(DISABLE_CACHE=True):
        for _ in range(2):
            assert origin_of_relu(device_index) == "compiler"
    assert not fresh.exists()


def test_a_cache_that_cannot_be_written_is_done_without(device_index, fresh):
    fresh.parent.mkdir(exist_ok=True)
    fresh.write_text("a file where the folder should be")  # also root cannot write below it
    for _ in range(2):
        assert origin_of_relu(device_index) == "compiler"


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere"
)
def test_a_read_only_cache_is_read(device_index, fresh):
    origin_of_relu(device_index)
    for folder in (fresh / "spirv", fresh):
        folder.chmod(0o555)
    assert origin_of_relu(device_index) == "cache"
    for folder in (fresh, fresh / "spirv"):
        folder.chmod(0o755)


@pytest.mark.full
def test_two_processes_share_a_cache_from_the_start(device_index, tmp_path):
    command = [sys.executable, "-c", CODE, str(device_index)]
    folder = env(VKLAB_CACHE=str(tmp_path))
    running = [
        subprocess.Popen(command, env=folder, text=True, stdout=subprocess.PIPE) for _ in range(3)
    ]
    said = [process.communicate(timeout=LIMIT_S)[0].strip() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert set(" ".join(said).split()) <= {"compiler", "cache"}
    assert python(CODE, device_index, VKLAB_CACHE=str(tmp_path)) == "cache\n"
    assert not list(tmp_path.rglob(".writing-*"))


# ------------------------------------------------------------------------------ compiled modules


def test_damaged_modules_are_compiled_again(device_index, fresh, monkeypatch):
    if toolchain.find_toolchain("slang") is None:
        pytest.skip("no slangc to compile modules with")
    origin_of_relu(device_index)
    (path,) = (fresh / "modules").glob("*/lib/elementwise.slang-module")
    whole = path.read_bytes()
    for data in (whole[:1000] + b"\xff" + whole[1001:], whole[:500], None):
        path.unlink() if data is None else path.write_bytes(data)
        for spirv in shaders_of(fresh):
            spirv.unlink()
        monkeypatch.setattr(modules, "_checked", set())  # as in a new process
        assert origin_of_relu(device_index) == "compiler"
        assert modules.is_whole(path.parent.parent)
    assert [entry.is_dir() for entry in (fresh / "modules").iterdir()] == [True]


def test_a_kernel_that_imports_nothing_makes_no_modules(fresh, tmp_path):
    if toolchain.find_toolchain("slang") is None:
        pytest.skip("no slangc to compile modules with")
    text = 'RWStructuredBuffer<float> y;\n[shader("compute")] [numthreads(1, 1, 1)]\n'
    plain = tmp_path / "plain.slang"
    plain.write_text(f"{text}void main() {{ y[0] = 1; }}\n")
    assert compiler.compile_variant(str(plain)).origin == "compiler"
    assert not (fresh / "modules").exists()
    plain.write_text(f"import lib.index;\n{text}void main() {{ y[0] = 2; }}\n")
    assert compiler.compile_variant(str(plain)).origin == "compiler"
    assert list((fresh / "modules").glob("*/lib/index.slang-module"))


# ----------------------------------------------------------------------------------- pipelines


HEADER_BYTES = 32  # what every pipeline cache starts with, and all that some drivers write


def test_pipelines_are_kept_on_disk(device_index, tmp_path, monkeypatch):
    monkeypatch.setenv("VKLAB_CACHE", str(tmp_path))
    opened = open_devices.open_device(device_index)
    with PipelineCache(opened.device) as cache:
        cache.save()
        assert not (tmp_path / "pipelines").exists()  # nothing is new
        cache._saved = b""
        cache.save()
        info, path = opened.info, cache.path
        assert path is not None and store.read(path) == cache._data()
        assert path.name.startswith(bytes(info.limits["pipelineCacheUUID"]).hex())
        assert len(cache._data()) >= HEADER_BYTES
        kept = cache._data()
    with PipelineCache(opened.device) as again:
        # SwiftShader keeps no pipelines, and puts its header before what it was given.
        assert again._data() in (kept, kept[:HEADER_BYTES] + kept)
        again.save()  # nothing is new
    assert store.read(path) == kept


def test_constants_in_any_order_share_a_pipeline(device_index, tmp_path):
    if toolchain.find_toolchain("slang") is None:
        pytest.skip("no compiler for slang")
    path = tmp_path / "kernel.slang"
    path.write_text("""
[vk::constant_id(0)] const uint GROUP = 32;
[vk::constant_id(1)] const float SCALE = 2;
RWStructuredBuffer<float> y;
[shader("compute")] [numthreads(GROUP, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) { y[id.x] *= SCALE; }
""")
    writes, given = (("y", TensorInfo("y", "float32", (64,))),), (("GROUP", 16), ("SCALE", 3.0))
    dispatches = [
        Dispatch(str(path), (), writes, (1, 1, 1), (), (), constants)
        for constants in (given, given[::-1], (("GROUP", 16),))
    ]
    device = open_devices.open_device(device_index).device
    with PipelineCache(device) as cache:
        known = kernels.Kernels(device, cache)
        first, turned, other = (known.prepare([d])[kernels.key(d)] for d in dispatches)
        assert first is turned and first is not other
        known.close()


def test_the_next_process_finds_the_pipelines(device_index, tmp_path):
    python(CODE, device_index, VKLAB_CACHE=str(tmp_path))
    files = list((tmp_path / "pipelines").glob("*.bin"))
    if not files:
        pytest.skip(f"{vklab.devices()[device_index].name} keeps no pipelines in its cache")
    first = files[0].read_bytes()
    assert len(first) > HEADER_BYTES + 32
    python(CODE, device_index, VKLAB_CACHE=str(tmp_path))
    assert files[0].read_bytes() == first


def test_a_damaged_pipeline_cache_is_an_empty_one(device_index, tmp_path, monkeypatch):
    monkeypatch.setenv("VKLAB_CACHE", str(tmp_path))
    opened = open_devices.open_device(device_index)
    with PipelineCache(opened.device) as cache:
        empty, path = cache._data(), cache.path
    assert path is not None
    for data in (b"", b"garbage" * 100):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        with PipelineCache(opened.device) as cache:
            assert cache._data() == empty


@pytest.mark.parametrize("data", [b"", b"garbage" * 100, b"\x20\0\0\0\1\0\0\0" + b"\xff" * 200])
def test_a_cache_of_another_driver_is_an_empty_one(device_index, tmp_path, monkeypatch, data):
    # Whole by its digest, but nothing that this driver has written.
    monkeypatch.setenv("VKLAB_CACHE", str(tmp_path))
    opened = open_devices.open_device(device_index)
    with PipelineCache(opened.device) as cache:
        path = cache.path
    store.write(path, data)
    with PipelineCache(opened.device) as cache:
        cache.save()
    assert origin_of_relu(device_index) in ("cache", "compiler")


# -------------------------------------------------------------------------------- edited shaders


def run_relu(device: int) -> list[list[float]]:
    with vklab.load(relu((1, 3)), device) as session:
        return session.run(X)["y"].tolist()


@pytest.mark.full
def test_an_edited_shader_is_picked_up_at_once(device_index, tmp_path, fresh):
    assert run_relu(device_index) == [[1, 0, 3]]
    with settings.settings(SHADERS=str(write_function(tmp_path, "relu", "a * Real(2)"))):
        assert run_relu(device_index) == [[2, -4, 6]]
        write_function(tmp_path, "relu", "a * Real(3)")
        assert run_relu(device_index) == [[3, -6, 9]]
    assert run_relu(device_index) == [[1, 0, 3]]


# -------------------------------------------------------------------------- without a compiler


MODELS = ("digits_cnn", "mini_classifier")


def check_models(device: int) -> set[str]:
    """Run two models without generated kernels; return where their shaders came from."""
    compiler._memory.clear()
    for name in MODELS:
        with vklab.load(DATA / f"{name}.onnx", device) as session:
            shape = [2 if isinstance(d, str) else d for d in session.inputs[0].shape]
            images = np.load(DATA / "digits.npz")["images"][:2]
            x = images if name == "digits_cnn" else np.ones(shape, np.float32)
            assert session.check({session.inputs[0].name: x}).passed
    return {shader.origin for shader in compiler._memory.values()}


def stock_keys_of_models(device: int) -> set[str]:
    """Return the names of the stock files that the two models and the relu here ask for."""
    with settings.settings(DISABLE_FUSION=True):
        check_models(device)
        run_relu(device)
    return {stock_key for stock_key, _ in compiler._memory}


# By default only what the two models ask for is built, of the hundred kernels of a wheel.
@pytest.fixture(scope="module", params=["asked for", pytest.param("all", marks=pytest.mark.slow)])
def stock_folder(request, tmp_path_factory, device_index):
    """Build the SPIR-V that a wheel carries."""
    if toolchain.find_toolchain("slang") is None:
        pytest.skip("no slangc to build the stock with")
    folder = tmp_path_factory.mktemp("stock")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "asked for":
            asked = stock_keys_of_models(device_index)
            listed = stock_builder.variants
            patch.setattr(
                stock_builder,
                "variants",
                lambda path: [v for v in listed(path) if compiler.text_key(*v[:2]) in asked],
            )
        least = 20 if request.param == "all" else 5
        assert stock_builder.build(folder) == len(list(folder.glob("*.spv"))) >= least
    return folder


@pytest.fixture
def no_compiler(monkeypatch, stock_folder, fresh):
    """Be a machine with a wheel and no compiler."""
    monkeypatch.setattr(stock, "FOLDER", stock_folder)
    monkeypatch.setattr(toolchain, "_slangtorch", lambda: None)
    monkeypatch.setenv("PATH", str(fresh))
    monkeypatch.delenv("VKLAB_SLANGC", raising=False)
    toolchain._find.cache_clear()
    yield
    toolchain._find.cache_clear()


@pytest.mark.full
def test_stock_kernels_need_no_compiler(device_index, no_compiler):
    assert check_models(device_index) == {"stock"}


@pytest.mark.slow
@pytest.mark.parametrize("stock_folder", ["all"], indirect=True)
def test_every_operator_is_in_stock(device_index, no_compiler):
    chosen = suite_cases.case_of_each_operator()
    report = conformance.run(chosen, f"VULKAN:{device_index}")
    bad = {c.name: o for c, o in report.outcomes.items() if o.status in ("wrong", "error")}
    assert not bad
    assert report.counts()["pass"] > 100


@pytest.mark.full
def test_an_edited_kernel_needs_a_compiler(device_index, no_compiler, tmp_path):
    folder = str(write_function(tmp_path, "relu", "a * Real(2)"))
    with settings.settings(SHADERS=folder), vklab.load(relu((1, 3)), device_index) as session:
        assert session.run(X)["y"].tolist() == [[1, 0, 3]]  # by the host, and it says why
        (reason,) = session.host_reasons.values()
        assert "elementwise" in reason and "no shader compiler" in reason and "slangtorch" in reason
    with (
        settings.settings(SHADERS=folder, FALLBACK=False),
        pytest.raises(UnsupportedOperatorError, match="no shader compiler"),
    ):
        run_relu(device_index)
    assert run_relu(device_index) == [[1, 0, 3]]


def test_progress_is_reported(device_index, fresh):
    seen = []
    images = np.load(DATA / "digits.npz")["images"][:1]
    with vklab.load(DATA / "digits_cnn.onnx", device_index, lambda *a: seen.append(a)) as session:
        session.run(images)
    assert [done for done, _, _ in seen] == list(range(1, len(seen) + 1))
    assert {total for _, total, _ in seen} == {len(seen)}
    assert all(source.find(name).is_file() for _, _, name in seen)
