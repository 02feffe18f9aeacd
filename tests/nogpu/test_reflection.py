"""Reflection: names and numbers out of real SPIR-V, and only ShaderError out of damaged one."""

from __future__ import annotations

import struct
import subprocess

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from support.graphs.small_models import stock_variant
from support.runs import tiers
from vklab.errors import ShaderError
from vklab.shader import compiler, reflection, toolchain
from vklab.shader.reflection import Binding, PushConstant, SpecConstant

SLANG = """
[vk::constant_id(0)] const uint WORKGROUP = 64;
[vk::constant_id(7)] const float SCALE = 0.5;
[vk::constant_id(3)] const int SIGNED = -2;
StructuredBuffer<float> a_buffer;
[vk::binding(5)] RWStructuredBuffer<float> y_buffer;
struct Params { uint count; float p; int list[3]; };
[vk::push_constant] ConstantBuffer<Params> params;
[shader("compute")] [numthreads(WORKGROUP, 1, 1)]
void main(uint3 id : SV_DispatchThreadID) {
    if (id.x < params.count)
        y_buffer[id.x] = a_buffer[id.x] * params.p * SCALE + params.list[SIGNED + 3];
}
"""
GLSL = """#version 450
layout(local_size_x_id = 4) in;
layout(constant_id = 1) const bool FLAG = true;
layout(set = 0, binding = 0) readonly buffer A { float a[]; };
layout(set = 0, binding = 1) buffer Y { float y[]; } y_buffer;
layout(push_constant) uniform Push { uint count; vec2 pair; } push;
void main() { if (FLAG) y_buffer.y[0] = a[0] + push.pair.y + float(push.count); }
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Compile one shader of each language that this machine has a compiler for."""
    folder, found = tmp_path_factory.mktemp("spirv"), {}
    for language, text, name in (("slang", SLANG, "k.slang"), ("glsl", GLSL, "k.comp")):
        if tools := toolchain.find_toolchain(language):
            (folder / name).write_text(text)
            toolchain.run(tools, folder / name, folder / "out.spv", (), ())
            found[language] = (folder / "out.spv").read_bytes()
    return found


def spirv_of(compiled: dict[str, bytes], language: str) -> bytes:
    if language not in compiled:
        pytest.skip(f"no compiler for {language}")
    return compiled[language]


WORKGROUP = """
[vk::constant_id(0)] const uint WORKGROUP = 64;
[vk::constant_id(1)] const uint TILE = 8;
struct Pair { float3 a; uint b[2]; };
groupshared float tile[TILE * (WORKGROUP + 1)];
groupshared Pair pairs[3];
groupshared uint64_t wide;
RWStructuredBuffer<float> y_buffer;
[shader("compute")] [numthreads(WORKGROUP, 2, 1)]
void main(uint3 id : SV_DispatchThreadID, uint lane : SV_GroupIndex) {
    tile[lane] = id.x;
    pairs[lane % 3].b[0] = lane;
    wide = lane;
    GroupMemoryBarrierWithGroupSync();
    y_buffer[id.x] = tile[0] + pairs[1].b[0] + pairs[2].a.x + float(wide);
}
"""


@pytest.mark.full
def test_what_a_workgroup_takes(tmp_path):
    tools = toolchain.find_toolchain("slang")
    if tools is None:
        pytest.skip("no compiler for slang")
    (tmp_path / "k.slang").write_text(WORKGROUP)
    toolchain.run(tools, tmp_path / "k.slang", tmp_path / "out.spv", (), ())
    found = reflection.reflect((tmp_path / "out.spv").read_bytes()).workgroup
    assert found.shape({}) == (64, 2, 1)
    assert found.shape({0: 256}) == (256, 2, 1)
    assert found.shared_bytes({}) == 4 * 8 * 65 + 3 * 20 + 8
    assert found.shared_bytes({0: 100, 1: 5}) == 4 * 5 * 101 + 3 * 20 + 8


@pytest.mark.full
def test_what_slang_says(compiled):
    found = reflection.reflect(spirv_of(compiled, "slang"))
    assert found.entry == "main"
    assert found.bindings == {"a_buffer": Binding(0, False), "y_buffer": Binding(5, True)}
    assert found.push == {
        "count": PushConstant(0, "I", 1),
        "p": PushConstant(4, "f", 1),
        "list": PushConstant(8, "i", 3),
    }
    assert found.push_bytes == 20
    assert found.constants == {
        "WORKGROUP": SpecConstant(0, "I", 64),
        "SCALE": SpecConstant(7, "f", 0.5),
        "SIGNED": SpecConstant(3, "i", -2),
    }


def test_what_glsl_says(compiled):
    found = reflection.reflect(spirv_of(compiled, "glsl"))
    assert found.bindings == {"A": Binding(0, False), "y_buffer": Binding(1, True)}
    assert found.push == {"count": PushConstant(0, "I", 1), "pair": PushConstant(8, "f", 2)}
    assert found.constants["FLAG"] == SpecConstant(1, "I", True)


