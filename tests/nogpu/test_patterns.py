"""Patterns of exporters: found in every form, and not in what only looks like one."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import pytest

from support.graphs import pattern_forms, written
from vklab.graph import onnx_import, passes, shapes
from vklab.graph.passes import matching

PASSES = [step for step in passes.PASSES if step.name in pattern_forms.PATTERNS]
CASES = [(kind, name) for kind, forms in pattern_forms.FORMS.items() for name in forms]
MISSES = [(kind, name) for kind, forms in pattern_forms.NOT_FORMS.items() for name in forms]


def imported(text, outputs=("y",), **more):
    return shapes.infer(onnx_import.load_graph(written.write(text, outputs, **more)[0]))


def found(graph):
    """Return the operators that the passes leave of a graph, checking what holds for any."""
    for step in PASSES:
        changed = step(graph)
        again = step(changed)
        assert again is changed, f"{step.name} is not idempotent"
        graph = changed
    fresh = shapes.infer(dataclasses.replace(graph, infos={})).infos
    assert {name: str(graph.infos[name]) for name in fresh} == {
        name: str(info) for name, info in fresh.items()
    }
    return [node.op_type for node in graph.nodes]


def test_every_pass_that_searches_patterns_has_forms_and_look_alikes():
    files = Path(passes.__file__).parent.glob("*.py")
    searching = {path.stem for path in files if "matching.replaced(" in path.read_text("utf-8")}
    assert searching == pattern_forms.PATTERNS.keys() == {step.name for step in PASSES}
    assert all(all(pair) for pair in pattern_forms.PATTERNS.values())


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_forms_of_exporters_are_found(kind, name):
    expected, text = pattern_forms.FORMS[kind][name]
    assert Counter(found(imported(text))) == Counter(expected.split())


@pytest.mark.parametrize(("kind", "name"), MISSES)
def test_what_only_looks_alike_is_left(kind, name):
    expected, text = pattern_forms.NOT_FORMS[kind][name]
    assert Counter(found(imported(text))) == Counter(expected.split())


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_inner_values_that_are_outputs_keep_their_nodes(kind, name):
    text = pattern_forms.FORMS[kind][name][1]
    for inner in {part.split("=")[0].strip() for part in text.split(";")} - {"y"}:
        graph = imported(text, ("y", inner))
        for step in PASSES:
            graph = step(graph)
        made = {output for node in graph.nodes for output in node.outputs}
        assert {"y", inner} <= made


HALVES = {"x": "float16", "w": "float16"}


@pytest.mark.parametrize(("expected", "text"), [
    ("RMSNormalization", "c = Cast(x, to=1); s = Add(ReduceMean(Pow(c, 2.0), axes=(-1,)), 1e-6);"
                         "y = Mul(w, Cast(Mul(c, Div(1.0, Sqrt(s))), to=10))"),
    ("RMSNormalization", "c = Cast(x, to=1); s = Add(ReduceMean(Pow(c, 2.0), axes=(-1,)), 1e-6);"
                         "y = Cast(Mul(Cast(w, to=1), Mul(c, Div(1.0, Sqrt(s)))), to=10)"),
    ("Gelu Cast", "c = Cast(x, to=1); s = Add(Erf(Div(c, 1.4142135)), 1.0);"
                  "y = Cast(Mul(Mul(c, s), 0.5), to=10)"),
])  # fmt: skip
def test_casts_to_float32_inside_are_left_out(expected, text):
    graph = imported(text, dtypes=HALVES)
    left = found(graph)
    assert set(expected.split()) <= set(left) <= {*expected.split(), "Cast"}


def test_every_bracketing_of_a_product_is_a_pattern():
    a, b, c = (matching.AnyValue(name) for name in "abc")
    assert len(matching.times(a, b, c).patterns) == 3
    assert matching.times(a) is a


def test_a_name_that_stands_twice_is_one_number():
    step = matching.PatternStep
    twice = step("Mul", (step("Add", (matching.AnyValue("x"), number())), number()))
    for text, count in (("y = Mul(Add(x, 0.5), 0.5)", 1), ("y = Mul(Add(x, 0.5), 0.6)", 0)):
        search = matching.PatternSearch(imported(text))
        assert len(list(search.find(twice, "y"))) == count


def number():
    return matching.KnownNumber(name="n")
