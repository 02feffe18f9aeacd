"""Tiled products of int8 in words: code for code those of conv_words, on every tile.

A CPU device chooses no tiles; here it is taken for a GPU. Matrix units are tested where a driver
lists matrices of int8.
"""

from __future__ import annotations

import numpy as np
import pytest

import vklab
from support.graphs.quantized_models import product
from vklab import settings
from vklab.base import catalogue, stages
from vklab.plan.tuning import tiles
from vklab.plan.tuning.blocks import word_tiles
from vklab.types import DeviceInfo

CASES = [
    ("Conv", (2, 20, 9, 7), (37, 20, 3, 3), {"pads": (1, 1, 1, 1)}),
    ("Conv", (3, 3, 17, 13), (33, 3, 5, 5), {"pads": (2, 0, 1, 2), "strides": (2, 3)}),
    ("Conv", (1, 64, 8, 8), (64, 64, 1, 1), {}),
    ("Conv", (1, 33, 17), (19, 33, 3), {"dilations": (2,)}),
    ("Conv", (2, 18, 6, 5), (16, 18, 2, 3), {"dilations": (2, 1), "pads": (1, 2, 0, 1)}),
    ("Gemm", (37, 130), (130, 66), {}),
    ("MatMul", (2, 33, 64), (64, 40), {}),
    ("Gemm", (1, 512), (130, 512), {"transB": 1}),
]
FORMS = [
    {}, {"x": "int8", "y": "int8", "zeros": False}, {"w": "uint8", "between": "Relu"},
    {"per_filter": False, "y": "float32", "between": "Relu"},
]  # fmt: skip


def run(proto, fed, device, **switches):
    with settings.settings(FALLBACK=False, **switches), vklab.load(proto, device) as session:
        (made,) = session.run(fed).values()
        return made, [dispatch.kernel for dispatch in session.plan.dispatches]


def same(case, form, device, monkeypatch, rule, tile):
    """Check that one tile computes what conv_words does."""
    proto, fed = product(*case[:-1], **case[-1], **form)
    expected, plain = run(proto, fed, device, DISABLE_VARIANTS=True)
    with monkeypatch.context() as patch:
        patch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
        rules = [
            each
            for each in catalogue.RULES
            if getattr(each, "stage", "") != stages.WORDS or each.name in (rule, "words")
        ]
        patch.setattr(catalogue, "RULES", rules)
        catalogue.stage.cache_clear()
        patch.setattr(tiles, "WORDS" if rule == "matrix_words" else "DOTS", (tile,))
        made, kernels = run(proto, fed, device)
    catalogue.stage.cache_clear()
    wanted = "matvec_words" if rule == "row_words" else "words_tiled"
    assert wanted in kernels and "conv_words" in plain, (case, kernels)
    if made.dtype == np.float32:
        np.testing.assert_allclose(made, expected, rtol=1e-6, atol=1e-6)
    else:
        np.testing.assert_array_equal(made, expected, err_msg=f"{case} {form}")


@pytest.fixture
def dots(device):
    if "shaderIntegerDotProduct" not in vklab.devices()[device].features:
        pytest.skip("the device has no integer dot product")


@pytest.fixture
def matrices(device):
    if word_tiles.matrix_shape(vklab.devices()[device]) is None:
        pytest.skip("the driver lists no cooperative matrix of int8 with sums in int32")


def test_the_first_tile_by_dots(device, dots, monkeypatch):
    for number, case in enumerate(CASES):
        form = FORMS[number % len(FORMS)]
        same(case, form, device, monkeypatch, "dot_words", tiles.DOTS[0])


FEW = [
    ("Gemm", (1, 37), (37, 11), {}), ("Gemm", (7, 600), (600, 10), {}),
    ("MatMul", (1, 2, 21), (21, 9), {}), ("Gemm", (1, 3000), (18, 3000), {"transB": 1}),
    ("Gemm", (18, 600), (600, 10), {}), ("Conv", (3, 64, 5, 6), (7, 64, 3, 3), {}),
    ("Conv", (2, 33, 4, 5), (10, 33, 3, 4), {"pads": (0, 0, 1, 1), "strides": (2, 2)}),
]  # fmt: skip


def test_few_columns_share_their_sums(device, dots, monkeypatch):
    for number, case in enumerate(FEW):
        for form in (FORMS[number % 4], FORMS[3]):
            same(case, form, device, monkeypatch, "row_words", None)


@pytest.mark.slow
@pytest.mark.parametrize("tile", tiles.DOTS, ids=lambda tile: str(tile.shape))
def test_all_tiles_by_dots(device, dots, monkeypatch, tile):
    for case in CASES:
        for form in FORMS:
            same(case, form, device, monkeypatch, "dot_words", tile)


@pytest.mark.parametrize("tile", tiles.WORDS, ids=lambda tile: str(tile.shape))
def test_all_tiles_on_matrix_units(device, matrices, monkeypatch, tile):
    for case in CASES:
        for form in FORMS:
            same(case, form, device, monkeypatch, "matrix_words", tile)


def test_switches_keep_the_kernel_without_tiles(device, dots, monkeypatch):
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
    proto, fed = product(*CASES[0][:-1], **CASES[0][-1])
    made, kernels = run(proto, fed, device)
    assert "words_tiled" in kernels
    for switch in ("DISABLE_INTEGER_DOT", "DISABLE_PREPACK", "DISABLE_VARIANTS"):
        other, kernels = run(proto, fed, device, **{switch: True})
        assert "conv_words" in kernels and "words_tiled" not in kernels, switch
        np.testing.assert_array_equal(made, other)