@pytest.mark.parametrize("rules, stride", [("std430", 16), ("scalar", 12)])
def test_elements_of_an_array_keep_their_distance(tmp_path, rules, stride):
    tools = toolchain.find_toolchain("slang")
    if tools is None:
        pytest.skip("no compiler for slang")
    (tmp_path / "k.slang").write_text(
        SLANG.replace("int list[3];", "int list[3]; float3 d[2][2];").replace(
            "* SCALE", "* SCALE * params.d[id.x][1].z"
        )
    )
    options = ["-fvk-use-scalar-layout"] if rules == "scalar" else []
    command = tools.command(tmp_path / "k.slang", tmp_path / "out.spv", (), ())
    subprocess.run([*command, *options], check=True)
    found = reflection.reflect((tmp_path / "out.spv").read_bytes())
    first = found.push["d"].offset
    block = found.packing.pack(1, 2.0, 3, 4, 5, *range(12))
    assert found.push["d"].count == 12 and found.push_bytes == first + 4 * stride == len(block)
    rows = [struct.unpack_from("<3f", block, first + stride * row) for row in range(4)]
    assert rows == [(0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11)]


@pytest.mark.parametrize("language", ["slang", "glsl"])
def test_a_module_cut_off_at_any_word_is_damaged_or_smaller(compiled, language):
    spirv = spirv_of(compiled, language)
    for size in range(0, len(spirv), 4):
        try:
            reflection.reflect(spirv[:size])
            reflection.drop_source(spirv[:size])
        except ShaderError:
            continue


@pytest.mark.parametrize("language", ["slang", "glsl"])
@limits(max_examples=tiers.examples(150))
@given(data=st.data())
@pytest.mark.full
def test_flipped_bits_are_an_error_or_another_module(compiled, language, data):
    damaged = bytearray(spirv_of(compiled, language))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        reflection.reflect(bytes(damaged))
        reflection.drop_source(bytes(damaged))
    except ShaderError:
        return


@pytest.mark.parametrize("data", [b"", b"\3\2#\7", b"hello, world, 24 bytes!!", b"\0" * 64,
                                  b"\3\2#\7" * 5 + b"x"])  # fmt: skip
def test_what_is_no_spirv(data):
    for function in (reflection.reflect, reflection.drop_source):
        with pytest.raises(ShaderError, match="SPIR-V"):
            function(data)


def module(*instructions: tuple[int, ...]) -> bytes:
    """Assemble a module: each instruction is its opcode and its operands."""
    words = [reflection.MAGIC, 0x10500, 0, 100, 0]
    for opcode, *operands in instructions:
        words += [(len(operands) + 1) << 16 | opcode, *operands]
    return struct.pack(f"<{len(words)}I", *words)


def test_instructions_that_are_too_short_or_endless():
    for words in ((5,), (71, 1), (59, 1, 2), (43, 1), (16, 1)):
        try:
            reflection.reflect(module(words))
        except ShaderError:
            continue
    with pytest.raises(ShaderError, match="instruction at word 5 has length 0"):
        reflection.reflect(module() + bytes(4))


def test_types_that_contain_themselves():
    # An array of itself as a push constant: OpTypeArray %1 %1 %2, in OpTypeStruct %3.
    looped = module(
        (28, 1, 1, 2),
        (30, 3, 1),
        (32, 4, 9, 3),
        (43, 5, 2, 7),
        (59, 4, 6, 9),
        (72, 3, 0, 35, 0),
        (6, 3, 0, 0x61),
    )
    with pytest.raises(ShaderError, match="SPIR-V"):
        reflection.reflect(looped)


def test_constants_of_sixty_four_and_sixteen_bits():
    wide = module((21, 1, 64, 0), (50, 1, 2, 7, 1), (71, 2, 1, 0), (5, 2, 0x57))
    assert reflection.reflect(wide).constants["W"] == SpecConstant(0, "Q", 7 | 1 << 32)
    narrow = module((21, 1, 16, 1), (50, 1, 2, 0xFFFE), (71, 2, 1, 0), (5, 2, 0x4E))
    assert reflection.reflect(narrow).constants["N"] == SpecConstant(0, "h", -2)


def test_drop_source_takes_out_opsource_and_nothing_else():
    name, source = (5, 1, 0x61), (3, 11, 1)
    assert reflection.drop_source(module(source, name, source)) == module(name)
    assert reflection.drop_source(module(name)) == module(name)


def test_bindings_outside_of_set_zero_are_declined():
    other = module((30, 1, 9), (32, 2, 12, 1), (59, 2, 3, 12), (71, 3, 33, 0), (71, 3, 34, 1))
    with pytest.raises(ShaderError, match="in descriptor set 1; vklab uses set 0"):
        reflection.reflect(other)


@pytest.mark.full
def test_the_compiled_kernels_of_the_package_are_read(compiled):
    spirv_of(compiled, "slang")
    found = compiler.compile_variant(*stock_variant("softmax")).reflection
    assert list(found.bindings) == ["x_buffer", "y_buffer"]
    assert set(found.push) >= {"rows", "columns", "inner"} and "WORKGROUP" in found.constants
