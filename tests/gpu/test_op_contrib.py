"""What ONNX Runtime adds to ONNX, against ONNX Runtime: products, attention, caches."""

from __future__ import annotations

import numpy as np
import pytest

import vklab
from support.checks.check_operator import check_operator, lacks
from support.graphs.small_models import one_node, random_array
from vklab import settings

MICROSOFT = {"domain": "com.microsoft", "rtol": 1e-3, "atol": 1e-5}
B, S, N, D = 2, 5, 3, 16


def check(op_type, device, arrays, **attributes):
    check_operator(op_type, inputs=arrays, device=device, **MICROSOFT, **attributes)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", ["none", "packed", "float"])
def test_weights_of_few_bits(device, bits, zeros):
    rng = np.random.default_rng(1)
    if zeros == "float" and bits == 8:
        pytest.skip("ONNX Runtime has no such zero points")
    for m, n, k, block in [(1, 33, 64, 32), (5, 7, 100, 16), (3, 65, 96, 32)]:
        blocks = -(-k // block)
        b = rng.integers(0, 256, (n, blocks, block * bits // 8), np.uint8)
        scales = random_array((n, blocks), 2)
        packed = rng.integers(0, 256, (n, -(-blocks * bits // 8)), np.uint8)
        zero = {"none": None, "packed": packed, "float": random_array((n, blocks), 3)}[zeros]
        arrays = [random_array((m, k)), b, scales, zero]
        check(
            "MatMulNBits",
            device,
            arrays,
            constants=[1, 2, *([3] if zero is not None else [])],
            K=k,
            N=n,
            bits=bits,
            block_size=block,
        )


@pytest.mark.parametrize(("a", "b", "more"), [
    ((2, 3, 5), (2, 5, 7), {}), ((2, 5, 3), (2, 5, 7), {"transA": 1}), ((5,), (5, 7), {}),
    ((2, 3, 5), (2, 7, 5), {"transB": 1, "alpha": 0.5}), ((3, 2, 5), (2, 5, 7), {"transBatchA": 1}),
    ((2, 3, 5), (7, 2, 5), {"transBatchB": 1, "transB": 1}),
    ((2, 3, 4, 5), (5, 7), {}), ((3, 2, 5), (2, 3, 7), {"transBatchA": 1, "transA": 1}),
])  # fmt: skip
def test_fused_matmul(device, a, b, more):
    check("FusedMatMul", device, [random_array(a), random_array(b, 1)], **more)


@pytest.mark.parametrize(("op_type", "shapes", "more"), [
    ("BiasGelu", [(2, 3, 7), (7,)], {}), ("FastGelu", [(2, 3, 7)], {}),
    ("FastGelu", [(2, 3, 7), (7,)], {}), ("Gelu", [(2, 37)], {}),
    ("QuickGelu", [(2, 37)], {}), ("QuickGelu", [(2, 37)], {"alpha": 0.5}),
])  # fmt: skip
def test_kinds_of_gelu(device, op_type, shapes, more):
    check(op_type, device, [random_array(s, i) for i, s in enumerate(shapes)], **more)


@pytest.mark.parametrize("more", [
    {"activation": "Relu"}, {"activation": "LeakyRelu", "activation_alpha": 0.3},
])  # fmt: skip
def test_fused_gemm(device, more):
    check("FusedGemm", device, [random_array(s) for s in ((3, 5), (5, 7), (7,))], alpha=0.5, **more)


@pytest.mark.parametrize("case", [
    "plain", "bias", "lengths", "raw", "added", "past", "causal", "cross",
])  # fmt: skip
def test_multi_head_attention(device, case):
    q, k, v = (random_array((B, S, N * D), i) for i in range(3))
    arrays = [q, k, v, None, None, None, None, None]
    more = {"scale": 0.3} if case == "plain" else {}
    if case == "bias":
        arrays[3] = random_array((3 * N * D,), 4)
    if case == "lengths":
        arrays[4] = np.array([3, 5], np.int32)
    if case == "raw":
        arrays[4] = (random_array((B, S), 5) > -0.5).astype(np.int32)
    if case == "added":
        arrays[5] = random_array((1, N, S, S), 6)
    if case == "past":
        arrays[6:8] = random_array((B, N, 4, D), 7), random_array((B, N, 4, D), 8)
    if case == "causal":
        more = {"unidirectional": 1}
    if case == "cross":
        arrays = [q, random_array((B, N, 7, D), 1), random_array((B, N, 7, D), 2)]
    outputs = 3 if case == "past" else 1
    check("MultiHeadAttention", device, arrays, outputs=outputs, num_heads=N, **more)


def test_packed_heads_are_separate_ones(device):
    packed = random_array((B, S, N, 3, D))
    q, k, v = (np.ascontiguousarray(packed[..., i, :]).reshape(B, S, N * D) for i in range(3))
    results = []
    for arrays in ([packed], [q, np.ascontiguousarray(packed[..., 1:, :])], [q, k, v]):
        proto, fed = one_node("MultiHeadAttention", arrays, domain="com.microsoft", num_heads=N)
        with vklab.load(proto, device) as session:
            results.append(session.run(fed)["y0"])
    np.testing.assert_array_equal(results[0], results[2])
    np.testing.assert_array_equal(results[1], results[2])


@pytest.mark.parametrize("case", ["plain", "raw", "lengths", "causal", "past", "added"])
def test_attention_with_projections(device, case):
    weights, bias = random_array((11, 3 * N * D), 1) / 4, random_array((3 * N * D,), 2)
    arrays = [random_array((B, S, 11)), weights, bias, None, None, None]
    more = {"unidirectional": 1} if case == "causal" else {}
    if case == "raw":
        arrays[3] = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    if case == "lengths":
        arrays[3] = np.array([3, 5], np.int32)
    if case == "past":
        arrays[4] = random_array((2, B, N, 4, D), 3)
    if case == "added":
        arrays[5] = random_array((B, N, S, S), 4)
    check("Attention", device, arrays, outputs=2 if case == "past" else 1, num_heads=N, **more)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(device, interleaved):
    caches = [random_array((20, D // 2), 1), random_array((20, D // 2), 2)]
    rows = np.array([[0, 1, 2, 3, 4], [7, 8, 3, 1, 0]], np.int64)
    for x in (random_array((B, S, N * D)), random_array((B, N, S, D))):
        for positions in (rows, np.array([4], np.int64)):
            more = {"interleaved": interleaved}
            check("RotaryEmbedding", device, [x, positions, *caches], **more)


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("more", [{}, {"do_rotary": 1}, {"local_window_size": 3}, {"softcap": 2.0}])
@pytest.mark.parametrize("last", [8, 5])
def test_group_query_attention(device, steps, more, last):
    heads, shared, past = 4, 2, 0 if steps == 5 else 8
    q = random_array((B, steps, heads * D))
    k, v = (random_array((B, steps, shared * D), i) for i in (1, 2))
    arrays = [q, k, v]
    arrays += [random_array((B, shared, past, D), i) for i in (3, 4)]
    arrays.append(np.array([4, 4] if steps == 5 else [8, last], np.int32))
    arrays.append(np.array(steps if steps == 5 else 9, np.int32))
    if "do_rotary" in more:
        arrays += [random_array((20, D // 2), i) for i in (5, 6)]
    proto, fed = one_node(
        "GroupQueryAttention",
        arrays,
        [6],
        outputs=3,
        domain="com.microsoft",
        num_heads=heads,
        kv_num_heads=shared,
        **more,
    )
    on_host = lacks(device, "int64")  # the starts of the rows; the attention stays
    with settings.settings(FALLBACK=on_host), vklab.load(proto, device) as session:
        found, expected = session.run(fed), session.reference(fed)
        assert not {"Attention", "RotaryEmbedding"} & {
            row[1] for row in session.plan.rows() if row[2] == "host"
        }
    np.testing.assert_allclose(found["y0"], expected["y0"], rtol=1e-3, atol=1e-5)
    if last == 8:  # what lies in a cache behind its end is nobody's
        np.testing.assert_array_equal(found["y2"], expected["y2"])
        np.testing.assert_allclose(found["y1"], expected["y1"], rtol=1e-5, atol=1e-6)


def test_a_domain_that_the_model_forgot_to_import(device_index):
    matrix = random_array((3, 3)) + 3 * np.eye(3, dtype=np.float32)
    proto, fed = one_node("Inverse", [matrix], domain="com.microsoft")
    del proto.opset_import[1:]
    with vklab.load(proto, device_index) as session:
        assert session.check(fed).passed
