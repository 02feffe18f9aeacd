"""Products between DequantizeLinear and QuantizeLinear: one integer dispatch, ONNX's values."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import vklab
from support.graphs.quantized_models import Drawn, product
from vklab import settings
from vklab.plan.tuning.blocks import word_variants

# Kernels of products of words: which one depends on the device.
WORDS = {"conv_words", "depthwise_words", "matvec_words", "words_tiled"}
CONVS = [
    ((1, 5, 9, 7), (7, 5, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((2, 1, 13, 11), (3, 1, 5, 3), {"pads": (2, 0, 1, 2), "strides": (2, 3)}),
    ((1, 12, 8, 8), (18, 4, 3, 3), {"group": 3, "dilations": (2, 1), "pads": (2, 1, 2, 1)}),
    ((1, 10, 5, 6), (15, 2, 2, 3), {"group": 5, "auto_pad": "SAME_UPPER"}),
    ((2, 7, 9, 9), (7, 1, 3, 3), {"group": 7, "pads": (1, 1, 1, 1), "strides": (2, 2)}),
    ((1, 3, 4, 4), (6, 1, 3, 3), {"group": 3}),
    ((3, 33, 17), (19, 33, 1), {}),
    ((1, 300, 3, 5), (9, 300, 3, 3), {"pads": (1, 1, 1, 1)}),
]
PRODUCTS = [
    ("Gemm", (3, 37), (37, 11), {}), ("Gemm", (1, 130), (10, 130), {"transB": 1}),
    ("MatMul", (2, 3, 21), (21, 9), {}), ("MatMul", (67, 64), (64, 33), {}),
    ("MatMul", (1, 1200), (1200, 5), {}),
]  # fmt: skip
FORMS = [
    {}, {"x": "int8", "y": "int8", "zeros": False}, {"w": "uint8", "between": "Relu"},
    {"per_filter": False, "y": "float32"}, {"w": "uint8", "zeros": False, "bias": False},
]  # fmt: skip


def check(case, device, form, **switches):
    proto, fed = product(*case[:-1], **case[-1], **form)
    (expected,) = ReferenceEvaluator(proto).run(None, fed)
    with settings.settings(FALLBACK=False, **switches), vklab.load(proto, device) as session:
        (got,) = session.run(fed).values()
        kernels = [dispatch.kernel for dispatch in session.plan.dispatches]
    assert WORDS & {*kernels}, kernels
    if got.dtype == np.float32:
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5 * abs(expected).max())
        return
    # A float32 sum of ONNX's reference rounds; at half a step the code may be the next one.
    steps = abs(got.astype(int) - expected.astype(int))
    assert steps.max() <= 1, case
    assert (steps > 0).mean() < 0.01, case


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form.values())))
def test_products_have_the_values_of_onnx(device, form):
    for number, (x, w, attributes) in enumerate(CONVS):
        check(("Conv", x, w, {**attributes, "seed": number}), device, form)
    for case in PRODUCTS:
        check(case, device, form)


@pytest.mark.slow
@pytest.mark.parametrize("switches", [
    {"DISABLE_VARIANTS": True}, {"DISABLE_NARROW": True}, {"DISABLE_FUSION": True},
], ids=lambda switches: next(iter(switches)))  # fmt: skip
def test_every_variant_has_these_values(device, switches):
    for number, (x, w, attributes) in enumerate(CONVS[2:5]):
        check(("Conv", x, w, {**attributes, "seed": number}), device, FORMS[0], **switches)
    check(PRODUCTS[1], device, FORMS[1], **switches)


def test_a_network_stays_in_words(device):
    """Weights in float32 between scalings and no scaling after MaxPool: PyTorch's form."""
    made = Drawn(0)
    random = made.random

    def coded(name, scale=0.02, zero=120):
        codes = made.scaling("QuantizeLinear", name, scale, np.uint8(zero))
        return made.scaling("DequantizeLinear", codes, scale, np.uint8(zero))

    def weights(name, *shape):
        real = made.constant(name, random.normal(size=shape).astype(np.float32) / 3)
        scale, zeros = np.full(shape[0], 0.01), np.zeros(shape[0], np.int8)
        return made.scaling(
            "DequantizeLinear",
            made.scaling("QuantizeLinear", real, scale, zeros, 0),
            scale,
            zeros,
            0,
        )

    x = coded("x", 0.03, 128)
    x = coded(made.node("Relu", made.node("Conv", x, weights("a", 13, 3, 3, 3))), 0.02, 0)
    x = made.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    y = coded(made.node("Conv", x, weights("b", 13, 1, 3, 3), group=13, pads=[1, 1, 1, 1]))
    x = coded(made.node("Relu", made.node("Add", x, y)), 0.02, 3)
    x = made.node("Flatten", made.node("MaxPool", x, kernel_shape=[2, 2]))
    y = made.node("Gemm", x, weights("c", 10, 13 * 12), transB=1)
    fed = {"x": random.normal(size=(2, 3, 12, 10)).astype(np.float32)}
    proto = made.model(fed, y, "float32")
    (expected,) = ReferenceEvaluator(proto).run(None, fed)
    with settings.settings(FALLBACK=False), vklab.load(proto, device) as session:
        (got,) = session.run(fed).values()
        kernels = [dispatch.kernel for dispatch in session.plan.dispatches]
    products = ["product" if each in WORDS else each for each in kernels]
    assert products == [
        "pack_words",
        "product",
        "pool_words",
        "product",
        "add_words",
        "pool_words",
        "product",
    ]
    assert abs(got - expected).max() < 0.02 * abs(expected).max()


