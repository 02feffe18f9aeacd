"""Compilers of this machine, for labs that call them. Visited by labs 04c and 05."""

from __future__ import annotations

from vklab.errors import SetupError
from vklab.shader import toolchain

__all__ = ["required"]


def required(language: str) -> toolchain.Toolchain:
    """Return the compiler for slang or glsl; SetupError with the command that installs one."""
    found = toolchain.find_toolchain(language)
    if found is None:
        raise SetupError(
            f"there is no compiler for {language} shaders", toolchain.REPAIRS[language]
        )
    return found
