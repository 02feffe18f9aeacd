"""Arithmetic that drivers leave as it is written: no product drawn into a sum, no sum reordered.

An operator then gives the same bits alone and fused into a kernel with others. Only functions are
made exact; a kernel's own loop (`main`) keeps the fused multiply-add that products live by.
"""

from __future__ import annotations

import struct

from vklab.shader import reflection

__all__ = ["exact"]

_ENTRY_POINT, _FUNCTION, _DECORATE, _MEMBER_DECORATE = 15, 54, 71, 72
_ARITHMETIC = frozenset({127, 129, 131, 133, 136, 140, 141})  # OpFNegate, OpFAdd ... OpFMod
_NO_CONTRACTION = 42


def exact(spirv: bytes) -> bytes:
    """Return the module with NoContraction on all float arithmetic outside its entry points.

    Source: SPIR-V 1.6, decoration NoContraction.
    """
    instructions = list(reflection.instructions(spirv))
    entries = {operands[1] for opcode, operands in instructions if opcode == _ENTRY_POINT}
    results: list[int] = []
    is_entry = False
    for opcode, operands in instructions:
        if opcode == _FUNCTION:
            is_entry = operands[1] in entries
        elif opcode in _ARITHMETIC and not is_entry:
            results.append(operands[1])
    words = list(struct.unpack("<5I", spirv[:20]))
    for opcode, operands in instructions:
        if results and opcode in (_DECORATE, _MEMBER_DECORATE):
            for result in results:
                words += [3 << 16 | _DECORATE, result, _NO_CONTRACTION]
            results = []
        words += [(len(operands) + 1) << 16 | opcode, *operands]
    return struct.pack(f"<{len(words)}I", *words)
