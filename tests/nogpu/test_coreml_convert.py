"""Conversion by coremltools: every frontend, kind and precision, open sizes, small weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vklab.apps.compare import models
from vklab.apps.compare.coreml import convert, inspect, options
from vklab.errors import ModelError

pytestmark = pytest.mark.slow  # importing coremltools takes seconds
torch = pytest.importorskip("torch")
pytest.importorskip("coremltools")
RANGE = ((1, 3, (16, 64), (16, 64)),)


def made(folder: Path, name: str, **chosen: object) -> inspect.Facts:
    wanted = options.Options(**chosen)  # type: ignore[arg-type]
    ending = "mlpackage" if wanted.kind == "mlprogram" else "mlmodel"
    module, examples = models.MODELS[name](1)
    path = folder / f"{name}.{ending}"
    return inspect.inspect(convert.convert(module, examples, path, wanted, (models.INPUTS[name],)))


@pytest.mark.parametrize("name", models.MODELS)
@pytest.mark.parametrize("frontend", options.FRONTENDS)
def test_five_models_by_both_frontends(tmp_path, name, frontend):
    facts = made(tmp_path, name, frontend=frontend, target="iOS18")
    assert (facts.kind, facts.opset) == ("mlProgram", "CoreML8")
    assert facts.inputs[0].name == models.INPUTS[name]
    assert facts.outputs[0].dtype == "float16"  # from iOS16 on


@pytest.mark.parametrize("name", models.MODELS)
def test_five_models_as_neural_networks(tmp_path, name):
    facts = made(tmp_path, name, kind="neuralnetwork", precision="float32")
    assert facts.kind == "neuralNetwork" and facts.operators["innerProduct"] >= 1


@pytest.mark.parametrize(("target", "opset"), [("macOS13", "CoreML6"), ("iOS17", "CoreML7")])
def test_a_target_is_a_system_of_either_family(tmp_path, target, opset):
    assert made(tmp_path, "mini_classifier", target=target).opset == opset


def test_float32_has_twice_the_weights(tmp_path):
    half = made(tmp_path, "mini_classifier")
    single = made(tmp_path, "mini_classifier", precision="float32")
    assert single.weight_bytes / half.weight_bytes == pytest.approx(2, rel=0.02)


@pytest.mark.parametrize(("frontend", "shapes", "flexible"), [
    ("script", RANGE, ("1", "3", "16..64", "16..64")),
    ("export", RANGE, ("1", "3", "16..64", "16..64")),
    ("export", (((1, 8), 3, 32, 32),), ("1..8", "3", "32", "32")),
    ("script", ((1, 3, 32, 32), (1, 3, 48, 40)), ("(1, 3, 32, 32)", "(1, 3, 48, 40)")),
])  # fmt: skip
def test_adaptive_pooling_takes_open_sizes(tmp_path, frontend, shapes, flexible):
    facts = made(tmp_path, "mini_classifier", frontend=frontend, shapes=shapes)
    assert facts.inputs[0].flexible == flexible
    assert "avg_pool" not in facts.operators and facts.operators["matmul"] == 2


@pytest.mark.parametrize(("weights", "operator", "share"), [
    ("palette", "constexpr_lut_to_dense", 0.3), ("int8", "constexpr_affine_dequantize", 0.55),
    ("sparse", "constexpr_sparse_to_dense", 0.6),
])  # fmt: skip
def test_small_weights(tmp_path, weights, operator, share):
    whole = made(tmp_path, "mini_classifier", target="iOS16")
    facts = made(tmp_path, "mini_classifier", target="iOS16", weights=weights)
    assert facts.operators[operator] >= 2
    assert facts.weight_bytes < share * whole.weight_bytes


@pytest.mark.parametrize("size", [(4, 4), (5, 9), (32, 30), (17, 64)])
def test_the_pooling_override_computes_torchs_means(size):
    from coremltools.converters.mil import Builder

    from vklab.apps.compare.coreml import converter

    image = np.random.default_rng(0).standard_normal((2, 3, *size)).astype(np.float32)
    found = []

    # coremltools computes the values of constants while it builds the program.
    @Builder.program(input_specs=[])
    def program():
        pooled = converter.adaptive_average(Builder.const(val=image), (4, 3), "pooled")
        found.append(pooled.val)
        return pooled

    expected = torch.nn.functional.adaptive_avg_pool2d(torch.from_numpy(image), (4, 3))
    np.testing.assert_allclose(found[0], expected.numpy(), atol=1e-6)


def test_overrides_are_gone_after_a_conversion(tmp_path):
    from coremltools.converters.mil.frontend.torch import torch_op_registry

    from vklab.apps.compare.coreml import converter

    table = torch_op_registry._TORCH_OPS_REGISTRY.name_to_func_mapping
    before = dict(table)
    with converter.registered():
        assert table["int"] is converter.integer
    assert dict(table) == before


def test_a_refused_model_has_its_reason(tmp_path):
    with pytest.raises(ModelError, match=r"unknown target 'iOS99'; choose among iOS13"):
        made(tmp_path, "mini_classifier", target="iOS99")

    class Odd(torch.nn.Module):
        def forward(self, x):
            return torch.special.bessel_j0(x)

    with pytest.raises(ModelError, match="coremltools refuses the model"):
        convert.convert(Odd().eval(), (torch.ones(2, 2),), tmp_path / "odd.mlpackage")
