"""Calibration and codes without a device: ranges, histograms, weights in blocks, wrong data."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from support.graphs.small_models import DATA, model, random_array, value
from vklab.apps import cli
from vklab.apps.quantization import calibrate, codes, histogram, nbits, quantize
from vklab.apps.quantization.histogram import Histogram
from vklab.apps.quantization.model import Model
from vklab.apps.quantization.quantize import Choice
from vklab.errors import ModelError

DIGITS = np.load(DATA / "digits.npz")["images"][::60]


class Reference:
    """A session on onnx.reference."""

    def __init__(self, proto):
        self._run = ReferenceEvaluator(proto)
        self._names = [each.name for each in proto.graph.output]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def run(self, fed):
        return dict(zip(self._names, self._run.run(None, fed), strict=True))


def two_layers():
    """Return two products with a Relu between, and samples for them."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], "first"),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"], "second"),
    ]
    constants = {
        "w": random_array((7, 9), 1),
        "b": random_array((9,), 2),
        "v": random_array((9, 5), 3),
    }
    proto = model(nodes, [value("x", ["n", 7])], [value("y", ["n", 5])], constants, opset=21)
    return proto, {"x": random_array((40, 7))}


def test_a_range_has_a_code_for_zero_and_both_ends():
    for low, high in ((-1.5, 3.0), (0.5, 2.0), (-3.0, -1.0), (0.0, 0.0)):
        for dtype in ("uint8", "int8"):
            scale = codes.of_range(low, high, dtype)
            numbers = np.array([min(low, 0), 0, max(high, 0)], np.float32)
            again = codes.dequantized(codes.quantized(numbers, scale), scale)
            assert again[1] == 0 and abs(again - numbers).max() <= 0.5001 * scale.steps


def test_each_filter_of_weights_has_its_own_scale():
    weights = random_array((5, 3, 2, 2)) * np.array([1, 10, 0, 1e-3, 100]).reshape(-1, 1, 1, 1)
    weights = weights.astype(np.float32)
    each, one = codes.of_weights(weights, 0), codes.of_weights(weights, None)
    assert each.steps.shape == (5,) and one.steps.shape == ()
    again = codes.dequantized(codes.quantized(weights, each), each)
    assert (abs(again - weights).reshape(5, -1).max(1) <= 0.501 * each.steps).all()
    assert codes.sqnr_db(weights, weights) == np.inf


def test_a_histogram_grows_and_loses_no_number():
    counted, numbers = Histogram(), np.random.default_rng(0).normal(size=(20, 500))
    for number, row in enumerate(numbers):
        counted.add(row * (1 + number))
    assert counted.counts.sum() == numbers.size and str(counted).startswith("10000 numbers")
    largest = abs(numbers * np.arange(1, 21)[:, None]).max()
    assert max(abs(counted.low), counted.high) == largest <= counted.limit
    assert "<svg" in counted._repr_html_()
    with pytest.raises(ModelError, match="not finite"):
        counted.add(np.array([np.nan]))


def test_every_method_leaves_a_far_number_out_but_the_first():
    counted = Histogram()
    counted.add(np.r_[np.random.default_rng(0).normal(size=100_000), 80.0])
    whole, cut, best = (
        histogram.METHODS[name](counted) for name in ("min-max", "percentile", "entropy")
    )
    assert whole[1] == 80
    assert 3 < cut[1] < 6 and -6 < cut[0] < -3
    assert 2 < best[1] < 20
    empty = Histogram()
    empty.add(np.zeros(10))
    assert {method(empty) for method in histogram.METHODS.values()} == {(0.0, 0.0)}


