"""Memory on a device: tensors beyond what one binding takes, models beyond what there is, and
bytes that nobody may read any more.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from onnx import helper
from small_models import model, random_array, value

import vklab
from vklab.runtime import open_devices


@pytest.fixture
def narrow(device, monkeypatch):
    """Return a function that makes the device bind no more than some bytes at once."""
    opened = open_devices.open_device(device)

    def limit(size):
        limits = {**opened.info.limits, "maxStorageBufferRange": size}
        info = dataclasses.replace(opened.info, limits=limits)
        monkeypatch.setattr(opened, "info", info)

    return limit


def single(op_type, shapes, weights=None, **attributes):
    names = [f"i{n}" for n in range(len(shapes))]
    weights = {f"w{n}": random_array(shape, n) for n, shape in enumerate(weights or [])}
    node = helper.make_node(op_type, [*names, *weights], ["y"], name="it", **attributes)
    return model([node], [value(n, s) for n, s in zip(names, shapes, strict=True)], ["y"], weights)


LARGE = {
    "gemm_one_row": single("Gemm", [(1, 300)], [(400, 300), (400,)], transB=1),
    "gemm_rows": single("Gemm", [(7, 300)], [(400, 300), (400,)], transB=1, alpha=0.5, beta=2.0),
    "gemm_sums": single("Gemm", [(5, 700)], [(700, 160), (5, 160)], alpha=0.5, beta=2.0),
    "gemm_column": single("Gemm", [(1, 300)], [(400, 300), (1,)], transB=1),
    "matmul_sums": single("MatMul", [(2, 3, 640)], [(640, 96)]),
    "matmul_column": single("MatMul", [(640, 96), (96, 1)]),
    "matmul_many_rows": single("MatMul", [(512, 96)], [(96, 80)]),
    "matmul_batches": single("MatMul", [(6, 32, 64), (6, 64, 48)]),
    "matmul_two_batches": single("MatMul", [(6, 3, 16, 64), (6, 1, 64, 48)]),
    "conv_filters": single("Conv", [(2, 64, 9, 9)], [(128, 64, 3, 3), (128,)], pads=[1] * 4),
    "conv_batch": single("Conv", [(8, 16, 32, 32)], [(8, 8, 3, 3)], group=2, pads=[1] * 4),
    "conv_wide": single("Conv", [(1, 4, 64, 64)], [(64, 4, 3, 3), (64,)], pads=[1] * 4),
    "relu": single("Relu", [(64, 1027)]),
    "add_row": single("Add", [(64, 1027), (1027,)]),
    "add_column": single("Mul", [(64, 1040), (64, 1)]),
    "transpose": single("Transpose", [(16, 65, 64)], perm=[0, 2, 1]),
}


@pytest.mark.parametrize("name", LARGE)
def test_work_beyond_the_range_is_cut(device_index, device, narrow, name):
    proto = LARGE[name]
    inputs = {i.name: random_array([d.dim_value for d in i.type.tensor_type.shape.dim], 3)
              for i in proto.graph.input}  # fmt: skip
    with vklab.load(proto, device) as session:
        plain = session.run(inputs)["y"]
        few = len(session.plan.dispatches)
    narrow(64 << 10)
    with vklab.load(proto, device) as session:
        got = session.run(inputs)["y"]
        assert not session.host_reasons and len(session.plan.dispatches) > few
        for dispatch in session.plan.dispatches:
            for _, info in dispatch.reads + dispatch.writes:
                assert info.size_bytes <= 64 << 10
    np.testing.assert_allclose(got, plain, rtol=1e-4, atol=1e-4 * np.abs(plain).max())
