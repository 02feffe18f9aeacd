"""Pieces of the runtime that exercises build: solutions and the runtime's own stand in for it."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import vklab
from vklab_course.author import trials
from vklab_course.author.lab import find_lab
from vklab_course.check import check_answer
from vklab_course.children.run_limited import run_limited
from vklab_course.data import data
from vklab_course.definition.draw import public_cases
from vklab_course.definition.exercise import exercises_of, find, number_of
from vklab_course.piece import Given
from vklab_course.places import PROJECT
from vklab_course.swap import swap
from vklab_labs.lab_13 import second_device

SECONDS = 120.0
LABS = PROJECT / "labs"


@pytest.fixture(autouse=True)
def labs(monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(LABS))


def digits():
    return str(data("digits_cnn.onnx"))


def turned_and_added():
    """Return a model with a Transpose, an Add and a Softmax."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("Add", ["t", "z"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"], axis=-1),
    ]
    return one_output(nodes, {"x": (37, 53), "z": (53, 37)}, (53, 37))


def products():
    """Return a model with two products, of which one has a bias."""
    weights = np.random.default_rng(1).standard_normal((53, 65)).astype(np.float32)
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["h"], transB=1),
        helper.make_node("Gemm", ["h", "w", "b"], ["y"]),
    ]
    made = one_output(nodes, {"x": (37, 65)}, (37, 65))
    bias = numpy_helper.from_array(weights[0], "b")
    made.graph.initializer.extend([numpy_helper.from_array(weights, "w"), bias])
    return made


