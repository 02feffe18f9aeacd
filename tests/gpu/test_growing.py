"""Sequences that grow, shrink and jump under upper bounds: templates change no bit of a result."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import helper

import vklab
from support.graphs import growing_models
from support.graphs.small_models import DATA, model, random_array, value
from support.graphs.state_models import cell
from support.models import exported_models
from support.runs import tiers
from support.runs.two_drivers import both
from vklab import settings
from vklab.apps import cli
from vklab.apps.compare.speed import growing
from vklab.graph import passes
from vklab.plan.templates import tracing
from vklab.runtime import open_devices

pytestmark = pytest.mark.full
NODE = helper.make_node
GROWING = (*range(1, 12), 16, 17, 31, 32, 33, 40, 41)
JUMPING = (9, 3, 41, 1, 20, 9, 2, 33, 12, 64, 5)


def exported(name, **fixed):
    made = exported_models.load(name)

    def feeds(size):
        sizes = {"batch": 2, "sequence": size, "past": size, **fixed}
        return exported_models.inputs_of(made, {**sizes, "total": sizes["past"] + 1})

    limits = {"batch": 2, "sequence": 64, "past": 64, "total": 65, **fixed}
    dims = {dim.dim_param for i in made.graph.input for dim in i.type.tensor_type.shape.dim}
    return made, {name: size for name, size in limits.items() if name in dims}, feeds


def digits():
    feeds = lambda n: {"image": random_array((n, 1, 28, 28), n)}  # noqa: E731
    return onnx.load(DATA / "digits_cnn.onnx"), {"batch": 64}, feeds


MODELS = {
    "decoder": lambda: (growing.decoder(), {"past": 64}, growing.feeds),
    "sized": lambda: (growing_models.sized(), {"n": 64}, lambda n: {"x": random_array((n,))}),
    "found": lambda: (growing_models.found(), {"n": 64}, lambda n: {"x": random_array((n, 8), n)}),
    "controlled": lambda: (growing_models.controlled(), {"n": 64},
                           lambda n: {"x": random_array((n, 4), n)}),
    "digits": digits,
    "gpt2": lambda: exported("gpt2"),
    "gpt2_script": lambda: exported("gpt2_script"),
    "llama": lambda: exported("llama", batch=1, sequence=1),
    "bert": lambda: exported("bert"),
}  # fmt: skip


@pytest.fixture
def made(monkeypatch):
    """Return a list that notes "full" for each full plan, and "traced" for each trace."""
    noted = []
    for module, name, word in ((tracing, "trace", "traced"), (passes, "run", "rewritten")):
        real = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *given, real=real, word=word: (noted.append(word), real(*given))[1]
        )
    return noted


def check_equal(session, full, feeds, sizes):
    for size in sizes:
        fed = feeds(size)
        expected, found = full.run(fed), session.run(fed)
        for name, array in expected.items():
            np.testing.assert_array_equal(
                found[name], array, err_msg=f"{name} of {size}", strict=True
            )


def templates_of(session):
    return [template for template in session.roots[0].memo if template]


LARGE = ("bert", "gpt2", "gpt2_script", "llama")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LARGE)) for n in MODELS]
)
@pytest.mark.parametrize("sizes", tiers.seeds(JUMPING, GROWING, GROWING[::-1]),
                         ids=["jump", "up", "down"])  # fmt: skip
def test_templates_change_no_bit(device, name, sizes):
    proto, limits, feeds = MODELS[name]()
    with (
        vklab.load(proto, device, upper_bounds=limits) as session,
        settings.settings(DISABLE_TEMPLATES=True),
        vklab.load(proto, device, upper_bounds=limits) as full,
    ):
        check_equal(session, full, feeds, sizes)
        assert not templates_of(full)
        assert templates_of(session)


@pytest.mark.parametrize("name", ["decoder", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_no_size_is_planned_in_full(device_index, name, made):
    proto, limits, feeds = MODELS[name]()
    with vklab.load(proto, device_index, upper_bounds=limits) as session:
        assert made == ["rewritten"]  # the plan at the bounds
        kernels = set()
        for size in range(5, 64):
            session.run(feeds(size))
            kernels.add(tuple((each.variant, each.constants) for each in session.plan.dispatches))
    assert made.count("rewritten") == 1 + made.count("traced")  # each by a trace alone
    # A trace for each choice of kernels; a rule may compare sizes and choose the same ones.
    assert 0 < made.count("traced") <= 2 * len(kernels) < 30


OPTIONS = {
    "float16": {"dtype": "float16"}, "staged": {"DISABLE_DIRECT_IO": True},
    "allocated": {"DISABLE_PUSH_DESCRIPTORS": True}, "unfused": {"DISABLE_FUSION": True},
    "apart": {"DISABLE_ALIASING": True}, "recorded": {"DISABLE_REPLAY": True},
}  # fmt: skip


@pytest.mark.parametrize("name", tiers.seeds("sized", "decoder"))
@pytest.mark.parametrize("option", OPTIONS)
def test_templates_change_no_bit_under_options(device, name, option):
    proto, limits, feeds = MODELS[name]()
    switches = dict(OPTIONS[option])
    more = {"dtype": switches.pop("dtype", None), "upper_bounds": limits}
    with (
        settings.settings(**switches),
        vklab.load(proto, device, **more) as session,
        settings.settings(DISABLE_TEMPLATES=True),
        vklab.load(proto, device, **more) as full,
    ):
        check_equal(session, full, feeds, JUMPING)
        assert templates_of(session)


def quantized():
    """Return a product of integers, requantized, whose rows are open."""
    nodes = [
        NODE("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        NODE("MatMulInteger", ["q", "w", "zero"], ["sums"]),
        NODE("Cast", ["sums"], ["floats"], to=1),
        NODE("Mul", ["floats", "scale"], ["y"]),
        NODE("Softmax", ["y"], ["z"], axis=-1),
    ]
    constants = {
        "scale": np.float32(0.03),
        "zero": np.int8(3),
        "w": (40 * random_array((8, 24))).astype(np.int8),
    }
    return model([*nodes], [value("x", ("n", 8))], ["y", "z"], constants)


def test_templates_of_quantized_models_change_no_bit(device):
    with (
        vklab.load(quantized(), device, upper_bounds={"n": 24}) as session,
        settings.settings(DISABLE_TEMPLATES=True),
        vklab.load(quantized(), device, upper_bounds={"n": 24}) as full,
    ):
        check_equal(session, full, lambda n: {"x": random_array((n, 8), n)}, (2, 3, 9, 4, 20, 1))
        assert templates_of(session)


@pytest.mark.parametrize("seed", range(12))
def test_templates_of_random_models_change_no_bit(device_index, seed):
    random = np.random.default_rng(seed)
    proto = growing_models.random_model(random)
    sizes = random.integers(1, 17, 8)
    with (
        vklab.load(proto, device_index, upper_bounds={"n": 16}) as session,
        settings.settings(DISABLE_TEMPLATES=True),
        vklab.load(proto, device_index, upper_bounds={"n": 16}) as full,
    ):
        check_equal(session, full, lambda n: {"x": random_array((n, 6), n)}, map(int, sizes))


def test_frames_and_dropped_plans_use_templates(device):
    proto, limits, feeds = MODELS["decoder"]()
    with (
        vklab.load(proto, device, upper_bounds=limits) as session,
        settings.settings(DISABLE_TEMPLATES=True),
        vklab.load(proto, device, upper_bounds=limits) as full,
    ):
        batches = [feeds(n) for n in (2, 3, 4, 2, 9, 8, 40)]
        for fed, found in zip(batches, session.map(batches, in_flight=2), strict=True):
            for name, array in full.run(fed).items():
                np.testing.assert_array_equal(found[name], array)
        with settings.settings(KEPT_PLANS=2):
            check_equal(session, full, feeds, (2, 3, 4, 5, 2, 3))
            assert len(session.roots[0].entries) == len(session.roots[0].plans) == 2


def test_memory_does_not_grow_with_the_sizes(device):
    proto, limits, feeds = MODELS["decoder"]()
    opened = open_devices.open_device(device)
    with vklab.load(proto, device, upper_bounds=limits) as session:
        session.run(feeds(3))
        before = opened.allocator.used_bytes
        for size in JUMPING:
            session.run(feeds(size))
        assert opened.allocator.used_bytes == before


def test_a_bound_state_is_kept_while_other_sizes_run(device):
    with (
        vklab.load(cell("rows"), device, upper_bounds={"rows": 16}) as session,
        vklab.load(cell(5), device) as other,
    ):
        state = np.zeros((5, 8), np.float32)
        with session.bind({"x": random_array((5, 8)), "h": state}, state={"h": "h2"}) as bound:
            for step in range(4):
                x = random_array((5, 8), step)
                session.run({"x": random_array((3 + step, 8)), "h": random_array((3 + step, 8))})
                expected = other.run({"x": x, "h": state})
                np.testing.assert_array_equal(bound.run({"x": x})["y"].numpy(), expected["y"])
                state = expected["h2"]
        assert templates_of(session)


def test_sizes_of_several_devices_are_planned_as_before():
    both("""
import numpy as np, vklab
from support.runs.split_models import *
source, fed = diamond()
rows_of = lambda rows: {name: np.resize(array, (rows, 8)) for name, array in fed.items()}
want = {n: outputs_of(source, rows_of(n)) for n in (1, 2, 3, 7)}
with nothing_left(), vklab.load(source, devices=BOTH, place=DIAMOND, upper_bounds={"n": 9}) as s:
    for rows in (1, 2, 3, 7, 2):
        assert differs(want[rows], s.run(rows_of(rows))) < 1e-6, rows
    assert not s.roots[0].memo
""")


def test_the_benchmark_measures_both_ways(device_index, monkeypatch, capsys):
    monkeypatch.setattr(growing, "LAYERS", 1)
    monkeypatch.setattr(growing, "STEPS", range(2, 6))
    assert cli.main(["bench", "grow", "--json", "--device", str(device_index)]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["variant"] for row in rows] == ["templates", "full plans"]
    assert all(row["again_ms"] > 0 and row["first_ms"] <= row["slowest_ms"] for row in rows)
