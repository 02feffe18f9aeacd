"""Plans of new sizes from templates: the work of full plans, made without planning."""

from __future__ import annotations

import collections
import dataclasses
import itertools

import numpy as np
import onnx
import pytest
from onnx import helper

from support.fakes.fake_device import fake_device
from support.fakes.matrix_gpu import NVIDIA
from support.graphs import attention_block
from support.graphs.small_models import DATA, model, random_array, value
from support.models import exported_models
from vklab import settings
from vklab.apps.compare.speed import growing
from vklab.errors import ModelError
from vklab.graph import bounds, onnx_import
from vklab.plan import memory, templates
from vklab.plan import plan as plans
from vklab.plan.options import Facts, Options
from vklab.plan.templates import writer
from vklab.plan.templates.symbols import SizeTrace, Symbol, UntraceableError
from vklab.runtime import host

NODE = helper.make_node
GROWING = (*range(1, 16), 31, 32, 33, 34, 64, 65, 100)
FEATURES = frozenset({"shaderInt64", "shaderFloat64"})


def recurrent(op_type="LSTM", gates=4):
    """Return a recurrent layer over an open number of steps: a dispatch for each."""
    weights = {"w": random_array((1, 8 * gates, 6)), "r": random_array((1, 8 * gates, 8))}
    node = NODE(op_type, ["x", "w", "r"], ["y", "h"], hidden_size=8)
    return model([node], [value("x", ("steps", 2, 6))], ["y", "h"], weights)


def ranged():
    """Return a model in which the size decides a value that planning folds."""
    nodes = [
        NODE("Shape", ["x"], ["dims"]),
        NODE("Squeeze", ["dims"], ["count"]),
        NODE("Range", ["zero", "count", "one"], ["numbers"]),
        NODE("Cast", ["numbers"], ["floats"], to=1),
        NODE("Add", ["x", "floats"], ["y"]),
    ]
    constants = {"zero": np.int64(0), "one": np.int64(1)}
    return model(nodes, [value("x", ("n",))], ["y"], constants)


def arithmetic():
    """Return a model that computes the shape of a Reshape from sizes, by all that is traced."""
    nodes = [
        NODE("Shape", ["x"], ["dims"]),
        NODE("Gather", ["dims", "first"], ["n"], axis=0),
        NODE("Gather", ["dims", "second"], ["m"], axis=0),
        NODE("Mul", ["n", "two"], ["twice"]),
        NODE("Div", ["m", "two"], ["half"]),
        NODE("Sub", ["twice", "n"], ["again"]),
        NODE("Add", ["again", "none"], ["same"]),
        NODE("Concat", ["same", "two", "half"], ["joined"], axis=0),
        NODE("Slice", ["joined", "none", "three"], ["shape"]),
        NODE("Cast", ["shape"], ["cast"], to=7),
        NODE("Reshape", ["x", "cast"], ["y"]),
        NODE("Relu", ["y"], ["z"]),
        NODE("Size", ["x"], ["size"]),
        NODE("Unsqueeze", ["size", "none"], ["sizes"]),
        NODE("Reshape", ["z", "sizes"], ["flat"]),
        NODE("Softmax", ["flat"], ["out"], axis=0),
    ]
    constants = {
        "first": np.int64([0]),
        "second": np.int64([1]),
        "two": np.int64([2]),
        "none": np.int64([0]),
        "three": np.int64([3]),
    }
    return model(nodes, [value("x", ("n", "m"))], ["out"], constants)


def sizes_of(**axes):
    return [dict(zip(axes, each, strict=True)) for each in itertools.product(*axes.values())]


def exported(name, **axes):
    """Return an exported model, its bounds, and its sizes."""
    limits = {axis: max(sizes) + 2 for axis, sizes in axes.items() if max(sizes) > 2}
    limits = {axis: limits.get(axis, max(sizes)) for axis, sizes in axes.items()}
    total = {"total": limits["past"] + 1} if "past" in axes else {}
    return lambda: exported_models.load(name), limits | total, sizes_of(**axes)


# model, bounds, sizes, and the most plans that are made in full, or traced
CASES = {
    "decoder": (growing.decoder, {"past": 128}, sizes_of(past=GROWING), 4),
    "attention block": (attention_block.block, {"batch": 4, "length": 12},
                        sizes_of(batch=(2, 3), length=range(1, 12)), 14),
    "arithmetic": (arithmetic, {"n": 16, "m": 16}, sizes_of(n=range(2, 9), m=(4, 6, 8)), 8),
    "lstm": (recurrent, {"steps": 16}, sizes_of(steps=range(1, 8)), 14),
    "gru": (lambda: recurrent("GRU", 3), {"steps": 16}, sizes_of(steps=range(1, 8)), 14),
    "range": (ranged, {"n": 32}, sizes_of(n=range(1, 30)), 3),
    "digits": (lambda: onnx.load(DATA / "digits_cnn.onnx"), {"batch": 40},
               sizes_of(batch=range(1, 30)), 20),
    "gpt2": (*exported("gpt2", batch=[2], sequence=range(5, 24)), 6),
    "gpt2_script": (*exported("gpt2_script", batch=[2], sequence=range(5, 12)), 4),
    # Of 6 rows two push constants of a kernel are equal: a full plan pushes them once.
    "llama": (*exported("llama", batch=[1], sequence=[1], past=[2, 3, 4, *range(7, 20)]), 3),
    "bert": (*exported("bert", batch=[2], sequence=range(5, 12)), 4),
    "vit": (*exported("vit", batch=range(2, 6)), 4),
}  # fmt: skip


