"""Exact float arithmetic: marks instructions so that drivers neither contract nor reorder them.

An operator then gives the same bits alone and fused with others. Only functions are marked; a
kernel's own loop (`main`) keeps the fused multiply-add that makes products fast.
"""

from __future__ import annotations

from vklab.shader import reflection

_ENTRY_POINT, _FUNCTION, _DECORATE = 15, 54, 71
_DECORATIONS = (_DECORATE, 72)  # OpMemberDecorate
_ARITHMETIC = frozenset({127, 129, 131, 133, 136, 140, 141})  # OpFNegate, OpFAdd ... OpFMod
_NO_CONTRACTION = 42
# The capability RoundingModeRTE; the modes RoundingModeRTE and DenormPreserve, of 16 bits.
_EXECUTION_MODE, _ROUNDS_TO_EVEN, _HALVES = 16, (17, (4467,)), ((4462, 16), (4459, 16))


def exact(spirv: bytes) -> bytes:
    """Return the module with NoContraction on all float arithmetic outside its entry points.

    A module that declares RoundingModeRTE rounds halves to even, and keeps subnormal ones.
    Source: SPIR-V 1.6, section 'Decoration', NoContraction.
    """
    instructions = list(reflection.instructions(spirv))
    entries = {operands[1] for opcode, operands in instructions if opcode == _ENTRY_POINT}
    marks: list[reflection.Instruction] = []
    is_entry = False
    for opcode, operands in instructions:
        if opcode == _FUNCTION:
            is_entry = operands[1] in entries
        elif opcode in _ARITHMETIC and not is_entry:
            marks.append((_DECORATE, (operands[1], _NO_CONTRACTION)))
    opcodes = [opcode for opcode, _ in instructions]
    first = next((n for n, opcode in enumerate(opcodes) if opcode in _DECORATIONS), None)
    if first is None:
        return spirv
    at = opcodes.index(_ENTRY_POINT) + 1
    modes = [
        (_EXECUTION_MODE, (entry, *mode))
        for entry in entries
        for mode in _HALVES
        if _ROUNDS_TO_EVEN in instructions
    ]
    return reflection.assemble(
        spirv, [*instructions[:at], *modes, *instructions[at:first], *marks, *instructions[first:]]
    )
