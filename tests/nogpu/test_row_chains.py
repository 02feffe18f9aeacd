"""Which products of one row are joined: plans for a GPU that is not there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from onnx import helper

from support.fakes.matrix_gpu import GPU, NVIDIA
from vklab.apps.compare.models import builder, graphs
from vklab.graph import onnx_import
from vklab.plan.tuning.rows import row_chains
from vklab.runtime.compiled import build
from vklab.settings import settings


def planned(proto, info=NVIDIA, dtype=""):
    graph = onnx_import.load_graph(proto)
    plan = build.plan_whole(graph, info, {}, graphs.sample_inputs(proto), dtype)
    assert plan is not None
    return [step for chunk in plan.chunks for step in chunk.steps], plan.chunks[0].barriers


def kernels(proto, info=NVIDIA, dtype=""):
    return [step.kernel for step in planned(proto, info, dtype)[0]]


def deep(widths):
    """Return a model of products of one row without anything between, and Softmax."""
    network = builder.Builder("deep", (1, widths[0]), "y")
    for number, (rows, columns) in enumerate(zip(widths, widths[1:], strict=False)):
        network.matmul(f"matmul{number}", rows, columns)
    network.add("Softmax", "softmax", axis=1)
    return network.finish((1, widths[-1]))


def test_mlp_is_three_dispatches():
    assert kernels(graphs.mlp()) == ["matvec", "matvec", "matvec_head"]
    with settings(DISABLE_PASSES="row_chains"):
        assert kernels(graphs.mlp()) == ["matvec"] * 3 + ["softmax"]


def test_mnist12_is_three_dispatches():
    for dtype in ("", "float16"):
        assert kernels(graphs.mnist12(), dtype=dtype)[-3:] == ["conv_pool"] * 2 + ["matvec_head"]


def test_tickets_cost_one_barrier(monkeypatch):
    monkeypatch.setattr(row_chains, "MANY_ELEMENTS", 1 << 14)
    steps, barriers = planned(deep([64, 512, 512, 512, 256, 1004]))
    assert [step.kernel for step in steps] == ["clear_words", "matvec", "matvec_chain"]
    assert [barrier.before for barrier in barriers] == [2, 3]
    chain = steps[-1]
    assert chain.push_values["sizes"] == (512, 512, 512, 256, 1004)
    assert chain.workgroups == (64 + 64 + 32 + 126, 1, 1)
    assert {name for name, _ in chain.writes} == {
        "y_buffer",
        "counters_buffer",
        "last_buffer",
        "z_buffer",
    }


@pytest.mark.parametrize("info", [
    GPU, replace(NVIDIA, driver="NVK Mesa 25.2.0"),
    replace(NVIDIA, subgroup_operations=frozenset({"basic"})),
    replace(NVIDIA, limits={**NVIDIA.limits, "minSubgroupSize": 8}),
], ids=["vendor", "driver", "operations", "size"])  # fmt: skip
def test_devices_without_tickets(info, monkeypatch):
    monkeypatch.setattr(row_chains, "MANY_ELEMENTS", 1 << 14)
    assert "matvec_chain" not in kernels(deep([64, 512, 512, 512]), info)


def test_long_columns_need_workgroups_that_read_what_others_write():
    proto = deep([4096, 10])
    proto.graph.node[0].input[0] = "v"
    proto.graph.node.insert(0, helper.make_node("Sin", [proto.graph.input[0].name], ["v"]))
    assert "matvec_long" in kernels(proto)
    metal = replace(NVIDIA, extensions=NVIDIA.extensions | {"VK_KHR_portability_subset"})
    assert "matvec_long" not in kernels(proto, metal)
    with settings(DISABLE_COUNTED_PARTS=True):
        assert "matvec_long" not in kernels(proto)


def test_long_chains_are_cut(monkeypatch):
    monkeypatch.setattr(row_chains, "MANY_ELEMENTS", 1 << 14)
    found = kernels(deep([256] * 20))
    assert found.count("matvec_chain") == found.count("clear_words") == 2
    monkeypatch.setattr(row_chains, "MOST_LAYERS", 4)
    found = kernels(deep([256] * 20))
    assert found.count("matvec_chain") == found.count("clear_words") == 5


def test_a_kernel_that_is_not_there_is_not_chosen(monkeypatch):
    real = build._Planner.facts

    def facts(self, *given):
        return replace(
            real(self, *given),
            kernel_refusal=lambda dispatch: (
                "no compiler" if dispatch.kernel == "matvec_head" else ""
            ),
        )

    monkeypatch.setattr(build._Planner, "facts", facts)
    assert kernels(graphs.mlp()) == ["matvec"] * 3 + ["softmax"]


def test_what_is_done_to_a_result():
    """Only sums with a whole row, and a ReLU after them, are part of the kernels."""
    for nodes, joined in (
        ([("Add", "ar", "b"), ("Relu", "b", "y")], True),
        ([("Relu", "a", "y")], True),
        ([("Sigmoid", "a", "y")], False),
        ([("Relu", "a", "b"), ("Add", "br", "y")], False),
        ([("Mul", "ar", "y")], False),
    ):
        network = builder.Builder("one", (1, 64), "y")
        network.matmul("a", 64, 16)
        network.weight("r", (1, 16), 1, 1.0)
        proto = network.finish((1, 16))
        proto.graph.node[-1].output[0] = "a"
        proto.graph.node.extend(
            helper.make_node(kind, list(read), [made]) for kind, read, made in nodes
        )
        assert (kernels(proto) == ["matvec_head"]) == joined, nodes