class Planner:
    """Plans of one model, with a memo and without."""

    def __init__(self, proto, limits, info=None):
        graph = onnx_import.load_graph(proto)
        self.start = plans.Plan(
            graph,
            (info or fake_device(features=FEATURES),),
            Options(upper_bounds=limits),
            rest=graph,
        )
        self.memo = []
        self.made = []  # "full" or "traced"
        self.facts = Facts((frozenset(),), evaluate=host.evaluate)

    def infos(self, sizes):
        if "past" in sizes and "total" in self.start.options.upper_bounds:
            sizes = {**sizes, "total": sizes["past"] + sizes["sequence"]}
        return {info.name: info for info in bounds.at_bounds(self.start.graph.inputs, sizes)}

    def fast(self, **sizes):
        def make(infos, facts):
            self.made.append("full" if facts is self.facts else "traced")
            return plans.extend(self.start, infos, facts)

        return templates.extend(make, self.start, self.infos(sizes), self.facts, self.memo)

    def full(self, **sizes):
        return plans.extend(self.start, self.infos(sizes), self.facts)


def work(plan):
    """Count what the dispatches of a plan compute: all but names, order and memory."""
    return collections.Counter(
        (
            d.variant,
            d.constants,
            d.workgroups,
            d.push,
            d.flops,
            tuple((binding, info.dtype, info.dims, _bytes(info)) for binding, info in d.reads),
            tuple((binding, info.dtype, info.dims) for binding, info in d.writes),
        )
        for d in plan.dispatches
    )


def _bytes(info):
    is_known = info.constant is not None and info.constant.nbytes < 4096
    return info.constant.tobytes() if is_known else info.constant is None


@pytest.mark.parametrize("name", CASES)
def test_plans_from_templates_do_the_work_of_full_plans(name):
    build, limits, every_size, most = CASES[name]
    planner = Planner(build(), limits)
    for sizes in every_size:
        made = planner.fast(**sizes)
        assert work(made) == work(planner.full(**sizes)), sizes
    assert len(planner.made) <= most


def test_norms_inside_products_are_in_templates():
    nodes = [
        NODE("MatMul", ["x", "w"], ["p"]),
        NODE("Add", ["p", "x"], ["s"]),
        NODE("LayerNormalization", ["s", "g", "g"], ["h"]),
        NODE("MatMul", ["h", "w"], ["y"]),
    ]
    constants = {"w": random_array((64, 64), 1), "g": random_array((64,), 2)}
    with settings.settings(VARIANT="registers"):
        planner = Planner(
            model(nodes, [value("x", ("n", 64))], ["y"], constants), {"n": 300}, NVIDIA
        )
        options = Options(dtype="float16", upper_bounds={"n": 300})
        planner.start = dataclasses.replace(planner.start, options=options)
        for count in range(40, 46):
            made = planner.fast(n=count)
            assert work(made) == work(planner.full(n=count))
            assert [each.kernel for each in made.dispatches[-2:]] == ["matmul_registers"] * 2
            assert ("NORM", "1") in made.dispatches[-1].defines
    assert planner.made == ["traced"]


@pytest.mark.parametrize("switch", ["DISABLE_FUSION", "DISABLE_ALIASING", "DISABLE_DIRECT_IO",
                                    "DISABLE_IN_PLACE", "DISABLE_VARIANTS"])  # fmt: skip
def test_templates_hold_without_other_optimisations(switch):
    with settings.settings(**{switch: True}):
        planner = Planner(growing.decoder(1), {"past": 64})
        for past in range(9, 14):
            made = planner.fast(past=past)
            assert work(made) == work(planner.full(past=past)), past
    assert planner.made == ["traced"]


def test_a_growing_sequence_is_never_planned_in_full_and_traced_where_kernels_change():
    planner = Planner(growing.decoder(), {"past": 128})
    for past in range(2, 128):
        planner.fast(past=past)
    assert planner.made == ["traced", "traced"]  # a row of more than 32 elements: other kernels


def test_the_switch_plans_every_size_in_full():
    planner = Planner(growing.decoder(1), {"past": 64})
    with settings.settings(DISABLE_TEMPLATES=True):
        for past in range(2, 8):
            planner.fast(past=past)
    assert planner.made == ["full"] * 6
    assert planner.memo == []


def test_without_bounds_every_size_is_planned_in_full():
    planner = Planner(growing.decoder(1), {})
    for past in range(2, 8):
        planner.fast(past=past)
    assert planner.made == ["full"] * 6


def test_plans_of_several_devices_are_made_in_full():
    planner = Planner(growing.decoder(1), {"past": 64})
    one = planner.start.devices[0]
    other = dataclasses.replace(one, index=1, uuid="other")
    planner.start = dataclasses.replace(planner.start, devices=(one, other))
    for past in range(2, 5):
        planner.fast(past=past)
    assert planner.made == ["full"] * 3


