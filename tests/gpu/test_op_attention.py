"""Attention beyond ONNX's cases: lengths around workgroups, masks that are broadcast."""

from __future__ import annotations

import numpy as np
import pytest
from small_models import one_node, random_array

import vklab
from vklab import settings
from vklab.errors import ModelError


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
    y = run([q, k, v], device, "LinearAttention", q_num_heads=4, kv_num_heads=4,
            update_rule="linear", scale=1.0, outputs=2)  # fmt: skip
    q, k, v = (x.reshape(2, 301, 4, 6).swapaxes(1, 2) for x in (q, k, v))
    expected = np.tril(q @ k.swapaxes(-1, -2)) @ v
    np.testing.assert_allclose(y, expected.swapaxes(1, 2).reshape(2, 301, 24), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_one_table_of_angles_serves_all_batches(device, interleaved):
    x, angles = heads(3, 2, 5, 8, 0), random_array((1, 5, 4), 1)
    tables = [np.cos(angles), np.sin(angles)]
    repeated = [np.repeat(table, 3, axis=0) for table in tables]
    more = {"op_type": "RotaryEmbedding", "interleaved": interleaved}
    np.testing.assert_array_equal(run([x, *tables], device, **more),
                                  run([x, *repeated], device, **more))  # fmt: skip
    with pytest.raises(ModelError, match="batch, step"):
        run([x, *(table[:, :3] for table in tables)], device, **more)
