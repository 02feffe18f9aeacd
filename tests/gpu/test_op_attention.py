"""Attention beyond ONNX's cases: lengths around workgroups, masks that are broadcast."""

from __future__ import annotations

import numpy as np
import pytest

import vklab
from support.graphs.small_models import one_node, random_array
from vklab import settings
from vklab.errors import ModelError
from vklab.plan.fusion import attention as joining
from vklab.types import DeviceInfo


def run(arrays, device, op_type="Attention", **attributes):
    opset = 27 if op_type == "LinearAttention" else 24
    proto, fed = one_node(op_type, arrays, opset=opset, **attributes)
    with settings.settings(FALLBACK=False), vklab.load(proto, device) as session:
        return session.run(fed)["y0"]


def truth(q, k, v, bias=0.0):
    """Return attention by NumPy; heads of keys are repeated."""
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + bias
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


def heads(batch, count, length, size, seed):
    return random_array((batch, count, length, size), seed)


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 257), (7, 255), (65, 67), (3, 1031)])
def test_lengths(device, queries, keys):
    q, k, v = heads(2, 4, queries, 17, 0), heads(2, 2, keys, 17, 1), heads(2, 2, keys, 13, 2)
    np.testing.assert_allclose(run([q, k, v], device), truth(q, k, v), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(), (1,), (11,), (5, 11), (5, 1), (1, 11), (4, 1, 11),
                                   (2, 1, 5, 11), (2, 4, 1, 1), (7,)])  # fmt: skip
def test_masks_are_broadcast(device, shape):
    q, k, v = heads(2, 4, 5, 8, 0), heads(2, 2, 11, 8, 1), heads(2, 2, 11, 8, 2)
    mask = random_array(shape, 3)
    full = np.full((*shape[:-1], 11), -np.inf) if shape == (7,) else mask
    if shape == (7,):  # what is missing at the end is masked
        full[:7] = mask
    expected = truth(q, k, v, full)
    np.testing.assert_allclose(run([q, k, v, mask], device), expected, rtol=1e-4, atol=1e-5)
    allowed = mask > -1.5
    if np.broadcast_to(allowed, (2, 4, 5, allowed.shape[-1] if shape else 11)).any(-1).all():
        bias = np.where(full > -1.5, 0, -np.inf)
        expected = truth(q, k, v, bias)
        np.testing.assert_allclose(run([q, k, v, allowed], device), expected, rtol=1e-4, atol=1e-5)


def test_no_keys_give_zeros(device):
    q, k, v = heads(1, 2, 3, 4, 0), heads(1, 2, 0, 4, 1), heads(1, 2, 0, 4, 2)
    assert not run([q, k, v], device).any()


def test_heads_that_do_not_fit(device):
    q, k, v = heads(1, 3, 3, 4, 0), heads(1, 2, 5, 4, 1), heads(1, 2, 5, 4, 2)
    with pytest.raises(ModelError, match="do not fit"):
        run([q, k, v], device)


def test_flex_attention_without_changes(device):
    q, k, v = heads(2, 4, 5, 8, 0), heads(2, 2, 11, 8, 1), heads(2, 2, 11, 6, 2)
    y = run([q, k, v], device, "FlexAttention", domain="ai.onnx.preview")
    np.testing.assert_allclose(y, truth(q, k, v), rtol=1e-4, atol=1e-5)


def test_linear_attention_over_many_steps(device):
    q, k, v = (random_array((2, 301, 4 * 6), i) / 4 for i in range(3))
    y = run(
        [q, k, v],
        device,
        "LinearAttention",
        q_num_heads=4,
        kv_num_heads=4,
        update_rule="linear",
        scale=1.0,
        outputs=2,
    )
    q, k, v = (x.reshape(2, 301, 4, 6).swapaxes(1, 2) for x in (q, k, v))
    expected = np.tril(q @ k.swapaxes(-1, -2)) @ v
    np.testing.assert_allclose(y, expected.swapaxes(1, 2).reshape(2, 301, 24), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_one_table_of_angles_serves_all_batches(device, interleaved):
    x, angles = heads(3, 2, 5, 8, 0), random_array((1, 5, 4), 1)
    tables = [np.cos(angles), np.sin(angles)]
    repeated = [np.repeat(table, 3, axis=0) for table in tables]
    more = {"op_type": "RotaryEmbedding", "interleaved": interleaved}
    np.testing.assert_array_equal(
        run([x, *tables], device, **more), run([x, *repeated], device, **more)
    )
    with pytest.raises(ModelError, match="batch, step"):
        run([x, *(table[:, :3] for table in tables)], device, **more)


def kernels_and_result(arrays, device, **attributes):
    proto, fed = one_node("Attention", arrays, opset=24, **attributes)
    with settings.settings(FALLBACK=False), vklab.load(proto, device) as session:
        y = session.run(fed)["y0"]
        return [dispatch.kernel for dispatch in session.plan.dispatches], y


JOINED = [  # queries, keys, size, size of values, what else
    (20, 45, 16, 24, {"mask": "bool"}),
    pytest.param(33, 37, 63, 65, {}, marks=pytest.mark.slow),
    pytest.param(40, 97, 16, 8, {"is_causal": 1}, marks=pytest.mark.slow),
    pytest.param(50, 50, 7, 5, {"is_causal": 1, "softcap": 2.0}, marks=pytest.mark.slow),
    pytest.param(20, 45, 16, 16, {"mask": "bias"}, marks=pytest.mark.slow),
    pytest.param(37, 33, 128, 128, {}, marks=pytest.mark.slow),
    pytest.param(17, 3, 200, 250, {}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("queries", "keys", "size", "value_size", "more"), JOINED)
def test_one_kernel_computes_what_three_do(
    device, monkeypatch, queries, keys, size, value_size, more
):
    """On GPUs only, so a CPU device is taken for one; some rows of the mask close all keys."""
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
    more = dict(more)
    arrays = [
        heads(2, 4, queries, size, 0),
        heads(2, 2, keys, size, 1),
        heads(2, 2, keys, value_size, 2),
    ]
    kind = more.pop("mask", "")
    if kind:
        noise = random_array((2, 1, queries, keys), 3)
        noise[0, 0, 3] = -np.inf
        arrays.append(noise > 0 if kind == "bool" else np.where(noise < -1, -np.inf, noise))
        arrays[-1] = arrays[-1] if kind == "bool" else arrays[-1].astype(np.float32)
    names, y = kernels_and_result(arrays, device, **more)
    if names != ["attention"]:
        pytest.skip(f"no tile of {size} elements fits the device: {names}")
    with settings.settings(DISABLE_PASSES="join_attention"):
        names, expected = kernels_and_result(arrays, device, **more)
    assert "attention_weights" in names
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_nan_and_infinity_stay_in_the_rows_that_see_them(device, monkeypatch):
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
    monkeypatch.setattr(joining, "FEWEST_QUERIES", 1)
    q, k, v = heads(1, 1, 20, 16, 0), heads(1, 1, 40, 16, 1), heads(1, 1, 40, 16, 2)
    q[0, 0, 3, 5], q[0, 0, 7, 1] = np.nan, np.inf
    names, y = kernels_and_result([q, k, v], device)
    assert names == ["attention"] and np.isnan(y[0, 0, [3, 7]]).all()
    others = np.delete(y, [3, 7], axis=2)
    expected = truth(np.delete(q, [3, 7], axis=2), k, v)
    np.testing.assert_allclose(others, expected, rtol=1e-4, atol=1e-5)
