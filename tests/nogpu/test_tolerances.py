"""The one table of tolerances: CHECK, conformance and parity read it, and none is looser."""

import numpy as np
import pytest

from vklab.errors import ModelError
from vklab.runtime import tolerances
from vklab.runtime.observe import compare


def test_check_allows_what_it_always_did():
    assert (compare.RTOL, compare.ATOL) == (1e-4, 5e-6)
    assert compare.HALF == (4e-3, 2e-2)


@pytest.mark.parametrize(("dtype", "bits"), [("float16", 10), ("float32", 23), ("float64", 52)])
def test_conformance_allows_what_it_always_did(dtype, bits):
    allowed = tolerances.operator(dtype)
    assert (allowed.rtol, allowed.atol) == (2 * 2.0**-bits, 8 * 2.0**-bits)
    assert tolerances.epsilon(dtype) == np.finfo(dtype).eps


def test_a_layer_is_held_to_less_than_a_model():
    for dtype in ("float32", "float16"):
        for length in (1, 64, 1024):
            layer = tolerances.layer(dtype, sums="float32", length=length)
            model = tolerances.model(dtype)
            assert layer.rtol < model.rtol and layer.atol <= model.atol


def test_longer_sums_may_be_wrong_by_more():
    atols = [tolerances.layer("float32", length=n).atol for n in (1, 64, 65, 4608)]
    assert atols[0] == atols[1] < atols[2] < atols[3]
    assert "4608 terms in float32" in tolerances.layer("float32", length=4608).reason


def test_sums_in_float32_cost_a_float16_layer_nothing():
    wide = tolerances.layer("float16", sums="float32", length=4608)
    assert wide.atol == tolerances.operator("float16").atol
    assert tolerances.layer("float16", length=4608).atol > 8 * wide.atol


def test_rounded_weights_widen_the_tolerance_of_float32_arithmetic():
    plain, rounded = (tolerances.layer("float32", weights) for weights in ("", "float16"))
    assert rounded.atol > 1000 * plain.atol and "weights rounded to float16" in rounded.reason
    assert tolerances.model("float32", "float16") == tolerances.model("float16")
    assert tolerances.layer("float16", "float32").atol == tolerances.operator("float16").atol


def test_random_sums_stay_inside_with_room():
    random = np.random.default_rng(0)
    for length in (27, 1024, 4608):
        a, b = (random.standard_normal((200, length)).astype(np.float32) for _ in range(2))
        running = np.zeros(200, np.float32)
        for k in range(length):  # in order, the worst that a kernel does
            running = running + a[:, k] * b[:, k]
        truth = (a.astype(np.float64) * b).sum(1)
        allowed = tolerances.layer("float32", length=length)
        worst = np.abs(running - truth).max() / (allowed.atol * np.abs(truth).max())
        assert worst < 1


def test_every_entry_says_why():
    for dtype, entry in tolerances.TABLE.items():
        assert len(entry.reason.split()) > 5, dtype


def test_an_unknown_dtype_is_refused_with_the_choices():
    with pytest.raises(ModelError, match="no tolerance for dtype 'float8'; the table has float64"):
        tolerances.model("float8")
