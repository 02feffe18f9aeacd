"""LayerNormalization inside products of halves, on devices with matrices of halves.

On other devices the same models show that the norm stays. See test_cooperative for the devices.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_models import random_array

import vklab
from vklab import settings
from vklab.types import DeviceInfo

# rows, columns and products' columns, and what is added to all rows.
SIZES = [(17, 64, 64, 0.0), (33, 96, 68, 8.0), (197, 768, 256, 0.0), (130, 200, 132, -3.0),
         (49, 768, 1024, 1.0), (65, 1000, 72, 0.0)]  # fmt: skip


@pytest.fixture(autouse=True)
def as_gpu(monkeypatch):
    """Take every device for a GPU: CPU devices use no tiles."""
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))


def model(rows, columns, wide, outputs=("y",)):
    """Return Gelu(LayerNorm(x) W + c) as a model in float32, and its constants."""
    values = {"s": random_array((columns,), 1) + 1, "b": random_array((columns,), 2),
              "w": random_array((columns, wide), 3) / np.float32(columns**0.5),
              "c": random_array((wide,), 4)}  # fmt: skip
    nodes = [helper.make_node("LayerNormalization", ["x", "s", "b"], ["h"], epsilon=1e-5),
             helper.make_node("MatMul", ["h", "w"], ["p"]),
             helper.make_node("Add", ["p", "c"], ["q"]), helper.make_node("Gelu", ["q"], ["y"])]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, rows, columns))
    graph = helper.make_graph(nodes, "g", [x], made, [
        numpy_helper.from_array(array.astype(np.float32), name)
        for name, array in values.items()])  # fmt: skip
    opset = helper.make_opsetid("", 20)
    return helper.make_model(graph, ir_version=9, opset_imports=[opset]), values


def exact(x, values):
    x = x.astype(np.float16).astype(np.float64)
    h = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    q = (h * values["s"] + values["b"]) @ values["w"].astype(np.float64) + values["c"]
    return q * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (q + 0.044715 * q**3)))


def ran(proto, x, device, **switches):
    with settings.settings(**switches), vklab.load(proto, device, dtype="float16") as session:
        return session.run({"x": x}), session.plan.dispatches


def is_inside(dispatches):
    """Tell whether a product of matrix units, which takes whole sums, has the norm inside."""
    inside = any(("NORM", "1") in dispatch.defines for dispatch in dispatches)
    alone = any(dispatch.kernel.startswith("normalize") for dispatch in dispatches)
    assert inside != alone
    return inside


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products_normalise_their_rows(device, sizes):
    rows, columns, wide, added = sizes
    proto, values = model(rows, columns, wide)
    x = random_array((1, rows, columns), 5) + np.float32(added)
    x[0, 1, 3] = 90  # one number far from the others
    for off in ("", "inner_norms", "norm_scales"):
        got, dispatches = ran(proto, x, device, DISABLE_PASSES=off)
        kernels = {dispatch.kernel for dispatch in dispatches}
        takes = "matmul_registers" in kernels and "sum_splits" not in kernels
        assert is_inside(dispatches) == (takes and not off)
        np.testing.assert_allclose(got["y"], exact(x, values), rtol=2e-2, atol=2e-2)


def test_a_norm_that_is_an_output_stays(device):
    proto, values = model(33, 64, 64, ("y", "h"))
    x = random_array((1, 33, 64), 5)
    got, dispatches = ran(proto, x, device)
    assert not is_inside(dispatches)
    np.testing.assert_allclose(got["y"], exact(x, values), rtol=2e-2, atol=2e-2)


def test_infinities_and_nan_stay_in_their_rows(device):
    proto, values = model(40, 64, 68)
    x = random_array((1, 40, 64), 5)
    x[0, 3, 5], x[0, 7, 0], x[0, 9] = np.inf, np.nan, 2.5
    got, _ = ran(proto, x, device)
    assert np.isnan(got["y"][0, [3, 7]]).all()
    rest = [row for row in range(40) if row not in (3, 7)]
    np.testing.assert_allclose(got["y"][0, rest], exact(x, values)[0, rest], rtol=2e-2, atol=2e-2)
