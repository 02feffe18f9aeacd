"""Each fusion can be left out by its name, and fusing what is fused changes nothing."""

from __future__ import annotations

import light_models
import numpy as np
import planned
import pytest
from fake_device import fake_device
from onnx import helper
from small_models import model, value

from vklab import settings
from vklab.errors import PlanError
from vklab.graph import onnx_import, passes, shapes
from vklab.plan import fusion, lowering

INFO = fake_device()


def lowered_of(proto):
    """Return a graph after its passes, and its dispatches before fusion."""
    graph = onnx_import.load_graph(proto)
    bound = shapes.bind(graph, dict.fromkeys(shapes.unknown_dims(graph), 2))
    graph = passes.run(shapes.infer(bound))
    return graph, lowering.lower(graph)


def small():
    """Return a model that each fusion shortens by one dispatch."""
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["b"]),
        helper.make_node("ReduceSum", ["b", "axes"], ["c"]), helper.make_node("Relu", ["c"], ["y"]),
    ]  # fmt: skip
    return model(nodes, [value("x", (3, 8))], ["y"], {"axes": np.array([1])})


@pytest.mark.parametrize(("left_out", "kernels"), [
    ("", ["reduce"]),
    ("fuse_chains", ["elementwise", "reduce"]),
    ("fuse_epilogues", ["reduce", "elementwise"]),
    ("fuse_prologues", ["pointwise", "reduce"]),
    ("fuse_prologues, fuse_epilogues", ["pointwise", "reduce", "elementwise"]),
])  # fmt: skip
def test_each_fusion_is_left_out_by_its_name(left_out, kernels):
    graph, lowered = lowered_of(small())
    assert [d.kernel for d in lowered.dispatches] == [*["elementwise"] * 2, "reduce", "elementwise"]
    with settings.settings(DISABLE_PASSES=left_out):
        fused = fusion.fuse(graph, lowered, INFO)
    assert [d.kernel for d in fused.dispatches] == kernels
    assert len(lowered.dispatches) == 4, "what was given is left as it is"


def test_a_name_that_is_none_is_refused():
    graph, lowered = lowered_of(small())
    with settings.settings(DISABLE_PASSES="fuse_chain"), pytest.raises(
        PlanError, match="'fuse_chain'; there are all, .*fuse_chains"
    ):
        fusion.fuse(graph, lowered, INFO)


def test_the_table_lists_every_fusion():
    assert [step.__name__ for step in fusion.FUSIONS] == [
        "fuse_chains", "fuse_epilogues", "fuse_prologues"]  # fmt: skip


def proto_of(name):
    if name == "small":
        return small()
    return planned.proto_of(name) if name in planned.NAMES else light_models.build(name)


@pytest.mark.parametrize("name", ["small", "shufflenet", *planned.NAMES])
def test_fusing_what_is_fused_changes_nothing(name):
    graph, lowered = lowered_of(proto_of(name))
    once = fusion.fuse(graph, lowered, INFO)
    again = fusion.fuse(graph, once, INFO)
    assert len(once.dispatches) < len(lowered.dispatches)
    assert again.dispatches == once.dispatches
