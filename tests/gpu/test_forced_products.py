"""Every kernel of products, forced by the switch VARIANT, on sizes that no tile divides."""

from __future__ import annotations

import numpy as np
import pytest

import vklab
from support.graphs.forced_products import model, plain, ran
from vklab import settings
from vklab.errors import SettingError
from vklab.plan.tuning.products import row_products
from vklab.types import DeviceInfo

# The text of VARIANT, and the kernel that it chooses.
FORCED = {
    "plain": "matmul", "few rows": "matmul", "shared rows": "matmul", "one row": "matvec",
    "rows at once": "matmul_rows", "tiled 32x32x16 by 4x4": "matmul_tiled",
    "tiled 64x64x16 by 8x8": "matmul_tiled", "tiled 64x128x16": "matmul_tiled",
    "tiled 128x128x16": "matmul_tiled",
}  # fmt: skip
UGLY = [(1, 1, 1), (5, 3, 7), (33, 39, 47), (40, 64, 68), (129, 20, 131), (37, 43, 64)]
SIZES = {
    "shared rows": UGLY[1:],  # it shares the loads of four rows or more
    "one row": [(1, 7, 5), (1, 64, 4096), (1, 129, 68)],
    "rows at once": [(2, 4, 4), (3, 132, 20), (16, 260, 36), (9, 1028, 4)],
}


@pytest.mark.parametrize("relu", [False, True], ids=["plain", "fused"])
@pytest.mark.parametrize("text", FORCED)
def test_a_forced_kernel_is_right_on_ugly_sizes(device, text, relu):
    for number, sizes in enumerate(SIZES.get(text, UGLY)):
        turns = (0, 0) if text in SIZES else (number % 2, number // 2 % 2)
        proto, fed, exact = model(*sizes, relu, turns)
        y, kernels = ran(proto, fed, device, VARIANT=text)
        assert FORCED[text] in kernels
        np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("relu", [False, True], ids=["plain", "fused"])
@pytest.mark.parametrize("sizes", [(64, 600), (1028, 37), (8196, 3)], ids=str)
def test_one_row_reads_transposed_weights_in_fours(device, monkeypatch, sizes, relu):
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
    proto, fed, exact = model(1, *sizes, relu, turns=(0, 1))
    with vklab.load(proto, device=device) as session:
        y = session.run(fed)["y"]
        product, *rest = session.plan.dispatches
    assert product.kernel == "matvec" and product.define_values["FOURS"] == "2"
    assert bool(rest) == (sizes[1] < 100), "few columns are cut into parts"
    np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("sizes", [(64, 1031), (784, 1500), (1032, 1024)], ids=str)
def test_one_row_takes_whole_columns_where_they_are_many(device, monkeypatch, sizes, dtype):
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
    proto, fed, exact = plain(*sizes, dtype)
    y, kernels = ran(proto, fed, device)
    assert kernels == ["matvec_floats"]
    close = 1e-5 if dtype == np.float32 else 2e-3
    np.testing.assert_allclose(y, exact, rtol=close, atol=close)
    fed["a"][0, 3] = np.inf
    y, _ = ran(proto, fed, device)
    assert set(np.unique(y)) == {0, np.inf}, "ReLU of sums that are infinite"


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("sizes", [(40, 2048, 33), (70, 3000, 131), (64, 2050, 64)], ids=str)
def test_parts_of_odd_widths_are_written_in_fours(device, monkeypatch, sizes, constant):
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
    proto, fed, exact = model(*sizes, relu=True, constant=constant)
    with vklab.load(proto, device=device) as session:
        y = session.run(fed)["y"]
        product, added = session.plan.dispatches
    m, _, n = sizes
    ((_, partial),) = product.writes
    assert (product.kernel, product.define_values["WIDE_Y"]) == ("matmul_tiled", "1")
    assert partial.dims[1:] == (m, -(-n // 4) * 4)
    assert (added.kernel, added.push_values["pitch"]) == ("sum_splits", partial.dims[-1])
    np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("text", ["rows at once", "tiled 64x64x16", "one row"])
def test_infinities_and_nan_stay_in_their_rows(device, text):
    m = 1 if text == "one row" else 9
    proto, fed, exact = model(m, 64, 36)
    fed["a"][0, 3] = np.inf
    y, kernels = ran(proto, fed, device, VARIANT=text)
    assert FORCED.get(text, "matmul_tiled") in kernels
    assert np.isinf(y[0]).all()
    np.testing.assert_allclose(y[1:], exact[1:], rtol=1e-4, atol=1e-4)
    fed["a"][0, 5] = np.nan
    y, _ = ran(proto, fed, device, VARIANT=text)
    assert np.isnan(y[0]).all() and np.isfinite(y[1:]).all()


def test_a_forced_kernel_that_does_not_apply_leaves_the_choice_alone(device):
    proto, fed, exact = model(5, 6, 7)
    y, kernels = ran(proto, fed, device, VARIANT="one row")
    assert "matvec" not in kernels
    np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-4)


def test_a_text_that_names_no_kernel_is_an_error(device):
    proto, _, _ = model(5, 6, 7)
    with settings.settings(VARIANT="64x64"), pytest.raises(SettingError, match="names no kernel"):
        vklab.load(proto, device=device)


@pytest.mark.parametrize("precision", ["bf16x3", "half-sums"])
def test_a_device_without_the_matrices_refuses_a_precision_by_name(device, precision):
    proto, _, _ = model(5, 6, 7)
    kinds = {(each.a, each.result) for each in vklab.devices()[device].cooperative_matrices}
    needed = {"bf16x3": ("bfloat16", "float32"), "half-sums": ("float16", "float16")}[precision]
    if needed in kinds:
        vklab.load(proto, device=device, precision=precision).close()
        return
    with pytest.raises(vklab.errors.SetupError, match=f"precision='{precision}' needs cooperative"):
        vklab.load(proto, device=device, precision=precision)


def test_an_unknown_precision_names_the_choices(device):
    proto, _, _ = model(5, 6, 7)
    with pytest.raises(SettingError, match="choose bf16x3, half-sums, int8, exact"):
        vklab.load(proto, device=device, precision="tf32")


@pytest.mark.parametrize("relu", [False, True], ids=["plain", "fused"])
@pytest.mark.parametrize("sizes", [(100, 300, 777), (40, 2048, 33), (17, 600, 65)], ids=str)
def test_weights_of_odd_widths_are_padded_to_whole_loads(device, monkeypatch, sizes, relu):
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
    proto, fed, exact = model(*sizes, relu)
    with vklab.load(proto, device=device) as session:
        y = session.run(fed)["y"]
        product = session.plan.dispatches[0]
    _, k, n = sizes
    assert dict(product.reads)["b_buffer"].dims == (k, 1, 1, 1, -(-n // 4) * 4)
    assert product.define_values["B_FOURS"] == "1"
    np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("m", [2, 5, 16])
def test_a_few_rows_read_large_weights_once(device, monkeypatch, m):
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
    monkeypatch.setattr(row_products, "FEWEST_ELEMENTS", 1 << 16)
    for k, n in ((2052, 132), (640, 260)):
        proto, fed, exact = model(m, k, n, relu=True)
        y, kernels = ran(proto, fed, device)
        assert kernels[0] == "matmul_rows"
        np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-4)
