"""What a dispatch reads and writes, once: the same before its text is written and afterwards."""

from __future__ import annotations

import pytest

from support.fakes.matrix_gpu import NVIDIA
from support.models import exported_models
from support.models.planned import NAMES, plan_whole
from vklab.plan import fusion
from vklab.plan.fusion.flow import Uses
from vklab.types import Dispatch, Formula, Operand, Pointwise, StridedView, TensorInfo

X, Y, Z, BIAS = (TensorInfo(name, "float32", (4,)) for name in ("x", "y", "z", "bias"))


def work(*infos):
    operands = tuple(Operand(info, "float32", StridedView((1,))) for info in infos)
    return Pointwise((4,), operands, (Formula("a", (0,), (), "float32"),))


def dispatch(kernel="k", reads=(X,), **fused):
    names = ("x_buffer", "b_buffer")
    return Dispatch(
        kernel, tuple(zip(names, reads, strict=False)), (("y_buffer", Y),), (1, 1, 1), **fused
    )


@pytest.mark.parametrize(("given", "read"), [
    (dispatch(), [X]),
    (dispatch(reads=(X, X)), [X, X]),
    (dispatch("pointwise", (Z,), pointwise=work(X, BIAS)), [X, BIAS]),
    (dispatch("elementwise", pointwise=work(X)), [X]),
    (dispatch(reads=(Z, X), prologue=work(BIAS)), [X, BIAS]),
    (dispatch(epilogue=work(Z, BIAS)), [X, BIAS]),
    (dispatch("pointwise", siblings=(work(X), work(BIAS))), [X, BIAS]),
])  # fmt: skip
def test_a_dispatch_says_what_it_reads_and_writes(given, read):
    assert given.tensors_read == read and given.tensors_written == [Y]


@pytest.mark.parametrize("name", [*NAMES, *exported_models.NAMES])
def test_texts_of_fused_work_change_nothing_that_is_read(name, monkeypatch):
    before = []
    real = fusion.write

    def write(lowered):
        before.append(lowered.dispatches)
        return real(lowered)

    monkeypatch.setattr(fusion, "write", write)
    plan = plan_whole(name, [NVIDIA])
    given, made = (
        [{info.name for info in each.tensors_read} for each in dispatches]
        for dispatches in (before[-1], plan.dispatches)
    )
    bound = [{info.name for _, info in each.reads} for each in plan.dispatches]
    assert sorted(map(sorted, given)) == sorted(map(sorted, made)) and made == bound


def test_an_index_follows_the_dispatches():
    roots = {name: name for name in "xyz"} | {"view": "y"}
    view = TensorInfo("view", "float32", (2, 2))
    first, last = dispatch(), dispatch(reads=(view, view))
    uses = Uses(roots, (first, last))
    assert uses.writers == {"y": {0, 1}} and uses.readers == {"x": {0}, "y": {1}}
    assert uses.maker(view, 1) is None and uses.count(Y, last) == 2
    uses.leave(1, last)
    assert uses.reader(Y) is None and uses.reader(X) is None
    uses.enter(1, dispatch("pointwise", pointwise=work(Y)))
    uses.leave(1, first)  # a number may stand for several dispatches
    assert uses.maker(view, 1) == 0 and uses.reader(Y) == 1
    assert uses.root(TensorInfo("added", "float32", ())) == "added"
    assert Uses(roots, (first,), kept={"y"}).maker(Y, 1) is None
