"""Branches that share layers between barriers give the same bits as one branch after the other."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import vklab
from support.graphs.small_models import model, random_array, value
from support.models import exported_models
from vklab import settings


def towers():
    """Return convolutions side by side, as inception has them, twice, and an input."""
    nodes, weights, source = [], {}, "x"
    for block in range(2):
        ends = []
        for tower in range(4):
            at = source
            for layer in range(tower % 3 + 1):
                name = f"b{block}t{tower}l{layer}"
                channels = 5 if layer else (3 if at == "x" else 20)
                weights[f"{name}_w"] = random_array((5, channels, 3, 3), len(weights))
                nodes += [
                    helper.make_node("Conv", [at, f"{name}_w"], [f"{name}_c"], pads=[1] * 4),
                    helper.make_node("Tanh", [f"{name}_c"], [name]),
                ]
                at = name
            ends.append(at)
        source = f"b{block}"
        nodes.append(helper.make_node("Concat", ends, [source], axis=1))
    proto = model(nodes, [value("x", (1, 3, 17, 19))], [source], weights)
    return proto, {"x": random_array((1, 3, 17, 19))}


def bert():
    proto = exported_models.load("bert")
    return proto, exported_models.inputs_of(proto, exported_models.sizes_of("bert")[0])


@pytest.mark.parametrize("switches", [{}, {"DISABLE_FUSION": True}, {"DISABLE_DIRECT_IO": True}],
                         ids=lambda given: "".join(given) or "plain")  # fmt: skip
@pytest.mark.parametrize("make", [towers, bert], ids=lambda make: make.__name__)
def test_layers_change_no_bit(make, switches, device):
    proto, inputs = make()
    found, barriers = [], []
    for off in (True, False):
        given = settings.settings(DISABLE_REORDER=off, **switches)
        with given, vklab.load(proto, device) as session:
            runs = [session.run(inputs) for _ in range(3)]
            barriers.append(session.plan.summary()["barriers"])
        for again in runs[1:]:
            assert all(np.array_equal(again[name], runs[0][name]) for name in again)
        found.append(runs[0])
    assert barriers[1] <= barriers[0]
    if make is bert or "DISABLE_FUSION" in switches:  # fused towers share layers in either order
        assert barriers[1] < barriers[0]
    assert found[0].keys() == found[1].keys()
    assert all(np.array_equal(found[0][name], found[1][name]) for name in found[0])
