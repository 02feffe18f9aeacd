"""Shader text to SPIR-V words: source, toolchain, compiler, stock, reflection.

Uses no device and no graph. Visited by labs 04 and 05.
"""

__all__: list[str] = []
