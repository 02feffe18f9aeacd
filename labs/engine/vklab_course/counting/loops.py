"""Loops of a kernel: where each one goes round, and whether the counters can leave it.

A loop that can be left ends after a number of turns, so an endless one is counted and named on
every driver. Source: SPIR-V 1.6, section 2.11 'Structured Control Flow'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vklab_course.counting.spirv import Instruction, Op

__all__ = ["Loop", "find_loops"]


@dataclass(frozen=True)
class Loop:
    """One loop.

    Attributes:
        header: label of the block that every turn begins with.
        merge: label of the block behind the loop.
        can_leave: whether the last block of a turn may also go to `merge`.
    """

    header: int
    merge: int
    can_leave: bool


def find_loops(functions: Sequence[Instruction]) -> dict[int, Loop]:
    """Return each loop by the position of the branch that begins its next turn."""
    labels = {words[0]: n for n, (opcode, words) in enumerate(functions) if opcode == Op.LABEL}
    found, block, headers = {}, 0, {}
    for opcode, words in functions:
        if opcode == Op.LABEL:
            block = words[0]
        elif opcode == Op.LOOP_MERGE:
            headers[block] = words[0]
    for position, (opcode, words) in enumerate(functions):
        targets = words if opcode == Op.BRANCH else words[1:3]
        if opcode not in (Op.BRANCH, Op.BRANCH_CONDITIONAL):
            continue
        for header in targets:
            if header in headers and labels[header] < position:
                merge = headers[header]
                leaves = opcode == Op.BRANCH or merge in targets
                can = leaves and _is_closed(functions, labels[header], labels[merge])
                found[position] = Loop(header, merge, can)
    return found


def _is_closed(functions: Sequence[Instruction], start: int, end: int) -> bool:
    """Tell whether nothing behind a loop uses a value that only some turns define.

    Args:
        functions: the instructions.
        start: position of the header's label.
        end: position of the label behind the loop.
    """
    if end < start or functions[end + 1][0] == Op.PHI:
        return False
    body = next(n for n in range(start + 1, end + 1) if functions[n][0] == Op.LABEL)
    defined = {
        words[1]
        for opcode, words in functions[body:end]
        if len(words) > 1 and opcode not in (Op.STORE, Op.BRANCH_CONDITIONAL)
    }
    for opcode, words in functions[end:]:
        if opcode == Op.FUNCTION_END:
            return True
        # Words that are no ids may be mistaken for ids: the loop is then only counted.
        if defined & {*words[2 if opcode not in (Op.STORE, Op.BRANCH_CONDITIONAL) else 0 :]}:
            return False
    return True
