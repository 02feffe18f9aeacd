"""Kernels that take part in fusion: the lists of `ops.fusable` and the texts say the same."""

from __future__ import annotations

import re

import pytest
from small_models import ROOT, stock_variant

from vklab.ops import fusable
from vklab.ops.dtypes import raw_defines, type_defines
from vklab.shader import compiler, toolchain
from vklab.types import Dispatch, TensorInfo

KERNELS = {path.stem: path.read_text("utf-8") for path in (ROOT / "shaders/ops").glob("*.slang")}
STORE = """
#define FUSED_PARAMS uint e_run, e_size; float p0;
#define STORE(element, value) store_fused(element, value)
StructuredBuffer<float> e_buffer;
void store_fused(uint element, float value) {
    float e = e_buffer[element / params.e_run % params.e_size];
    y_buffer[element] = Y(Y_STORE(value * params.p0 + e));
}
"""
LOAD = """
#define LOAD(element) load_fused(element)
StructuredBuffer<float> z_buffer;
float load_fused(uint element) { return abs(z_buffer[element]); }
"""


def kernels_with(pattern: str) -> set[str]:
    return {name for name, text in KERNELS.items() if re.search(pattern, text)}


def test_the_lists_are_what_the_kernels_say():
    assert kernels_with(r"\bSTORE\(") == fusable.STORES
    assert kernels_with(r"\bLOAD\(") == fusable.LOADS
    fused = fusable.STORES | fusable.LOADS
    assert kernels_with(r'#include "lib/fused.slangh"') == fused
    assert kernels_with(r"struct Params \{[^}]*\n    FUSED_PARAMS\n\}") >= fused


def test_what_is_fused_goes_through_the_macros_alone():
    for name in fusable.STORES:
        assert not re.search(r"\by_buffer\[", KERNELS[name]), name
    for name in fusable.LOADS:
        assert not re.search(r"\bx_buffer\[", KERNELS[name]), name


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(fusable.STORES | fusable.LOADS))
def test_kernels_compile_with_what_is_fused_and_keep_room_for_it(name):
    if toolchain.find_toolchain("slang") is None:
        pytest.skip("no compiler for slang")
    _, defines, _ = stock_variant(name)
    plain = compiler.compile_variant(name, defines).reflection
    fragment = LOAD * (name in fusable.LOADS) + STORE * (name in fusable.STORES)
    fused = compiler.compile_variant(name, defines, fragment).reflection
    bindings, push = set(plain.bindings), set(plain.push)
    if name in fusable.LOADS:
        bindings = bindings - {"x_buffer"} | {"z_buffer"}
    if name in fusable.STORES:
        bindings |= {"e_buffer"}
        push |= {"e_run", "e_size", "p0"}
    assert (set(fused.bindings), set(fused.push)) == (bindings, push)
    assert plain.push_bytes <= 128


def test_usual_products_and_convolutions_leave_room_for_ten_numbers():
    if toolchain.find_toolchain("slang") is None:
        pytest.skip("no compiler for slang")
    for name in ("matmul", "conv"):
        assert compiler.compile_variant(*stock_variant(name)).reflection.push_bytes <= 128 - 40


def dispatch(kernel: str, defines: tuple[tuple[str, str], ...], *written: str) -> Dispatch:
    x, y = TensorInfo("x", "float32", (4,)), TensorInfo("y", "float32", (4,))
    writes = tuple((name, y) for name in written)
    return Dispatch(kernel, (("x_buffer", x),), writes, (1, 1, 1), (), defines)


def test_only_what_writes_one_y_takes_an_epilogue():
    assert fusable.stores(dispatch("pool", (), "y_buffer"))
    assert not fusable.stores(dispatch("pool", (), "indices_buffer"))
    assert not fusable.stores(dispatch("normalize", (), "y_buffer", "mean_buffer"))
    assert not fusable.stores(dispatch("top_k", (), "y_buffer"))
    assert fusable.loads(dispatch("pool", (), "indices_buffer"))
    assert not fusable.loads(dispatch("conv", (), "y_buffer"))


def test_kernels_that_move_bits_are_told_what_these_mean():
    raw = (*raw_defines("X", "float32")[:2], *raw_defines("Y", "float32")[::2], ("K", "int"))
    typed = (*type_defines("X", "float32")[:2], *type_defines("Y", "float32")[::2], ("K", "int"))
    assert dict(fusable.typed(dispatch("gather", raw, "y_buffer"))) == dict(typed)
    assert dict(fusable.typed(dispatch("gather", typed, "y_buffer"))) == dict(typed)
