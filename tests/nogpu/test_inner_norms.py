"""LayerNormalization inside products of halves: which norms are joined, and the numbers given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

from support.fakes.matrix_gpu import GPU, NVIDIA
from support.graphs.small_models import model, random_array, value
from vklab import settings
from vklab.graph import onnx_import
from vklab.plan import plan as plans
from vklab.plan.options import Facts, Options
from vklab.runtime import host

NODE = helper.make_node
ROWS, WIDE, INNER = 50, 64, 96


def block(rows=ROWS, wide=WIDE, inner=INNER, outputs=("y",), more=(), axis=-1):
    """Return y = (Norm(x w0 + x) w1 + c1) w2, and its constants.

    Args:
        rows: the rows of x.
        wide: its columns, which are those of the norm.
        inner: the columns of the product after the norm.
        outputs: the names of the outputs.
        more: further nodes.
        axis: of the norm.
    """
    nodes = [
        NODE("MatMul", ["x", "w0"], ["p"]),
        NODE("Add", ["p", "x"], ["s"]),
        NODE("LayerNormalization", ["s", "g", "b"], ["h"], epsilon=1e-5, axis=axis),
        NODE("MatMul", ["h", "w1"], ["q"]),
        NODE("Add", ["q", "c1"], ["r"]),
        NODE("MatMul", ["r", "w2"], ["y"]),
        *more,
    ]
    factors = (wide,) if axis == -1 else (rows, wide)
    known = {
        "w0": random_array((wide, wide), 1) / np.float32(wide**0.5),
        "w1": random_array((wide, inner), 2) / np.float32(wide**0.5),
        "w2": random_array((inner, 32), 3) / np.float32(inner**0.5),
        "g": random_array(factors, 4) * 3,
        "b": random_array(factors, 5),
        "c1": random_array((inner,), 6),
    }
    return model(nodes, [value("x", (rows, wide))], [*outputs], known), known


def planned(proto, info=NVIDIA, **switches):
    graph = onnx_import.load_graph(proto)
    with settings.settings(VARIANT="registers", **switches):
        options = Options(dtype="float16")
    return plans.make_plan(
        graph, {i.name: i for i in graph.inputs}, [info], options, Facts(evaluate=host.evaluate)
    )


def joined(plan):
    """Return the products that write moments, those that have a norm inside, and the norms."""
    kinds = [
        [each for each in plan.dispatches if (name, "1") in each.defines]
        for name in ("MOMENTS", "NORM")
    ]
    return (*kinds, [each for each in plan.dispatches if each.kernel.startswith("normalize")])


def test_a_norm_between_two_products_is_joined():
    (before,), (after,), norms = joined(planned(block()[0]))
    assert not norms and before.epilogue and "norm_buffer" in dict(after.reads)
    moments = dict(before.writes)["moments_buffer"]
    assert moments.shape == (ROWS, WIDE // before.constant_values["TILE_N"], 2)
    assert dict(after.reads)["given_buffer"] == moments
    assert dict(after.reads)["a_buffer"].name == before.writes[0][1].name
    assert after.push_values["pieces"] == moments.dims[1]


def test_the_plan_has_what_the_kernel_needs_to_normalise():
    proto, known = block()
    plan = planned(proto)
    (_,), (after,), _ = joined(plan)
    packed, (sums, added) = (
        plan.chunks[0].constants[dict(after.reads)[name].name].constant
        for name in ("b_buffer", "norm_buffer")
    )
    weight = packed.transpose(0, 3, 4, 1, 2).reshape(WIDE, INNER).astype(np.float64)
    assert 0.5 < np.abs(known["g"]).max() / after.push_values["alpha"] <= 1
    s = (random_array((ROWS, WIDE), 7) + 5).astype(np.float16).astype(np.float64)
    mean, deviation = s.mean(-1, keepdims=True), np.sqrt(s.var(-1, keepdims=True) + 1e-5)
    got = after.push_values["alpha"] / deviation * (s @ weight - mean * sums) + added
    normal = (s - mean) / deviation * known["g"] + known["b"]
    np.testing.assert_allclose(got, normal @ known["w1"], rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("case", ["switch", "cpu", "no-known-order", "no-fusion", "no-tuning"])
def test_elsewhere_the_norm_stays(case):
    info = {"cpu": replace(NVIDIA, type="cpu"), "no-known-order": GPU}.get(case, NVIDIA)
    switches = {
        "switch": {"DISABLE_PASSES": "inner_norms"},
        "no-fusion": {"DISABLE_FUSION": True},
        "no-tuning": {"DISABLE_VARIANTS": True},
    }.get(case, {})
    made, read, norms = joined(planned(block()[0], info, **switches))
    assert not made and not read and len(norms) == 1


@pytest.mark.parametrize(("change", "reason"), [
    ({"outputs": ("y", "h")}, "an output"),
    ({"more": (NODE("Relu", ["h"], ["z"]),), "outputs": ("y", "z")}, "another reader"),
    ({"wide": 72}, "columns that are no whole tiles"),
    ({"axis": 0}, "a norm over two axes"),
], ids=lambda each: each if isinstance(each, str) else "")  # fmt: skip
def test_other_norms_stay(change, reason):
    made, read, norms = joined(planned(block(**change)[0]))
    assert not made and not read and norms, reason


def test_all_products_of_the_rows_have_the_norm_inside():
    more = (NODE("MatMul", ["h", "w3"], ["z"]),)
    proto, _ = block(more=more, outputs=("y", "z"))
    proto.graph.initializer.append(
        helper.make_tensor("w3", 1, (WIDE, 32), random_array((WIDE, 32), 8).ravel())
    )
    made, read, norms = joined(planned(proto, DISABLE_PASSES="join_products"))
    assert len(made) == 1 and len(read) == 2 and not norms
    assert len({dict(each.reads)["given_buffer"].name for each in read}) == 1


def test_factors_that_are_not_finite_keep_the_norm():
    proto, known = block()
    factors = known["g"].copy()
    factors[3] = np.inf
    stored = next(each for each in proto.graph.initializer if each.name == "g")
    stored.raw_data = factors.tobytes()
    made, read, norms = joined(planned(proto))
    assert not made and not read and len(norms) == 1
