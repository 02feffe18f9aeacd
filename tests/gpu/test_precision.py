"""Products in chosen precisions on matrix units against float64: bf16x3, half-sums, bfloat16.

They need a device that lists such matrices; its absence is tested in `test_forced_products`.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import vklab
from support.graphs.forced_products import model, ran
from vklab import settings
from vklab.plan.tuning import precision, tiles
from vklab.plan.tuning.products import matrix_products
from vklab.runtime import open_devices
from vklab.types import DeviceInfo

UGLY = [(16, 32, 16), (33, 39, 47), (17, 64, 40), (130, 45, 70), (64, 2048, 64), (95, 777, 130)]
# Largest error as a share of the rms of the result: two bfloat16 have 16 bits, one has 8.
BF16X3, HALF_SUMS, BFLOAT16 = 4e-5, 6e-3, 2.5e-2


@pytest.fixture(autouse=True)
def as_gpu(monkeypatch):
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))


@pytest.fixture
def needs(device):
    def skip_without(kinds):
        if precision.matrix(open_devices.open_device(device).info, kinds) is None:
            pytest.skip(f"the driver lists no cooperative matrix of {kinds}")

    return skip_without


def error(y, exact):
    return np.abs(y.astype(np.float64) - exact).max() / np.sqrt((exact**2).mean())


def chosen(proto, fed, device, name="", **switches):
    with settings.settings(**switches):
        session = vklab.load(proto, device=device, precision=name or None)
    with session:
        kernels = [dispatch.kernel for dispatch in session.plan.dispatches]
        return session.run(fed)["y"], kernels


@pytest.mark.parametrize("turns", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=str)
@pytest.mark.parametrize("sizes", UGLY, ids=str)
@pytest.mark.parametrize("relu", [False, True], ids=["plain", "fused"])
def test_three_products_of_bfloat16_come_near_float32(device, needs, sizes, turns, relu):
    needs(precision.SPLIT)
    proto, fed, exact = model(*sizes, relu, turns, constant=relu)
    y, kernels = chosen(proto, fed, device, "bf16x3")
    assert "matmul_cooperative" in kernels
    assert error(y, exact) < BF16X3
    strict, kernels = chosen(proto, fed, device)
    assert "matmul_cooperative" not in kernels and error(strict, exact) < 2e-6


@pytest.mark.parametrize("tile", tiles.SPLIT, ids=lambda tile: str(tile.shape))
def test_every_tile_of_split_floats_computes_the_same(device, needs, tile):
    needs(precision.SPLIT)
    info = open_devices.open_device(device).info
    one = precision.matrix(info, precision.SPLIT)
    if not matrix_products.suits(tile, matrix_products.Units(one, (tile,), 4, halves=2), info):
        pytest.skip("the tile does not suit this device")
    proto, fed, exact = model(150, 200, 140, relu=True)
    text = "matrix product {}x{}x{} by {}x{}".format(*tile.shape)
    for parts in ("", " in 3 parts"):
        y, kernels = chosen(proto, fed, device, "bf16x3", VARIANT=text + parts)
        assert "matmul_cooperative" in kernels and error(y, exact) < BF16X3


def test_bf16x3_keeps_infinities_nan_and_large_numbers(device, needs):
    needs(precision.SPLIT)
    proto, fed, exact = model(40, 64, 48)
    large = np.float32(3.4e38)  # rounds to infinity in bfloat16
    fed["a"][3, 5], fed["a"][7, 0], fed["a"][9] = np.inf, np.nan, 0
    fed["a"][9, 4] = large
    expected, _ = ran(proto, fed, device)
    y, kernels = chosen(proto, fed, device, "bf16x3")
    assert "matmul_cooperative" in kernels
    np.testing.assert_array_equal(np.isnan(y), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(y), np.isinf(expected))
    np.testing.assert_allclose(y[9], expected[9], rtol=1e-4)
    others = np.delete(np.arange(40), (3, 7, 9))
    assert error(y[others], exact[others]) < BF16X3
    fed["a"][:] = 0
    assert np.array_equal(chosen(proto, fed, device, "bf16x3")[0], ran(proto, fed, device)[0])


@pytest.mark.parametrize("tile", tiles.HALF_SUMS, ids=lambda tile: str(tile.shape))
def test_sums_in_half_stay_within_their_error(device, needs, tile):
    needs(precision.HALF_SUMS)
    info = open_devices.open_device(device).info
    one = precision.matrix(info, precision.HALF_SUMS)
    if not matrix_products.suits(tile, matrix_products.Units(one, (tile,), sum_bytes=2), info):
        pytest.skip("the tile does not suit this device")
    text = "matrix product {}x{}x{} by {}x{}".format(*tile.shape)
    for sizes, relu in (((150, 200, 140), True), ((33, 39, 47), False), ((64, 512, 128), False)):
        proto, fed, exact = model(*sizes, relu, dtype=np.float16)
        y, kernels = chosen(proto, fed, device, "half-sums", VARIANT=text)
        assert "matmul_cooperative" in kernels and error(y, exact) < HALF_SUMS


def test_sums_in_half_overflow_to_infinity(device, needs):
    needs(precision.HALF_SUMS)
    proto, fed, _ = model(32, 64, 32, dtype=np.float16, constant=False)
    fed["a"][:], fed["b"][:] = 60, 60  # 64 x 3,600 is beyond float16
    assert np.isinf(chosen(proto, fed, device, "half-sums")[0]).all()


@pytest.mark.parametrize("turns", [(0, 0), (1, 1)], ids=str)
@pytest.mark.parametrize("sizes", UGLY, ids=str)
def test_models_in_bfloat16_use_matrix_units(device, needs, sizes, turns):
    needs(precision.SPLIT)
    proto, fed, exact = model(*sizes, True, turns, dtype=ml_dtypes.bfloat16)
    y, kernels = chosen(proto, fed, device)
    assert "matmul_cooperative" in kernels
    assert error(y, exact) < BFLOAT16
