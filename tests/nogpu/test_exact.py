"""Arithmetic of functions is left as it is written, that of a kernel's own loop is not."""

from __future__ import annotations

import pytest

from vklab.shader import exact, reflection, toolchain

SLANG = """
StructuredBuffer<float> a_buffer;
RWStructuredBuffer<float> y_buffer;
float twice(float a) { return a * 3 + a; }
[shader("compute")] [numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    y_buffer[id.x] = a_buffer[id.x] * a_buffer[id.x + 1] + twice(a_buffer[id.x]);
}
"""
ENTRY_POINT, EXECUTION_MODE, EVEN, SUBNORMAL = 15, 16, 4462, 4459
NO_CONTRACTION, DECORATE, FUNCTION, F_MUL, F_ADD = 42, 71, 54, 133, 129


def decorated(spirv):
    """Return the results that carry NoContraction, and all of float arithmetic by function."""
    marked, found = set(), []
    for opcode, operands in reflection.instructions(spirv):
        if opcode == DECORATE and operands[1] == NO_CONTRACTION:
            marked.add(operands[0])
        elif opcode == FUNCTION:
            found.append([])
        elif opcode in (F_MUL, F_ADD):
            found[-1].append(operands[1])
    return marked, found


def test_functions_are_exact_and_main_is_not(tmp_path):
    tools = toolchain.find_toolchain("slang")
    if tools is None:
        pytest.skip("no compiler for slang")
    (tmp_path / "k.slang").write_text(SLANG)
    toolchain.run(tools, tmp_path / "k.slang", tmp_path / "k.spv", (), ())
    before = (tmp_path / "k.spv").read_bytes()
    after = exact.exact(before)
    assert decorated(before)[0] == set()
    marked, functions = decorated(after)
    in_main, in_twice = sorted(functions, key=lambda results: results[0] in marked)
    assert len(in_main) == len(in_twice) == 2
    assert marked == set(in_twice)
    assert reflection.reflect(after) == reflection.reflect(before)
    assert exact.exact(after[:20]) == after[:20], "nothing to mark, nothing changed"


def test_modules_that_ask_for_it_round_halves_to_even(tmp_path):
    tools = toolchain.find_toolchain("slang")
    if tools is None:
        pytest.skip("no compiler for slang")
    asks = "spirv_asm { OpCapability RoundingModeRTE; OpCapability DenormPreserve; };"
    for text, wanted in (
        (SLANG, set()),
        (SLANG.replace("{ return", f"{{ {asks} return"), {(EVEN, 16), (SUBNORMAL, 16)}),
    ):
        (tmp_path / "k.slang").write_text(text)
        toolchain.run(tools, tmp_path / "k.slang", tmp_path / "k.spv", (), ())
        listed = list(reflection.instructions(exact.exact((tmp_path / "k.spv").read_bytes())))
        modes = {operands[1:] for opcode, operands in listed if opcode == EXECUTION_MODE}
        assert {mode for mode in modes if mode[0] in (EVEN, SUBNORMAL)} == wanted
        opcodes = [opcode for opcode, _ in listed]
        if wanted:  # modes follow the entry points
            assert opcodes[opcodes.index(ENTRY_POINT) + 1] == EXECUTION_MODE