@pytest.mark.slow
def test_dot_products_have_these_values(device, monkeypatch):
    """Llvmpipe would not choose them, but computes them as well."""
    if "shaderIntegerDotProduct" not in vklab.devices()[device].features:
        pytest.skip("the device has no integer dot product")
    monkeypatch.setattr(word_variants, "_sharing_lanes", lambda push, info: 0)
    monkeypatch.setattr(
        word_variants,
        "_dotted",
        lambda dispatch, info: word_variants._with(dispatch, DOT="1", LONG="0"),
    )
    for number, (x, w, attributes) in enumerate(CONVS):
        check(("Conv", x, w, {**attributes, "seed": number}), device, FORMS[0])
    check(PRODUCTS[1], device, FORMS[1])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_drawn_convolutions(device, seed):
    random = np.random.default_rng(seed)
    for number in range(8):
        group = int(random.choice([1, 1, 2, 3, 4]))
        depth, each = (int(random.integers(1, most)) for most in (13, 11))
        kernel = random.integers(1, 5, 2)
        sizes = kernel + random.integers(0, 12, 2)
        attributes = {
            "group": group,
            "pads": [int(n) for n in random.integers(0, 3, 4)],
            "strides": [int(n) for n in random.integers(1, 4, 2)],
            "seed": number,
        }
        shapes = (
            (int(random.integers(1, 4)), depth * group, *map(int, sizes)),
            (each * group, depth, *map(int, kernel)),
        )
        check(("Conv", *shapes, attributes), device, FORMS[number % len(FORMS)])


@pytest.mark.slow
def test_products_of_codes_use_the_same_kernels(device):
    for op_type, x_shape, w_shape in (
        ("QLinearConv", (2, 5, 9, 7), (6, 5, 3, 3)),
        ("QLinearMatMul", (4, 21), (21, 9)),
    ):
        made = Drawn(1)
        count = w_shape[0] if op_type == "QLinearConv" else w_shape[1]
        names = [
            made.constant(name, array)
            for name, array in {
                "xs": np.float32(0.05),
                "xz": np.uint8(7),
                "w": made.codes("int8", w_shape),
                "ws": np.full(count, 0.01, np.float32),
                "wz": np.zeros(count, np.int8),
                "ys": np.float32(0.3),
                "yz": np.uint8(128),
                "bias": made.random.integers(-9999, 9999, count).astype(np.int32),
            }.items()
        ]
        names = names if op_type == "QLinearConv" else names[:-1]
        fed = {"x": made.codes("uint8", x_shape)}
        proto = made.model(fed, made.node(op_type, "x", *names), "uint8")
        (expected,) = ReferenceEvaluator(proto).run(None, fed)
        with settings.settings(FALLBACK=False), vklab.load(proto, device) as session:
            (got,) = session.run(fed).values()
            assert WORDS & {dispatch.kernel for dispatch in session.plan.dispatches}
        assert abs(got.astype(int) - expected.astype(int)).max() <= 1
