"""LayerNormalization inside products of halves against NumPy, on NVIDIA's GPUs.

Other devices run the same models with the norm in a dispatch of its own.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import helper

import vklab
from support.graphs.small_models import model, random_array, value
from vklab import settings
from vklab.plan.tuning import precision, tiles
from vklab.runtime import open_devices

NODE = helper.make_node
# Rows, columns of the norm, columns of the products after it, and what is added to all of x.
SIZES = [(17, 64, 64, 0.0), (33, 96, 68, 8.0), (197, 768, 256, 0.0), (130, 256, 132, -3.0),
         (49, 768, 1024, 1.0), (65, 1024, 72, 30.0), (16, 2048, 20, 0.0)]  # fmt: skip


def block(rows, wide, inner):
    """Return y = Gelu(Norm(x w0 + x) w1 + c1) + r as a model in float32, and its constants."""
    nodes = [
        NODE("MatMul", ["x", "w0"], ["p"]),
        NODE("Add", ["p", "x"], ["s"]),
        NODE("LayerNormalization", ["s", "g", "b"], ["h"], epsilon=1e-5),
        NODE("MatMul", ["h", "w1"], ["q"]),
        NODE("Add", ["q", "c1"], ["u"]),
        NODE("Gelu", ["u"], ["v"]),
        NODE("Add", ["v", "r"], ["y"]),
    ]
    known = {
        "w0": random_array((wide, wide), 1) / np.float32(wide**0.5),
        "w1": random_array((wide, inner), 2) / np.float32(wide**0.5),
        "g": random_array((wide,), 4) + 1,
        "b": random_array((wide,), 5),
        "c1": random_array((inner,), 6),
    }
    given = [value("x", (rows, wide)), value("r", (rows, inner))]
    return model(nodes, given, ["y", "s"], known, opset=20), known


def exact(fed, known):
    x, r = (fed[name].astype(np.float16).astype(np.float64) for name in ("x", "r"))
    w0, w1 = (known[name].astype(np.float16).astype(np.float64) for name in ("w0", "w1"))
    s = (x @ w0 + x).astype(np.float16).astype(np.float64)
    h = (s - s.mean(-1, keepdims=True)) / np.sqrt(s.var(-1, keepdims=True) + 1e-5)
    u = (h * known["g"] + known["b"]) @ w1 + known["c1"]
    return u * 0.5 * (1 + np.vectorize(math.erf)(u / 2**0.5)) + r


def fed_with(rows, wide, inner, added=0.0):
    fed = {
        "x": random_array((rows, wide), 7) + np.float32(added),
        "r": random_array((rows, inner), 8),
    }
    fed["x"][1, 3] = 90  # one number far from the others
    return fed


def ran(device, proto, fed, **switches):
    with settings.settings(**switches), vklab.load(proto, device, dtype="float16") as session:
        return session.run(fed)["y"], session.plan.dispatches


def is_joined(device, dispatches):
    """Tell whether the norm is inside the products, as it must be on devices that can have it."""
    info = open_devices.open_device(device).info
    alone = any(each.kernel.startswith("normalize") for each in dispatches)
    inside = any(("NORM", "1") in each.defines for each in dispatches)
    can = precision.has_known_order(info) and "shuffle" in info.subgroup_operations
    assert alone != inside and inside == can
    return inside


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products_normalise_their_rows(device, sizes):
    rows, wide, inner, added = sizes
    proto, known = block(rows, wide, inner)
    fed = fed_with(*sizes)
    got, dispatches = ran(device, proto, fed, VARIANT="registers")
    is_joined(device, dispatches)
    wanted = exact(fed, known)
    np.testing.assert_allclose(got, wanted, rtol=2e-2, atol=2e-2)
    alone, others = ran(device, proto, fed, VARIANT="registers", DISABLE_PASSES="inner_norms")
    assert any(each.kernel.startswith("normalize") for each in others)
    assert np.abs(got - wanted).mean() < 1.5 * np.abs(alone - wanted).mean() + 1e-4


@pytest.mark.parametrize("tile", tiles.REGISTERS, ids=lambda tile: str(tile.shape))
def test_every_tile_writes_and_reads_moments(device, monkeypatch, tile):
    if not precision.has_known_order(open_devices.open_device(device).info):
        pytest.skip("it is not known which elements of a matrix an invocation has")
    monkeypatch.setattr(tiles, "REGISTERS", (tile,))
    proto, known = block(150, 256, 140)
    fed = fed_with(150, 256, 140, 1.0)
    got, dispatches = ran(device, proto, fed, VARIANT="registers")
    assert is_joined(device, dispatches)
    np.testing.assert_allclose(got, exact(fed, known), rtol=2e-2, atol=2e-2)


def test_infinities_and_nan_stay_in_their_rows(device):
    proto, known = block(40, 64, 68)
    fed = fed_with(40, 64, 68)
    fed["x"][3, 5], fed["x"][7, 0], fed["x"][9] = np.inf, np.nan, 2.5
    got, dispatches = ran(device, proto, fed, VARIANT="registers")
    is_joined(device, dispatches)
    assert np.isnan(got[[3, 7]]).all()
    with np.errstate(invalid="ignore"):
        wanted = exact(fed, known)
    rest = [row for row in range(40) if row not in (3, 7)]
    np.testing.assert_allclose(got[rest], wanted[rest], rtol=2e-2, atol=2e-2)


def test_rows_without_spread_are_the_bias(device):
    """Equal numbers have deviation 0: what is left is divided by the square root of epsilon."""
    proto, known = block(33, 64, 64)
    proto.graph.initializer[0].raw_data = np.zeros((64, 64), np.float32).tobytes()
    fed = {"x": np.full((33, 64), 3, np.float32), "r": random_array((33, 64), 8)}
    known = {**known, "w0": np.zeros((64, 64), np.float32)}
    got, dispatches = ran(device, proto, fed, VARIANT="registers")
    is_joined(device, dispatches)
    np.testing.assert_allclose(got, exact(fed, known), rtol=2e-2, atol=2e-2)
