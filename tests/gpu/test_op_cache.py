"""Caches of keys and values: rows written in place, attention over the valid rows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

import vklab
from support.graphs import cache_graphs
from support.graphs.cache_graphs import Case
from support.runs.tiers import seeds
from support.runs.two_drivers import both
from vklab import settings
from vklab.errors import ModelError, PlanError
from vklab.graph.graph import Graph, Node
from vklab.plan.tuning.attention import cache_registers
from vklab.runtime import open_devices
from vklab.types import TensorInfo

# Odd lengths, groups of one to nine heads, heads of sizes that end in the middle of 16 bytes.
CASES = {
    "groups": Case([129], [1], heads=9, kv_heads=3, size=64, context=300, kind="F16", turned=64),
    "empty": Case([0], [1]),
    "steps": Case([7, 127], [3, 1], heads=9, kv_heads=3, size=64, context=200, turned=64,
                  neighbours=True),
    "part": Case([1031], [1], heads=9, kv_heads=3, size=80, context=1100, kind="F16", turned=32),
    "wide": Case([1], [5], heads=3, kv_heads=3, size=128, context=128, turned=128),
    "full": Case([127], [1], heads=8, kv_heads=1, size=32, context=128, kind="F16"),
    "chunk": Case([128, 0, 40], [9, 33, 0], heads=6, kv_heads=2, size=32, context=300,
                  kind="F16", turned=32),
    "tail": Case([6], [2], heads=3, kv_heads=1, size=20, context=60, kind="F16", turned=20),
    "eighths": Case([129, 3], [1, 1], heads=9, kv_heads=3, size=64, context=301, kind="Q8_0",
                    turned=64),
    "blocks": Case([7, 127], [3, 1], heads=4, kv_heads=2, size=96, context=201, kind="Q8_0",
                   turned=32, neighbours=True),
    "part of 8": Case([1031], [1], heads=4, kv_heads=1, size=128, context=1101, kind="Q8_0",
                      turned=128),
    "chunk of 8": Case([128, 0, 40], [9, 33, 0], heads=6, kv_heads=2, size=32, context=300,
                       kind="Q8_0", turned=32),
    "singles": Case([63, 64], [1, 1], heads=5, kv_heads=5, size=12, context=65),
}  # fmt: skip
# So many steps that whole rows keep a GPU busy: on matrix units, where there are some.
MANY = {
    "neighbours": Case([37], [260], heads=16, kv_heads=8, size=64, context=320, kind="F16",
                       turned=64, neighbours=True),
    "batch": Case([128, 0, 40], [150, 100, 0], heads=8, kv_heads=8, size=32, context=300,
                  kind="F16", turned=32),
    "wide": Case([5], [200], heads=64, kv_heads=16, size=128, context=210, kind="F16", turned=128),
    "plain": Case([300], [129], heads=32, kv_heads=16, size=96, context=429, kind="F16"),
    "codes": Case([37], [260], heads=16, kv_heads=8, size=64, context=320, kind="Q8_0",
                  turned=64, neighbours=True),
    "odd codes": Case([3, 70], [130, 129], heads=16, kv_heads=8, size=96, context=203,
                      kind="Q8_0", turned=32),
}  # fmt: skip
# One node or three; parts combined by a second dispatch or by the last workgroup.
FORMS = {"apart": (False, False), "joined": (True, False), "counted": (True, True)}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CASES)
def test_workgroups_of_a_gpu(name, form, device):
    with settings.settings(DISABLE_VARIANTS=True):
        test_rows_are_written_and_read(name, form, device)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", seeds(*CASES))
def test_rows_are_written_and_read(name, form, device):
    case, graph = CASES[name], CASES[name].graph(*FORMS[form])
    with settings.settings(FALLBACK=False), vklab.load(graph, device) as session:
        found = session.run(case.inputs())
    check(case, found)
    assert not found.get("counters", np.zeros(1)).any()  # ready for the next layer


# One step; heads divide a subgroup of lavapipe, groups fill no workgroup, lengths are odd.
STEPS = {
    "groups of 3": Case([1031, 300], [1, 1], heads=9, kv_heads=3, size=64, context=1100,
                        kind="F16", turned=64),
    "groups of 5": Case([700, 0, 3], [1, 1, 1], heads=10, kv_heads=2, size=64, context=1100,
                        kind="Q8_0", turned=64),
    "padding": Case([256, 513], [1, 0], heads=10, kv_heads=2, size=64, context=701, kind="F16",
                    turned=16, neighbours=True),
    "alone": Case([257], [1], heads=2, kv_heads=2, size=32, context=300, kind="F16", turned=32),
    "short": Case([4], [1], heads=4, kv_heads=2, size=32, context=64, kind="Q8_0"),
}  # fmt: skip


@pytest.mark.parametrize("form", ["joined", "counted"])
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.full
def test_one_step_in_registers(name, form, device, monkeypatch):
    monkeypatch.setattr(cache_registers, "is_able", lambda info: True)
    case = STEPS[name]
    divides = case.size // cache_registers.PIECE <= vklab.devices()[device].subgroup_size
    for least in (8, 256):  # many parts, few parts
        monkeypatch.setattr(cache_registers, "_least", lambda *_, keys=least: keys)
        graph = case.graph(*FORMS[form])
        with settings.settings(FALLBACK=False), vklab.load(graph, device) as session:
            check(case, session.run(case.inputs()))
            used = "cache_attention_registers" in [each.kernel for each in session.plan.dispatches]
            one = form == "counted" or case.context <= 64  # or two dispatches combine
            assert used == (divides and one)


@pytest.mark.parametrize("least", [8, 256])
def test_rows_behind_the_end_of_a_sequence_weigh_nothing(least, device, monkeypatch):
    monkeypatch.setattr(cache_registers, "is_able", lambda info: True)
    monkeypatch.setattr(cache_registers, "_least", lambda *_: least)
    size = min(64, cache_registers.PIECE * vklab.devices()[device].subgroup_size)
    case = Case([5], [1], heads=9, kv_heads=3, size=size, context=300, kind="F16", turned=size)
    given = case.inputs()
    for name in ("past_key", "past_value"):
        given[name] = given[name].copy()
        given[name][:, :, 6:] = 0x7C007E00  # halves: infinity, and no number
    graph = case.graph(*FORMS["counted"])
    with settings.settings(FALLBACK=False), vklab.load(graph, device) as session:
        found = session.run(given)["y"]
        assert "cache_attention_registers" in [each.kernel for each in session.plan.dispatches]
        assert np.array_equal(found, session.run(case.inputs())["y"])


@pytest.mark.parametrize("name", MANY)
def test_many_steps_on_matrix_units(name, device):
    if not open_devices.open_device(device).info.cooperative_matrices:
        pytest.skip("the driver has no cooperative matrices")
    case = MANY[name]
    with settings.settings(FALLBACK=False), vklab.load(case.graph(True, True), device) as session:
        found = session.run(case.inputs())
        kernels = [dispatch.kernel for dispatch in session.plan.dispatches]
    if "cache_attention_matrices" not in kernels:
        pytest.skip("where the driver keeps a matrix's elements is not known")
    check(case, found, 3e-3)  # queries and weights are halves


def check(case, found, bound=2e-6):
    """Demand the rows and the results of float64."""
    held = []
    for made, expected in zip((found["key"], found["value"]), case.rows(), strict=True):
        rows = cache_graphs.rows_of(made, case.size, case.kind)
        held.append(rows.astype(np.float64))
        unit = {"F16": 2.0**-10, "F32": 2.0**-22, "Q8_0": 2.0**-5}[case.kind]  # int8: one step
        assert (abs(rows - expected) <= unit * abs(expected) + unit).all()
    assert np.isfinite(found["y"]).all()
    results = case.results(*held)  # of the rows that the cache holds
    assert abs(case.valid(found["y"]) - case.valid(results)).max() < bound


@pytest.mark.full
def test_swiftshader_has_no_float16_and_reads_it():
    both(
        """