def test_numbers_that_come_back_do_not_shrink_the_range_of_entropy():
    # What a convolution makes of images with a background: a number of each channel, many times.
    random = np.random.default_rng(0)
    drawn = abs(random.normal(size=200_000))
    spikes = np.repeat(random.uniform(0, 2, 24), 12_000)
    plain, spiky = Histogram(), Histogram()
    plain.add(drawn)
    for part in (drawn, spikes, np.zeros(100_000), np.full(5_000, drawn.max())):
        spiky.add(part)
    assert spiky.counts[spiky.counts.size // 2] > 100_000
    (_, alone), (low, high) = histogram.entropy(plain), histogram.entropy(spiky)
    assert low == 0 and 0.8 * alone < high <= drawn.max() and alone > 2.5


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("per_channel", [False, True])
def test_a_model_in_codes_is_near_the_model(symmetric, per_channel):
    proto, data = two_layers()
    choice = Choice(per_channel=per_channel, symmetric=symmetric)
    made = quantize.quantize(proto, choice, data, Reference)
    onnx.checker.check_model(made.proto)
    kinds = [node.op_type for node in made.proto.graph.node]
    assert kinds.count("DequantizeLinear") == 5 and kinds.count("QuantizeLinear") == 2
    assert all(each.sqnr_db > 25 for each in made.layers), str(made)
    assert "2 of 2 layers" in str(made) and "<table" in made._repr_html_()
    stored = {each.name: numpy_helper.to_array(each) for each in made.proto.graph.initializer}
    assert stored["first:weights"].dtype == np.int8 and stored["first:bias"].dtype == np.int32


def test_dynamic_codes_need_no_data():
    proto, data = two_layers()
    made = quantize.quantize(proto)
    onnx.checker.check_model(made.proto)
    exact, ours = (Reference(each).run(data)["y"] for each in (proto, made.proto))
    assert codes.sqnr_db(exact, ours) > 25 and made.drop is None


@pytest.mark.parametrize(("bits", "least_db"), [(4, 12), (8, 35)])
def test_blocks_of_weights_are_those_of_matmulnbits(bits, least_db):
    proto, data = two_layers()
    made = quantize.quantize(proto, Choice(bits=bits), data, Fake)
    assert [n.op_type for n in made.proto.graph.node].count("MatMulNBits") == 2
    for terms in (7, 32, 65, 96):
        weights = random_array((terms, 5))
        packed, scales, zeros = nbits.blocks(weights, bits)
        numbers, points = packed.astype(int), zeros.astype(int)
        if bits == 4:
            numbers = np.stack([numbers & 15, numbers >> 4], -1).reshape(5, -1, 32)
            points = np.stack([points & 15, points >> 4], -1).reshape(5, -1)
        again = (numbers - points[:, : scales.shape[1], None]) * scales[..., None]
        assert codes.sqnr_db(weights, again.reshape(5, -1)[:, :terms].T) > least_db


class Fake:
    """A session that returns numbers without computing."""

    def __init__(self, proto):
        self._names = [each.name for each in proto.graph.output]

    __enter__, __exit__ = Reference.__enter__, Reference.__exit__

    def run(self, fed):
        return {name: np.ones((len(fed["x"]), 3), np.float32) for name in self._names}


def test_the_worst_layers_stay_in_float_until_the_bound_holds(monkeypatch):
    proto, data = two_layers()
    tried = []

    def dropped(exact, ours):
        tried.append(len(tried))
        return [0.5, 0.1][tried[-1]]

    monkeypatch.setattr(quantize, "drop", dropped)
    made = quantize.quantize(proto, Choice(max_drop=0.2), data, Reference)
    kept = [each.kept for each in made.layers]
    worst = min(made.layers, key=lambda each: each.before_bytes if each.kept else 1 << 30)
    assert sorted(kept) == [False, True] and worst.after_bytes == worst.before_bytes
    monkeypatch.setattr(quantize, "drop", lambda exact, ours: 1.0)
    with pytest.raises(ModelError, match=r"drop by more than 0\.2"):
        quantize.quantize(proto, Choice(max_drop=0.2), data, Reference)


def test_kept_nodes_stay_as_they_are():
    proto, data = two_layers()
    made = quantize.quantize(proto, Choice(keep=("first",)), data, Reference)
    assert [each.kept for each in made.layers] == [True, False]
    assert [n.input[1] for n in made.proto.graph.node if n.name == "first"] == ["w"]


@pytest.mark.parametrize(("data", "words"), [
    ({"x": random_array((40, 6))}, "has shape"),
    ({"x": random_array((40,))}, "has shape"),
    ({"z": random_array((40, 7))}, "inputs of the model are x"),
    ({}, "has nothing"),
    ({"x": np.full((40, 7), np.nan, np.float32)}, "not finite"),
    ({"x": np.full((40, 7), 3, np.float32)}, "samples that differ"),
    ({"x": np.zeros((0, 7), np.float32)}, "is empty"),
])  # fmt: skip
def test_wrong_data_is_refused(data, words):
    proto, _ = two_layers()
    with pytest.raises(ModelError, match=words):
        quantize.quantize(proto, Choice(), data, Reference)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_inner_value_that_overflows_is_named():
    proto, data = two_layers()
    data["x"][3] = 3e38
    with pytest.raises(ModelError, match=r"value '.+' of the model: a number is not finite"):
        quantize.quantize(proto, Choice(), data, Reference)


def test_a_layer_whose_input_is_always_zero_is_quantised():
    proto, data = two_layers()
    (weight,) = [each for each in proto.graph.initializer if each.name == "w"]
    weight.CopyFrom(numpy_helper.from_array(-abs(numpy_helper.to_array(weight)), "w"))
    made = quantize.quantize(proto, Choice(), {"x": abs(data["x"]) + 1}, Reference)
    assert not any(each.kept for each in made.layers)
    onnx.checker.check_model(made.proto)


def test_wrong_models_and_choices_are_refused():
    proto, data = two_layers()
    relu = model([helper.make_node("Relu", ["x"], ["y"])], [value("x", [3])], [value("y", [3])])
    for given, choice, fed, words in (
        (relu, Choice(), None, "no node to quantise"),
        (proto, Choice(keep=("third",)), None, "called 'third'; there are first, second"),
        (proto, Choice(method="guess"), None, "choose one of min-max"),
        (proto, Choice(max_drop=0.1), None, "takes calibration data"),
        (proto, Choice(bits=3), None, "3 bits"),
        (proto, Choice(keep=("Gemm", "MatMul")), None, "all of them are to be kept"),
    ):
        with pytest.raises(ModelError, match=words):
            quantize.quantize(given, choice, fed, Reference)
    with pytest.raises(ModelError, match="different numbers"):
        both = Model(
            model(
                [helper.make_node("Add", ["x", "z"], ["y"])],
                [value("x", ["n", 2]), value("z", ["n", 2])],
                [value("y", None)],
            )
        )
        calibrate.check(both, {"x": random_array((3, 2)), "z": random_array((4, 2))})


def test_the_command_refuses_wrong_options(tmp_path, capsys):
    path, out = str(DATA / "digits_cnn.onnx"), str(tmp_path / "out.onnx")
    broken = tmp_path / "broken.npz"
    broken.write_bytes(b"PK nothing")
    nan, narrow = (str(tmp_path / name) for name in ("nan.npz", "narrow.npz"))
    np.savez(nan, image=np.full((4, 1, 28, 28), np.nan, np.float32))
    np.savez(narrow, image=np.zeros((4, 1, 8, 8), np.float32))
    for line, words in (
        ([path, "-o", out], "either --int8 or --nbits"),
        ([path, "-o", path, "--int8"], "is the model itself"),
        ([path, "-o", out, "--nbits", "3"], "choose 4 or 8"),
        ([path, "-o", out, "--int8", "--calibrate", "nix.npz"], "no calibration file"),
        ([path, "-o", out, "--int8", "--calibrate", str(broken)], "not a .npy or .npz"),
        ([path, "-o", out, "--int8", "--keep", "nix"], "there are conv1"),
        ([path, "-o", out, "--int8", "--calibrate", nan], "not finite"),
        ([path, "-o", out, "--int8", "--calibrate", narrow], "has shape (4, 1, 8, 8)"),
    ):
        assert cli.main(["quantize", *line]) != 0
        written = capsys.readouterr()
        assert words in " ".join((written.out + written.err).split()).replace("│ ", "")