def one_output(nodes, inputs, shape):
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)]
    graph = helper.make_graph(nodes, "drawn", given, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


# By exercise: a wrong answer to it, and words of the sentence that refuses it.
WRONG = {
    "09-3": (lambda nodes, given: ("order", [node[0] for node in nodes][::-1]), "stands before"),
    "09b-4": (lambda work: [*work][::-1], "before"),
    "02-3": (lambda families: (99, 0), "for compute you return 99"),
    "03-1": (lambda heaps, types, bits, size, required, preferred: [99], "no memory type 99"),
    "03-3": (lambda free, size, alignment: (0, free), "still holds bytes of the buffer"),
    "04-2": ("void main() { y[0] = 1; }", "the kernel does not compile"),
    "04b-1": ("[numthreads(8", "the kernel does not compile"),
    "07-4": (None, "no text of a kernel"),
    "08-2": ("#version 450\nvoid main() {", "the kernel does not compile"),
    "06-1": (lambda commands, barriers=(): [], "no barrier stands between"),
    "06-2": (lambda hazards: ([1], []), "no barrier stands between"),
    "12-1": (lambda nodes: [(0, [node[0]], [], []) for node in nodes], "belongs to device"),
    "12-4": (lambda tasks: [[*tasks][::-1], []], "deadlock"),
    "13-1": (lambda nodes, caps: [2] * len(nodes), "there are devices 0 to 1"),
    "13-3": (lambda times, moves: dict.fromkeys(times, 7), "is on device 7"),
    "12b-4": (lambda jobs, state, event: {**state, "in_flight": []}, "expected to start"),
    "13b-1": (lambda source, target, elements: ("pigeon", 0), "no path of the table"),
    "11-1": (
        lambda nodes, outputs: {n: (i, i) for i, (*_, writes) in enumerate(nodes) for n in writes},
        "is alive from step",
    ),
    "11-2": (lambda size, taken, alignment: 0, "share bytes"),
    "00-4": (lambda lifetimes, aliasing=True: ({each.name: 0 for each in lifetimes}, 0), "ends at"),
    "10-1": (lambda graph: {**graph, "nodes": graph["nodes"][:-1]}, "lost the output"),
}
MODELS = dict.fromkeys(("Transpose", "Add", "Softmax"), turned_and_added) | {"Gemm": products}
IDENTIFIERS = tuple(WRONG)
PIECES = [identifier for identifier in IDENTIFIERS if identifier != "06-2"]  # is that of 06-1


def run(model, piece, *givens):
    """Run a model, with givens at the piece's seam; return outputs and kernels."""
    place = swap(piece.seam, piece.adapter(*givens)) if givens else contextlib.nullcontext()
    options = {"devices": [0, 1], **piece.load} if piece.devices > 1 else {}
    with place, vklab.load(model, **options) as session:
        random = np.random.default_rng(0)
        feed = {
            info.name: random.random([d if isinstance(d, int) else 2 for d in info.shape]).astype(
                info.dtype
            )
            for info in session.inputs
        }
        outputs = {name: np.asarray(value) for name, value in session.run(feed).items()}
        return outputs, [Path(each.kernel).stem for each in session.plan.dispatches]


def counted(identifier, value, calls):
    """Return an answer whose calls are counted."""
    if not callable(value):
        return value

    @functools.wraps(value)
    def answer(*arguments, **named):
        calls[identifier] += 1
        return value(*arguments, **named)

    return answer


def swapped(model, piece, values, params):
    """Run a model with answers at the piece's seam; return outputs and calls by exercise."""
    calls = Counter()
    givens = [Given(counted(i, v, calls), params[i]) for i, v in values.items()]
    outputs, kernels = run(model, piece, *givens)
    calls.update({i: sum(f"yours_{i.replace('-', '_')}" in k for k in kernels) for i in values})
    return outputs, calls


def swapped_then_plain(model, piece, values, params):
    """Return a run with answers at the piece's seam and their calls, and a run with nothing there.

    This order matters: an open device is not asked for its queue families again.
    """
    return swapped(model, piece, values, params), run(model, piece)[0]


def refused(model, piece, identifier, answer, params):
    """Return the sentence that refuses a wrong answer beside the runtime's own ones."""
    own = {each: make(params[each]) for each, make in piece.own.items()}
    with pytest.raises(AssertionError) as error:
        swapped(model, piece, {**own, identifier: answer}, params)
    return str(error.value)


def equal(got, expected):
    return got.keys() == expected.keys() and all(
        np.allclose(got[name], expected[name], rtol=1e-4, atol=1e-4) for name in expected
    )


def in_child(function, piece, *arguments):
    """Return what a function gives in a process of its own that sees enough devices."""
    variables = second_device.second_device() if piece.devices > 1 else {}
    if variables is None:
        pytest.skip("there is no second Vulkan device or driver on this machine")
    ran = run_limited(function, *arguments, seconds=SECONDS, variables=variables)
    assert ran.status == "returned", ran.message
    return ran.value


def runs(piece, values, params):
    """Check that a model runs with answers at a piece's seam, and asks each of them."""
    model = MODELS.get(piece.name, digits)()
    (got, calls), expected = in_child(swapped_then_plain, piece, model, piece, values, params)
    print(calls)
    assert min(calls.values()) > 0
    assert equal(got, expected)


def parts(identifier):
    """Return the piece that an exercise builds, and the parameters of all its exercises."""
    piece = find(identifier).builds
    return piece, {each: find(each).params for each in piece.own}


@pytest.mark.parametrize("identifier", PIECES)
def test_a_piece_runs_with_the_solution(identifier):
    piece, params = parts(identifier)
    runs(piece, {i: trials.answer_of(find_lab(number_of(i), LABS), i) for i in params}, params)


def other_types(value):
    """Return a result with lists for tuples, tuples for lists, and NumPy's numbers."""
    if isinstance(value, tuple | list):
        return (list if isinstance(value, tuple) else tuple)(map(other_types, value))
    if isinstance(value, dict):
        return {key: other_types(one) for key, one in value.items()}
    return np.int64(value) if type(value) is int else value


@pytest.mark.slow
@pytest.mark.parametrize("identifier", [i for i in PIECES if find(i).takes == "function"])
def test_a_piece_runs_with_the_types_that_a_check_takes(identifier):
    piece, params = parts(identifier)
    values = {i: trials.answer_of(find_lab(number_of(i), LABS), i) for i in params}
    for key, value in values.items():

        @functools.wraps(value)
        def answer(*arguments, value=value, **named):
            return other_types(value(*arguments, **named))

        values[key] = answer
    runs(piece, values, params)


@pytest.mark.slow
@pytest.mark.parametrize("identifier", PIECES)
def test_a_piece_runs_with_the_runtimes_own(identifier):
    piece, params = parts(identifier)
    runs(piece, {each: make(params[each]) for each, make in piece.own.items()}, params)


@pytest.mark.parametrize("identifier", IDENTIFIERS)
def test_a_wrong_answer_is_refused_with_a_sentence(identifier):
    piece, params = parts(identifier)
    answer, words = WRONG[identifier]
    model = MODELS.get(piece.name, digits)()
    assert words in in_child(refused, piece, model, piece, identifier, answer, params)


@pytest.mark.parametrize("identifier", IDENTIFIERS)
def test_the_runtimes_own_is_no_answer(identifier):
    exercise = find(identifier)
    own = exercise.builds.own[identifier](exercise.params)
    verdict = check_answer(exercise, own, cases=public_cases(exercise))
    assert verdict.status == "incorrect" and not verdict.points, verdict


def test_every_exercise_that_builds_is_tried():
    numbers = sorted({path.stem.partition("_")[2] for path in (LABS / "checks").glob("lab_*.py")})
    building = {i for n in numbers for i, each in exercises_of(n).items() if each.builds}
    assert building == {*IDENTIFIERS}
