"""The compiler that the tests keep loaded gives what slangc gives."""

from __future__ import annotations

import os

import pytest
import slang_server
from small_models import stock_variant

from vklab.errors import ShaderError
from vklab.shader import source, toolchain


@pytest.fixture
def tools():
    if slang_server.ADDRESS not in os.environ:
        pytest.skip("the compiler is not one that can be kept loaded")
    return toolchain.find_toolchain("slang")


@pytest.mark.parametrize("kernel", ["elementwise", "matmul", "recurrent", "softmax", "conv"])
def test_a_kernel_is_the_same_to_the_byte(tools, kernel, tmp_path, monkeypatch):
    name, defines, _ = stock_variant(kernel)
    given = tools, source.find(name)
    toolchain.run.__wrapped__(*given, tmp_path / "slangc", defines, source.roots())
    monkeypatch.delattr(toolchain.subprocess, "run")  # what follows starts no process
    toolchain.run(*given, tmp_path / "server", defines, source.roots())
    assert (tmp_path / "server").read_bytes() == (tmp_path / "slangc").read_bytes()


def test_what_does_not_compile_has_the_words_of_slangc(tools, tmp_path):
    (tmp_path / "k.slang").write_text("void main() { nix(); }")
    with pytest.raises(ShaderError, match="k.slang:1"):
        toolchain.run(tools, tmp_path / "k.slang", tmp_path / "k.spv", (), ())