import numpy as np, vklab
from support.graphs import cache_graphs
from test_op_cache import CASES, FORMS, check
for case in CASES.values():
    for form in FORMS.values():
        with vklab.load(case.graph(*form), "swiftshader") as session:
            check(case, session.run(case.inputs()))
""",
        PYTHONPATH=os.pathsep.join([str(Path(__file__).parent), *sys.path]),
    )


def test_a_state_stays_where_it_is_in_several_bindings(device):
    opened = open_devices.open_device(device)
    case = CASES["steps"]
    given, states = case.inputs(), {"past_key": "key", "past_value": "value"}
    index = opened.info.index
    used = opened.allocator.used_bytes
    with vklab.load(case.graph(), index) as session, session.bind(given, state=states) as one:
        cache_bytes = given["past_key"].nbytes
        shared = {name: one.inputs[name] for name in states}
        alone = opened.allocator.used_bytes - used
        with session.bind({**given, **shared}, state=states) as other:
            first, second = one.inputs["past_key"], other.inputs["past_key"]
            assert second.origin == "bound" and first.home.place(first.key) == second.home.place(
                second.key
            )
            more = opened.allocator.used_bytes - used - alone
            y = [other.run()["y"].numpy().copy(), one.run()["y"].numpy().copy()]
            recordings = len(one._home._programs)
            again = one.run()["key"].numpy().copy()
        assert recordings == len(one._home._programs) == 1  # nothing is swapped
    assert alone >= 2 * cache_bytes > more  # one cache in all, and the other values twice
    assert (y[0] == y[1]).all()
    keys = case.expected()[0]
    assert abs(cache_graphs.rows_of(again, case.size, case.kind) - keys).max() < 1e-5


def test_a_changed_input_must_be_a_state(device):
    case = CASES["empty"]
    with (
        vklab.load(case.graph(), device) as session,
        pytest.raises(
            ModelError, match="input past_value is changed in place by each run; bind it as a state"
        ),
    ):
        session.bind(case.inputs(), state={"past_key": "key"})


def test_no_node_reads_rows_that_were_overwritten(device):
    case = CASES["empty"]
    graph = case.graph()
    late = Node("late", "Identity", ("past_key",), ("old",))
    nodes = (*graph.nodes, late, Node("sum", "Add", ("old", "key"), ("sum",)))
    changed = Graph(
        "late", 24, nodes, graph.inputs, ("y", "sum"), graph.initializers, graph.infos, graph.opsets
    )
    with pytest.raises(PlanError, match="'key' writes key in place of past_key, which must be"):
        vklab.load(changed, device)


@pytest.mark.parametrize("bad", seeds(
    ("past_key", (1, 2, 64, 17)), ("past_key", (1, 3, 64, 16)), ("lengths", (2,)),
    ("q", (1, 1, 60)), ("k", (1, 1, 36)), ("cos", (63, 8)), ("cos", (64, 7)),
))  # fmt: skip
def test_sizes_that_do_not_fit_are_refused(bad, device):
    name, shape = bad
    case = Case([0], [1], turned=16)
    graph = case.graph()
    inputs = tuple(
        TensorInfo(i.name, i.dtype, shape) if i.name == name else i for i in graph.inputs
    )
    constants = dict(graph.initializers)
    if name == "cos":
        constants[name] = TensorInfo(name, "float32", shape, np.zeros(shape, np.float32))
    infos = {info.name: info for info in (*inputs, *constants.values())}
    changed = Graph("bad", 24, graph.nodes, inputs, graph.outputs, constants, infos, graph.opsets)
    with pytest.raises(ModelError, match="node '(key|y)'"), vklab.load(changed, device) as session:
        session.run({i.name: np.zeros(i.dims, i.dtype) for i in inputs})
