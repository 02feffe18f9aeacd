"""Each fusion can be left out by its name, and fusing what is fused changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from support.fakes.fake_device import fake_device
from support.graphs.small_models import model, value
from support.models import light_models, planned
from vklab import settings
from vklab.base import catalogue, stages
from vklab.errors import PlanError
from vklab.graph import onnx_import, passes, shapes
from vklab.plan import fusion, lowering
from vklab.plan import plan as plans
from vklab.plan.chunk import Chunk
from vklab.plan.fusion import siblings
from vklab.plan.fusion.flow import Flow

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
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"]),
        helper.make_node("ReduceSum", ["b", "axes"], ["c"]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
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


def test_a_name_that_is_no_fusion_and_no_pass_is_refused():
    graph, _ = lowered_of(small())
    with (
        settings.settings(DISABLE_PASSES="all, fuse_chain"),
        pytest.raises(
            PlanError, match="'fuse_chain' in VKLAB_DISABLE_PASSES; choose from all, .*fuse_chains"
        ),
    ):
        plans.lower_chunk(Chunk(0, graph), INFO)
    with settings.settings(DISABLE_PASSES="all, fuse_chains"):
        assert plans.lower_chunk(Chunk(0, graph), INFO).dispatches


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


@pytest.mark.parametrize("name", ["small", "shufflenet", *planned.NAMES])
def test_a_fusion_is_skipped_only_where_it_keeps_all_dispatches(name):
    flow = Flow(*lowered_of(proto_of(name)), INFO)
    for rule in catalogue.stage(stages.FUSION):
        before = [*flow.alive()]
        if not (rule.suits(INFO.is_cpu) and rule.meets(each.kernel for _, each in before)):
            rule(flow)
            assert before == [*flow.alive()], rule.name
        rule(flow)


def kernels_of(nodes, outputs, inputs, info=INFO, **constants):
    """Return what is left of some nodes on inputs of 3 x 8."""
    given = [value(name, (3, 8)) for name in inputs]
    graph, lowered = lowered_of(model(nodes, given, outputs, constants))
    return fusion.fuse(graph, lowered, info).dispatches


@pytest.mark.parametrize(("last", "kernels"), [
    (["h", "w"], ["squeeze"]), (["h", "h"], ["matmul", "matmul"]),  # a product with itself
])  # fmt: skip
def test_two_small_products_are_one_if_the_last_reads_the_first_once(last, kernels):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", last, ["y"])]
    weights = {"w": np.ones((8, 8), np.float32)}
    graph, lowered = lowered_of(model(nodes, [value("x", (8, 8))], ["y"], weights))
    assert [d.kernel for d in fusion.fuse(graph, lowered, INFO).dispatches] == kernels


@pytest.mark.parametrize(("operators", "count"), [
    (["Sin x a", "Cos x b"], 1), (["Sin x a", "Cos y b", "Exp x c"], 1),
    (["Sin x a", "Cos a b"], 2),  # one reads the other
    (["Sin x a", "IsNaN x b"], 2),  # other elements
    (["Sin x a", "ReduceSum x r", "Cos x b"], 3),  # not side by side
    (["Transpose x a", "Cos x b"], 2),  # one only moves bits
])  # fmt: skip
def test_siblings_are_launched_as_one(operators, count):
    nodes = [
        helper.make_node(kind, [read], [made]) for kind, read, made in map(str.split, operators)
    ]
    assert len(kernels_of(nodes, [node.output[0] for node in nodes], "xy")) == count


def test_the_parts_of_a_concat_and_of_a_split_are_one_dispatch():
    nodes = [
        helper.make_node("Concat", ["x", "y", "x"], ["a"], axis=1),
        helper.make_node("Split", ["a"], ["b", "c", "d"], axis=1),
    ]
    joined, split = kernels_of(nodes, ["a", "b", "c", "d"], "xy")
    assert [len(d.siblings) for d in (joined, split)] == [3, 3]
    assert {i.name for _, i in joined.writes} == {"a"}
    assert [i.name for _, i in split.writes] == ["b", "c", "d"]


def test_siblings_keep_within_what_a_kernel_takes(monkeypatch):
    names = [f"x{n}" for n in range(20)]
    nodes = [helper.make_node("Concat", names, ["y"], axis=1)]
    made = kernels_of(nodes, ["y"], names)
    assert sum(len(d.siblings) for d in made) == 20 and 1 < len(made) < 5
    monkeypatch.setattr(siblings, "MOST_ON_CPU", 71)
    nodes = [helper.make_node("Concat", ["x", "y", "x"], ["a"], axis=1)]
    assert len(kernels_of(nodes, ["a"], "xy", fake_device(type="cpu"))) == 2
    assert len(kernels_of(nodes, ["a"], "xy", fake_device(type="discrete_gpu"))) == 1
