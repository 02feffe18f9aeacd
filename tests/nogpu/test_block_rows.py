"""Products of blocks on a CPU device: which of them get a row of weights for each invocation."""

from __future__ import annotations

import numpy as np
import pytest

from support.fakes.fake_device import fake_device
from support.graphs.small_models import ROOT
from vklab import settings
from vklab.base import catalogue, stages
from vklab.errors import ModelError
from vklab.ops import blocks, registry
from vklab.plan import block_units
from vklab.plan.tuning import variants
from vklab.plan.tuning.blocks import block_rows
from vklab.shader import stock_builder
from vklab.types import TensorInfo


def product(rows, block_type="Q4_0", elements=64, count=70):
    size = count * blocks.FORMATS[block_type].row_bytes(elements)
    made = registry.apply(
        "MatMulBlocks",
        (TensorInfo("a", "float32", (rows, elements)), TensorInfo("b", "uint32", (-(-size // 4),))),
        {"block_type": block_type, "N": count, "K": elements},
        1,
        "vklab",
    )
    assert isinstance(made, registry.Result)
    return made.dispatches[0]


def test_the_kernels_with_blocks_are_known_before_their_files_are_loaded():
    (rule,) = [each for each in catalogue.stage(stages.CODES) if each.name == "blocks"]
    assert {*block_rows.KERNELS, *block_units.KERNELS, "matmul_nbits"} == {*rule.needs}


def chosen(dispatch, **changes):
    limits = {"minSubgroupSize": changes.get("subgroup_size", 8)}
    (made,) = variants.choose(
        dispatch, fake_device(limits, **{"type": "cpu", "subgroup_size": 8, **changes})
    )
    return made


@pytest.mark.parametrize(("rows", "at_once", "blocks_"), [(1, 1, 1), (8, 8, 1), (9, 8, 2)])
def test_a_cpu_gives_each_invocation_a_row(rows, at_once, blocks_):
    made = chosen(product(rows))
    assert made.kernel == "matvec_blocks" and made.define_values["SHARED"] == "1"
    assert made.constant_values == {"LANES": 1, "ROWS": at_once, "WORKGROUP": 32}
    assert made.workgroups == (3, 1, blocks_)


@pytest.mark.parametrize("changes", [
    {"type": "discrete"}, {"subgroup_size": 4}, {"subgroup_operations": frozenset({"basic"})},
])  # fmt: skip
def test_other_devices_keep_the_dispatch(changes):
    for rows in (1, 9):
        given = product(rows)
        assert chosen(given, **changes) is given


@pytest.mark.parametrize(("rows", "blocks_"), [(1, 1), (9, 2)])
@pytest.mark.parametrize("block_type", ["F16", "BF16", "F32", "Q8_0", "Q4_1"])
def test_a_cpu_loads_words_in_pairs(block_type, rows, blocks_):
    made = chosen(product(rows, block_type), features=frozenset({"shaderInt64"}))
    assert made.kernel == "matvec_pairs" and made.define_values["FORMAT"] == block_type
    assert made.define_values["FLOATS"] == str(int("F" in block_type))
    assert made.constant_values == {"ROWS": min(rows, 8), "WORKGROUP": 32}
    assert made.workgroups == (3, 1, blocks_)
    assert chosen(product(rows, block_type)).kernel == "matvec_blocks"
    for other in (product(rows, "Q5_0"), product(rows, "Q8_0", count=69)):  # 4 bytes are left
        found = chosen(other, features=frozenset({"shaderInt64"}))
        assert found.kernel == "matvec_blocks"


@pytest.mark.parametrize("block_type", ["Q4_1", "F32"])
def test_a_cpu_multiplies_many_rows_as_floats(block_type):
    given = product(16, block_type)
    info = fake_device({"minSubgroupSize": 8}, type="cpu", subgroup_size=8)
    *floats, made = variants.choose(given, info)
    assert made.kernel == "matmul" and made.writes == given.writes and made.flops == given.flops
    assert [each.kernel for each in floats] == ["gather_blocks"] * (block_type != "F32")
    weights = dict(made.reads)["b_buffer"]
    assert (weights.dtype, weights.shape) == ("float32", (70, 64))
    assert all(each.writes == (("y_buffer", weights),) for each in floats)
    for smaller in (product(15, block_type), product(16, block_type, count=31)):
        assert [each.kernel for each in variants.choose(smaller, info)] == ["matvec_blocks"]
    small = fake_device(
        {"minSubgroupSize": 8, "maxStorageBufferRange": 4 * 70 * 64 - 1},
        type="cpu",
        subgroup_size=8,
    )
    assert [each.kernel for each in variants.choose(given, small)] == ["matvec_blocks"]


def test_rows_that_end_within_a_step_keep_the_dispatch():
    given = product(2, "F16", 40)
    assert chosen(given) is given


def test_the_rule_can_be_switched_off():
    with settings.settings(DISABLE_VARIANTS=True):
        given = product(9)
        assert chosen(given) is given


def test_more_elements_than_a_kernel_counts_are_refused():
    with pytest.raises(ModelError, match=r"4294967296 rows of 32 .* fewer than 2\^32 elements"):
        product(1, "Q4_0", 32, 1 << 32)


@pytest.mark.parametrize(("rows", "kernel"), [(0, ""), (8, "matvec_blocks"), (9, "matmul_blocks")])
def test_the_operator_chooses_by_the_rows_of_a(rows, kernel):
    made = registry.apply(
        "MatMulBlocks",
        (
            TensorInfo("a", "float32", (rows, 32)),
            TensorInfo("b", "uint32", (9,), np.zeros(9, np.uint32)),
        ),
        {"block_type": "Q4_0", "N": 2, "K": 32},
        1,
        "vklab",
    )
    assert isinstance(made, registry.Result)
    assert [dispatch.kernel for dispatch in made.dispatches] == ([kernel] if kernel else [])


def test_a_machine_without_a_compiler_has_the_kernels():
    names = ("matvec_blocks", "matvec_pairs", "matmul_blocks", "gather_blocks")
    stock = {
        variant
        for name in names
        for variant in stock_builder.variants(ROOT / "shaders" / "ops" / f"{name}.slang")
    }

    def is_stock(dispatch):
        return (dispatch.kernel, tuple(sorted(dispatch.defines)), "") in stock

    for name in blocks.FORMATS:
        assert is_stock(product(1, name, 256)) and is_stock(product(9, name, 256))
        assert is_stock(chosen(product(1, name, 256)))
        assert is_stock(chosen(product(1, name, 256), features=frozenset({"shaderInt64"})))
        size = 4 * blocks.FORMATS[name].row_bytes(256)
        made = registry.apply(
            "GatherBlocks",
            (TensorInfo("b", "uint32", (-(-size // 4),)), TensorInfo("i", "int64", (1, 5))),
            {"block_type": name, "N": 4, "K": 256},
            1,
            "vklab",
        )
        assert isinstance(made, registry.Result) and is_stock(made.dispatches[0])
