"""The compiler that the tests keep loaded gives what slangc gives."""

from __future__ import annotations

import os
import subprocess

import pytest

from stand_ins import loaded_compiler
from support.graphs.small_models import ROOT, stock_variant
from support.runs import slang_server
from vklab.errors import ShaderError
from vklab.shader import modules, processes, source, toolchain


@pytest.fixture
def tools():
    if slang_server.ADDRESS not in os.environ:
        pytest.skip("the compiler is not one that can be kept loaded")
    return toolchain.find_toolchain("slang")


@pytest.mark.full
@pytest.mark.parametrize("kernel", ["elementwise", "matmul", "recurrent", "softmax", "conv"])
def test_a_kernel_is_the_same_to_the_byte(tools, kernel, tmp_path, monkeypatch):
    monkeypatch.delenv("TESTS_SHARE")  # nothing of what is kept
    name, defines, _ = stock_variant(kernel)
    given = tools, source.find(name)
    toolchain.run(*given, tmp_path / "server", defines, source.roots())
    monkeypatch.setattr(processes, "subprocess", subprocess)
    toolchain.run(*given, tmp_path / "slangc", defines, source.roots())
    assert (tmp_path / "server").read_bytes() == (tmp_path / "slangc").read_bytes()


def test_a_module_is_compiled_without_a_process(tools, tmp_path, monkeypatch):
    monkeypatch.setenv("VKLAB_CACHE", str(tmp_path))
    monkeypatch.delenv("TESTS_SHARE")
    monkeypatch.delattr(subprocess.Popen, "_execute_child")
    made = modules.folder(tools)
    names = {path.stem for path in (made / "lib").iterdir()}
    assert names == {path.stem for path in (ROOT / "shaders" / "lib").glob("*.slang")}


def test_what_does_not_compile_has_the_words_of_slangc(tools, tmp_path):
    (tmp_path / "k.slang").write_text("void main() { nix(); }")
    with pytest.raises(ShaderError, match="k.slang:1"):
        toolchain.run(tools, tmp_path / "k.slang", tmp_path / "k.spv", (), ())


def test_outputs_that_nobody_takes_are_forgotten(tmp_path):
    command = ["slangc", str(tmp_path / "k.slang"), "-o", str(tmp_path / "out")]
    (tmp_path / "out").write_bytes(b"made")
    made = tmp_path / "kept"
    for name in ("old", "taken"):
        loaded_compiler.keep(command, str(made / name))
        os.utime(made / name, (0, 0))
    (tmp_path / "out").unlink()
    assert loaded_compiler.copied(command, str(made / "taken"))
    assert (tmp_path / "out").read_bytes() == b"made"
    slang_server.forget(made)
    assert [path.name for path in made.iterdir()] == ["taken"]
