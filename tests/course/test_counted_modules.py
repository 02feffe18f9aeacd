"""Modules with counters are valid, and count alike for every compiler and driver."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest

from support.course import counted_kernels as kernels
from support.course.counted_kernels import CALLS, COUNT, GLSL_MAP, MAP, look, run_of, slang
from support.runs import two_drivers
from support.runs.child import python
from vklab.errors import ShaderError
from vklab.shader import compiler
from vklab.vulkan import instance
from vklab_course.children.child import Ended
from vklab_course.counting import observe, shapes
from vklab_course.counting.instrument import instrument

pytestmark = pytest.mark.full


def test_aliases_and_other_buffers_are_refused_in_the_module(tmp_path):
    text = kernels.GLSL_HEAD.replace("binding = 1) buffer", "binding = 0) buffer")
    path = tmp_path / "kernel.comp"
    path.write_text(text + "void main() { y[0] = x[count]; }")
    with pytest.raises(ShaderError, match="Y and X share binding 0"):
        instrument(compiler.compile_variant(str(path)).spirv, {"X": 4, "Y": 4})
    path.write_text(kernels.GLSL_HEAD + "void main() { y[0] = x[count]; }")
    spirv = compiler.compile_variant(str(path)).spirv
    with pytest.raises(ShaderError, match="X is not a buffer of this exercise, which has Y, Z"):
        instrument(spirv, {"Y": 4, "Z": 4})


def test_a_kernel_of_megabytes_is_refused_before_it_is_read(monkeypatch):
    doubled = ["#define A0 y[0] += x[1] * x[2];"]
    doubled += [f"#define A{n + 1} A{n} A{n}" for n in range(13)]
    text = kernels.GLSL_HEAD.replace("\n", "\n" + "\n".join(doubled) + "\n", 1)

    def read(spirv):
        raise AssertionError(f"{len(spirv)} bytes were read")

    monkeypatch.setattr(observe.reflection, "reflect", read)
    (seen,) = observe.observe_kernel(text + "void main() { A13 }", run_of(MAP))
    assert seen.status == "refused" and not seen.dispatches
    assert "bytes of SPIR-V, the limit is 1,048,576" in seen.message


# ------------------------------------------------------------------- compilers and drivers

EVERY = {"map": MAP, "glsl": GLSL_MAP, "calls": CALLS, "four": kernels.FOUR,
         "vectors": kernels.FOUR_VECTORS, "reduction": kernels.REDUCTION,
         "shared": kernels.SLANG_REDUCTION, "histogram": kernels.HISTOGRAM,
         "product": kernels.REGISTERS, "endless": slang("while (push.count > 0) y[id.x] += 1;"),
         "leaves": slang("for (uint k = 0; ; ++k) { float v = x[k] * 3; if (v > 9) { y[k] = v; "
                         "return; } if (v > 4) break; } y[3] = x[2];")}  # fmt: skip


def modules(text, folder):
    """Yield a kernel's SPIR-V as it is compiled, optimised, and in an old version of SPIR-V."""
    path = folder / ("kernel.comp" if "#version" in text else "kernel.slang")
    path.write_text(text)
    shader = compiler.compile_variant(str(path))
    units = dict.fromkeys(shader.reflection.bindings, 4)
    yield "vulkan1.3", shader.spirv, units
    (folder / "plain.spv").write_bytes(shader.spirv)
    if shutil.which("spirv-opt"):
        command = ["spirv-opt", "-O", "--target-env=vulkan1.3", "plain.spv", "-o", "fast.spv"]
        subprocess.run(command, cwd=folder, check=True)
        yield "vulkan1.3", (folder / "fast.spv").read_bytes(), units
    if path.suffix == ".comp" and shutil.which("glslangValidator"):
        command = ["glslangValidator", "-V", "--target-env", "vulkan1.0", path, "-o", "old.spv"]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        yield "vulkan1.0", (folder / "old.spv").read_bytes(), units


@pytest.mark.parametrize("name", EVERY)
def test_counted_modules_are_valid(name, tmp_path):
    if not shutil.which("spirv-val"):
        pytest.skip("spirv-val is not installed (Debian: spirv-tools)")
    for environment, spirv, units in modules(EVERY[name], tmp_path):
        for is_full in (True, False):
            (tmp_path / "counted.spv").write_bytes(instrument(spirv, units, is_full).spirv)
            command = ["spirv-val", "--target-env", environment, "counted.spv"]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
            assert done.returncode == 0, (environment, is_full, done.stdout + done.stderr)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [
    "glsl", "reduction", *(pytest.param(name, marks=pytest.mark.full) for name in ("calls", "four"))
])  # fmt: skip
def test_optimised_and_old_modules_are_counted_alike(name, tmp_path, monkeypatch):
    text, totals = EVERY[name], []
    y = np.zeros(16 if name == "reduction" else COUNT, np.float32)
    for _, spirv, _ in modules(text, tmp_path):
        monkeypatch.setattr(observe, "_compile", lambda *_, spirv=spirv: (spirv, None))
        seen, result = look(text, run_of(text, y=y))
        assert seen.status == "ran", seen
        totals.append([seen.counts.total(field) for field in ("loads", "stores", "barriers")])
        totals[-1] += [seen.buffers[result].tolist(), seen.counts.writes[result].tolist()]
    assert len(totals) > 1 and totals[1:] == totals[:-1]


@pytest.mark.gpu
def test_the_validation_layer_has_nothing_to_say():
    if instance.VALIDATION_LAYER not in instance.layers():
        pytest.skip("the validation layer is not installed")
    code = """
import sys
from pathlib import Path
from vklab_course.children import kernel_child
from vklab.runtime import open_devices
made = open_devices.open_device
opened = []
open_devices.open_device = lambda name: opened.append(made(name)) or opened[-1]
kernel_child.main(Path(sys.argv[1]))
opened[0].device.instance.raise_messages()
print(len(list(Path(sys.argv[1]).glob("out-*.json"))))
"""
    said = []

    def child(module, arguments, folder, seconds, variables=None):
        said.append(python(code, folder, VKLAB_VALIDATE="1"))
        return Ended("exited", 0, "")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(observe.run_kernel, "run_child", child)
        for text, y in ((MAP, None), (kernels.REDUCTION, np.zeros(16, np.float32))):
            seen, _ = look(text, run_of(text, y=y))
            assert seen.status == "ran", seen
    assert said == ["5\n", "5\n"]


@pytest.mark.gpu
@pytest.mark.full
@pytest.mark.parametrize("name", ["map", "glsl", "reduction", "vectors"])
def test_swiftshader_counts_as_lavapipe_does(name):
    text, seen = EVERY[name], []
    y = np.zeros(16 if name == "reduction" else COUNT, np.float32)
    for device in ("llvmpipe", "SwiftShader"):
        options = {"device": device, "variables": two_drivers.drivers()}
        observed, result = look(text, run_of(text, y=y), **options)
        assert observed.status == "ran", observed
        assert shapes.order_matters(observed) == ""
        seen.append(observed)
    one, other = (each.counts for each in seen)
    assert np.array_equal(one.log, other.log) and one.traffic == other.traffic
    for field, numbers in one.by_invocation.items():
        assert np.array_equal(numbers, other.by_invocation[field]), field
    assert np.array_equal(one.writes[result], other.writes[result])
