"""Fused formulas that kernels apply to four neighbours of a row at once.

What a formula reads for them is fetched before the results are known, as one vector or one number.
Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Sequence

from vklab.ops.dtypes import ELEMENTS
from vklab.plan.fusion.generated import Function
from vklab.types import Pointwise

__all__ = ["text"]


def text(
    code: Function, work: Pointwise, offsets: Sequence[str], target: str, body: Sequence[str]
) -> list[str]:
    """Return the lines of a function that stores one element, with those that store four.

    Args:
        code: the function that stores one element.
        work: the formulas.
        offsets: the Slang of the offset of `element` in each buffer.
        target: the same in the result.
        body: the lines of a function of a result and of one element of each buffer.
    """
    kinds = [ELEMENTS[operand.dtype].value for operand in work.operands]
    fields, loads, arguments, buffers = [], [], ["value[j]"], []
    for number, (operand, offset) in enumerate(zip(work.operands[1:], offsets, strict=True)):
        stored, is_row = _stored(code, number), operand.view.strides[-1] == 1
        kind = f"vector<{stored}, 4>" if is_row else stored
        fields.append(f"{kind} x{number};")
        buffers.append(f"StructuredBuffer<{kind}> x{number}_buffer;")
        loads.append(f"    operands.x{number} = x{number}_buffer["
                     + (f"({offset}) / 4" if is_row else offset) + "];")  # fmt: skip
        part = f"operands.x{number}[j]" if is_row else f"operands.x{number}"
        loaded = f"X{number}_LOAD" if stored == f"X{number}" else ""
        arguments.append(f"{loaded}({part})" if loaded else part)
    parameters = "".join(f", {kind} x{n}" for n, kind in enumerate(kinds[1:]))
    return [
        "#if WIDE_Y", *buffers,
        f"{ELEMENTS[work.formulas[-1].dtype].value} of_element({kinds[0]} value{parameters}) {{",
        *body, "}",
        "struct Neighbours {", f"    {' '.join(fields) or 'uint none;'}", "};",
        "Neighbours load_four(uint element) {", "    Neighbours operands = {};",
        *code.indices, *loads, "    return operands;", "}",
        f"void store_four(uint element, vector<{kinds[0]}, 4> value, Neighbours operands) {{",
        *code.indices, "    vector<Y, 4> four;",
        "    [unroll] for (uint j = 0; j < 4; ++j)",
        f"        four[j] = Y(Y_STORE(of_element({', '.join(arguments)})));",
        f"    y_buffer[({target}) / 4] = four;", "}", "#define NEIGHBOURS 1", "#else",
        *code.lines, "#endif",
    ]  # fmt: skip


def _stored(code: Function, number: int) -> str:
    """Return the Slang type of the elements of a buffer, as the function of one element has it."""
    ending = f" x{number}_buffer;"
    line = next(line for line in code.buffers if line.endswith(ending))
    return line.removeprefix("StructuredBuffer<").removesuffix(f">{ending}")
