"""Fused texts of half precision: what is computed in halves, and what needs no rounding."""

from __future__ import annotations

import pytest

from support.fakes.fake_device import fake_device
from vklab.plan.fusion.text import codegen, fours, rounding
from vklab.types import Dispatch, Formula, Operand, Pointwise, StridedView, TensorInfo

HALF = TensorInfo("x", "float16", (8,))


def text(formulas, native=True, dtype="float16"):
    """Return the Slang of formulas of one operand."""
    work = Pointwise((8,), (Operand(HALF, dtype, StridedView((1,))),), formulas)
    defines = (rounding.DEFINE,) if native else ()
    return codegen.emit(
        Dispatch(
            "pointwise",
            (),
            (("y_buffer", TensorInfo("y", "float16", (8,))),),
            (1, 1, 1),
            defines=defines,
            pointwise=work,
        )
    ).fragment


def number(value):
    return Formula("p0", (), (value,), "float32")


def test_sums_and_products_of_halves_are_computed_in_halves():
    chain = (
        number(0.5),
        Formula("onnx::mul(a, b)", (0, 1), (), "float16"),
        Formula("onnx::add(a, b)", (2, 0), (), "float16"),
    )
    made = text(chain)
    assert "round_halves_to_even();" in made and "narrow_half" not in made
    assert made.count("    half t") == 2
    plain = text(chain, native=False)
    assert plain.count("narrow_half(") == 2 and "half t" not in plain


@pytest.mark.parametrize("value", [0.1, 1e9, float("inf"), 65536.0])
def test_a_number_that_is_no_half_keeps_float32(value):
    made = text((number(value), Formula("onnx::mul(a, b)", (0, 1), (), "float16")))
    assert "narrow_half(onnx::mul(" in made


def test_results_that_are_halves_already_are_not_rounded():
    chain = (
        Formula("onnx::relu(a)", (0,), (), "float16"),
        Formula("onnx::exp(a)", (1,), (), "float16"),
        Formula("onnx::add(a, b)", (2, 1), (), "float16"),
    )
    made = text(chain)
    assert made.count("narrow_half(") == 1 and "narrow_half(onnx::exp(" in made


def test_a_float32_operand_is_rounded():
    made = text((Formula("onnx::neg(a)", (0,), (), "float16"),), dtype="float32")
    assert "narrow_half(onnx::neg(" in made


def test_devices_must_round_exactly():
    features = frozenset({"shaderFloat16"})
    assert not rounding.has_halves(fake_device(features=features))
    assert not rounding.has_halves(fake_device({"exactFloat16": 1}))
    assert rounding.has_halves(fake_device({"exactFloat16": 1}, features=features))


def epilogue(formulas, native=True):
    """Return the Slang by which a product stores four halves, with one more operand."""
    view = StridedView((1,))
    operands = (Operand(HALF, "float16", view), Operand(HALF, "float16", view))
    return fours.emit(
        Dispatch(
            "matmul_registers",
            (),
            (("y_buffer", TensorInfo("y", "float16", (8,))),),
            (1, 1, 1),
            defines=(rounding.DEFINE,) if native else (),
            epilogue=Pointwise((8,), operands, formulas),
        )
    ).fragment


def test_a_result_that_stays_a_half_until_it_is_stored_is_rounded_by_conversions():
    add = Formula("onnx::add(a, b)", (0, 1), (), "float16")
    made = epilogue((add, Formula("onnx::gelu(a)", (2,), (), "float16")))
    assert "narrow_half" not in made and "half own = half(value);" in made
    assert "= half(onnx::gelu(float(" in made
    assert epilogue((add,), native=False).count("narrow_half(") == 2


def test_a_result_that_is_only_moved_is_rounded_where_it_is_stored():
    made = epilogue((Formula("a", (0,), (), "float16"),))
    assert "narrow_half" not in made and "return value;" in made


@pytest.mark.parametrize("formulas", [
    (Formula("onnx::exp(a)", (0,), (), "float16"),
     Formula("onnx::add(a, b)", (2, 1), (), "float16")),
    (Formula("onnx::add(a, b)", (0, 1), (), "float16"),
     Formula("onnx::exp(a)", (0,), (), "float16"),
     Formula("onnx::mul(a, b)", (2, 3), (), "float16")),
], ids=["first", "second"])  # fmt: skip
def test_a_half_that_another_formula_reads_as_a_float_is_rounded_by_its_bits(formulas):
    made = epilogue(formulas)
    assert "value = narrow_half(value);" in made and "half own" not in made
