"""The light CNNs of the onnx wheel with random weights: every node against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import vklab
from support.models import light_models
from vklab.runtime.observe import compare

NAMES = [
    name if name in light_models.SMALL else pytest.param(name, marks=pytest.mark.slow)
    for name in light_models.NAMES
]
pytestmark = pytest.mark.full


def with_all_values(model):
    """Return a model whose every value is an output; what no one asks of a Dropout is not."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    outputs = {o.name for o in model.graph.output}
    for node in model.graph.node:
        made = node.output[:1] if node.op_type == "Dropout" else node.output
        whole.graph.output.extend(onnx.ValueInfoProto(name=n) for n in made if n not in outputs)
    return whole


@pytest.mark.parametrize("name", NAMES)
def test_every_node_agrees_with_onnx_runtime(device_index, name):
    model = light_models.build(name)
    image = np.random.default_rng(0).standard_normal((1, 3, 224, 224), np.float32)
    fed = {model.graph.input[0].name: image}
    with vklab.load(model, device_index) as session:
        result = session.run(fed)
        assert not session.host_reasons
    whole = with_all_values(model)
    assert len(whole.graph.output) >= len(model.graph.node)
    with vklab.load(whole, device_index) as session:
        values, expected = session.run(fed), session.reference(fed)
    comparison = compare.compare(values, expected, atol=2e-5)
    assert comparison.passed, comparison
    assert all(np.ptp(array) > 0 for array in expected.values()), "a constant proves nothing"
    comparison = compare.compare(result, {n: expected[n] for n in result}, atol=2e-5)
    assert comparison.passed, comparison
