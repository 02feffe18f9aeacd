"""Compilers that a lab calls: without one, the error says what to install."""

from __future__ import annotations

import sys

import pytest

from vklab.errors import SetupError
from vklab.shader import toolchain
from vklab_labs.shared import compilers


@pytest.mark.skipif(sys.platform == "win32", reason="compilers are found otherwise")
@pytest.mark.parametrize("language", ["slang", "glsl"])
def test_without_any_compiler_the_error_says_what_to_install(language, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain, "_slangtorch", lambda: None)
    toolchain._find.cache_clear()
    try:
        with pytest.raises(SetupError, match=f"no compiler for {language}") as caught:
            compilers.required(language)
    finally:
        toolchain._find.cache_clear()
    assert "install" in caught.value.repair
