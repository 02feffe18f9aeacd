"""Equal arguments give equal plans, and a graph's initializers cannot be changed."""

from __future__ import annotations

import copy
import glob
import pickle
from dataclasses import replace

import numpy as np
import pytest

from support.fakes.matrix_gpu import NVIDIA
from support.graphs import pass_graphs
from support.models import exported_models
from support.models.planned import NAMES, plan_whole, proto_of, whole
from support.rules import compiler_table
from vklab.base.protocols import Content
from vklab.graph import onnx_import
from vklab.plan import plan as plans
from vklab.plan.options import Facts, Options, PlacementOptions
from vklab.runtime import host, plan_cache

LAVAPIPE = compiler_table.LAVAPIPE
BOTH = [LAVAPIPE, replace(NVIDIA, index=1)]


@pytest.mark.parametrize("infos", [[LAVAPIPE], [NVIDIA], BOTH], ids=["cpu", "gpu", "both"])
@pytest.mark.parametrize("name", [*NAMES, *exported_models.NAMES])
def test_equal_arguments_give_equal_plans(name, infos):
    nodes = [glob.escape(node.name) for node in whole(name)[0].nodes]
    pins = {node: len(infos) * number // len(nodes) for number, node in enumerate(nodes)}
    options = Options(placement=PlacementOptions(pins if len(infos) > 1 else {}))
    first, second = (plan_whole(name, infos, options) for _ in range(2))
    assert first == second and first.chunks == second.chunks
    assert {chunk.device for chunk in first.chunks if chunk.is_on_device} == {*range(len(infos))}
    chunk = next(chunk for chunk in second.chunks if chunk.dispatches)
    other = replace(chunk, barriers=chunk.barriers[1:])
    assert other != chunk and replace(second, chunks=(other,)) != first


@pytest.mark.parametrize("name", pass_graphs.GRAPHS)
def test_graphs_that_are_imported_twice_give_equal_plans(name):
    proto, fed = pass_graphs.GRAPHS[name]()
    inputs = {value: plan_cache.describe(value, array) for value, array in fed.items()}
    first, second = (
        plans.make_plan(
            onnx_import.load_graph(proto), inputs, [NVIDIA], facts=Facts(evaluate=host.evaluate)
        )
        for _ in range(2)
    )
    assert first.graph == second.graph and first == second


def test_content_is_compared_as_it_is_stored():
    graph = whole("mlp")[0]
    name, weight = next(
        (name, info) for name, info in graph.initializers.items() if info.dtype == "float32"
    )

    def changed(array):
        infos = {name: replace(weight, constant=array)}
        return replace(graph, initializers={**graph.initializers, **infos})

    value = weight.constant
    assert changed(value.copy()) == graph and changed(value.copy()) == changed(value.copy())
    assert changed(-value) != graph and changed(value.astype("float64")) != graph
    assert changed(np.full_like(value, np.nan)) == changed(np.full_like(value, np.nan))
    texts = [np.array(["a", "b"], object) for _ in range(2)]
    assert changed(texts[0]) == changed(texts[1]) != changed(texts[0][:1])
    assert graph != name and Content() != Content
    with pytest.raises(TypeError):
        hash(graph)


def test_initializers_cannot_be_changed():
    given = dict(onnx_import.load_graph(proto_of("mlp")).initializers)
    graph = replace(onnx_import.load_graph(proto_of("mlp")), initializers=given)
    name = next(iter(given))
    with pytest.raises(TypeError, match="does not support item assignment"):
        graph.initializers[name] = given[name]
    with pytest.raises(TypeError, match="does not support item deletion"):
        del graph.initializers[name]
    given.clear()  # the graph's own mapping is another
    assert name in graph.initializers
    for other in (copy.deepcopy(graph), pickle.loads(pickle.dumps(graph)), replace(graph)):
        assert other == graph
        with pytest.raises(TypeError):
            other.initializers[name] = None