def test_traces_stop_if_no_later_size_uses_them():
    planner = Planner(recurrent(), {"steps": 32})
    for steps in range(1, 20):
        planner.fast(steps=steps)
    assert 0 < planner.made.count("traced") <= templates.MOST_WASTED + 1


def test_few_templates_are_kept(monkeypatch):
    monkeypatch.setattr(templates, "MOST_TEMPLATES", 2)
    planner = Planner(recurrent(), {"steps": 32})
    for steps in (2, 3, 4, 3, 5):
        planner.fast(steps=steps)
        assert len(planner.memo) <= 2
    assert planner.made.count("traced") == 4


def test_errors_of_a_size_are_those_of_a_full_plan():
    planner = Planner(arithmetic(), {"n": 16, "m": 16})
    for m in (4, 6, 8, 10):
        planner.fast(n=3, m=m)
    with pytest.raises(ModelError) as fast:
        planner.fast(n=3, m=7)
    with pytest.raises(ModelError) as full:
        planner.full(n=3, m=7)
    assert str(fast.value) == str(full.value)


# -------------------------------------------------------------------------------------- symbols


def traced(compute, **sizes):
    """Return the function that a trace of `compute` becomes; sizes are (present, largest)."""
    trace = SizeTrace()
    symbols = [Symbol(trace, name, *size) for name, size in sizes.items()]
    return writer.write(trace, symbols, compute(*symbols))


def test_a_trace_computes_what_was_computed():
    build = traced(lambda n: (-(-n // 4) * 4, 2 * n + 1, n % 3, n / 2, max(n, 3), [n]), n=(7, 20))
    for n in (5, 9, 12):
        assert build(n) == (-(-n // 4) * 4, 2 * n + 1, n % 3, n / 2, n, [n])


@pytest.mark.parametrize("compute", [
    lambda n: n < 10, lambda n: n <= 10, lambda n: n != 12, lambda n: (n, 1) < (10, 0),
    lambda n: [range(n)], lambda n: "abc" * (n == 7), lambda n: f"{n}", lambda n: float(n),
    lambda n: np.zeros(n).size, lambda n: sorted([10, n]), lambda n: 12 in (n, 3),
    lambda n: 1 if n - 12 else 0, lambda n: bool(n.array([n - 12, 1], "int64").all()),
    lambda n: np.asarray(n.array([n], "int64")), lambda n: float(n.array([n], "int64")[0]),
    lambda n: (n.array([n, 3], "int64") < 10).tolist(),
    lambda n: np.array_equal(n.array([n, 3], "int64"), [7, 3]),
])  # fmt: skip
def test_a_trace_refuses_sizes_for_which_a_decision_differs(compute):
    build = traced(compute, n=(7, 20))
    assert build(7) is not None
    assert build(0) is None or build(12) is None


@pytest.mark.parametrize("compute", [
    lambda a: a + 1, lambda a: a.reshape(-1, 2).astype(np.float32),
    lambda a: np.concatenate([a, a]),
    lambda a: a[::-1].T, lambda a: np.take(a, [0, 0]), lambda a: (a * a).sum(),
    lambda a: [*a, a.size, a.nbytes, a.ndim, len(a)], lambda a: a.reshape(2, -1).tolist(),
    lambda a: a.flat[1], lambda a: -a, lambda a: a.max(),
])  # fmt: skip
def test_traced_arrays_are_computed_for_each_size(compute):
    build = traced(lambda n: compute(n.array([n, 3, n * n, 1], "int64")), n=(7, 20))
    for n in (7, 9, 4):
        np.testing.assert_array_equal(build(n), compute(np.int64([n, 3, n * n, 1])))


def test_arrays_of_other_shapes_are_traced():
    build = traced(
        lambda n: np.broadcast_to(n.array([1], "int64"), (n,)).reshape(-1, 1).shape, n=(7, 20)
    )
    assert [build(n) for n in (7, 9)] == [(7, 1), (9, 1)]


def test_what_is_reserved_is_the_size_at_the_bounds():
    build = traced(lambda n: [memory.reserved(4 * n), n], n=(7, 20))
    assert build(20) == [80, 20]
    assert build(21) is None
    with pytest.raises(UntraceableError, match="may grow beyond"):
        traced(lambda n: memory.reserved(100 - n), n=(7, 20))
    assert memory.reserved(12) == 12


def test_sizes_are_not_hashed():
    with pytest.raises(TypeError, match="unhashable"):
        traced(lambda n: {n: 1}, n=(7, 20))


def test_a_size_passes_for_an_integer():
    size = Symbol(SizeTrace(), "n", 7, 20)
    assert isinstance(size, int)
    assert not isinstance(size, str)
    assert isinstance(size.array([size], "int64"), np.ndarray)


def test_long_traces_are_given_up():
    def compute(n):
        for _ in range(30_000):
            n = n + 1
        return n

    with pytest.raises(UntraceableError, match="20000"):
        traced(compute, n=(7, 20))
