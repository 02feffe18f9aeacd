"""Einsum against NumPy: diagonals, ellipses, sums of one operand, more than two operands."""

from __future__ import annotations

import numpy as np
import pytest

import vklab
from support.graphs.small_models import one_node, random_array
from vklab.errors import ModelError

CASES = [
    ("ij->ji", [(3, 5)]), ("ij->", [(3, 5)]), ("ij->i", [(3, 5)]), ("ij->j", [(3, 5)]),
    ("ii->i", [(5, 5)]), ("ii", [(5, 5)]), ("...ii->...i", [(2, 3, 5, 5)]), ("i", [(7,)]),
    ("ij,jk", [(3, 5), (5, 7)]), ("ij,jk->ki", [(3, 5), (5, 7)]), ("i,j->ij", [(3,), (5,)]),
    ("bij,bjk->bik", [(2, 3, 5), (2, 5, 7)]), ("...ij,...jk->...ik", [(2, 1, 3, 5), (4, 5, 7)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 5, 7), (2, 3, 4, 7)]),
    ("bqhd,bkhd->bhqk", [(2, 5, 3, 7), (2, 4, 3, 7)]),
    ("ij,kj,lj->ikl", [(3, 5), (4, 5), (2, 5)]),
    ("ab,bc,cd,de->ae", [(2, 3), (3, 5), (5, 7), (7, 2)]),
    ("ij,ij->", [(3, 5), (3, 5)]), ("i,i,i->i", [(5,), (5,), (5,)]), ("ij,k->k", [(3, 5), (4,)]),
    ("iij,jk->ik", [(3, 3, 5), (5, 2)]), ("abcd,dcef->abef", [(2, 3, 5, 7), (7, 5, 2, 3)]),
    ("abcd,acef->ebdf", [(2, 3, 5, 7), (2, 5, 2, 3)]), (",ij->ij", [(), (3, 5)]), ("->", [()]),
    ("ij,jk->ik", [(1, 5), (5, 7)]), ("ij,jk->ik", [(3, 0), (0, 2)]), ("ij->j", [(0, 5)]),
    ("...a,...b->...ab", [(2, 3, 5), (2, 3, 7)]), ("b...,c...->bc...", [(3, 2, 5), (4, 2, 5)]),
]  # fmt: skip


@pytest.mark.parametrize(("equation", "shapes"), CASES, ids=[case[0] for case in CASES])
def test_equations(device, equation, shapes):
    arrays = [random_array(shape, i) for i, shape in enumerate(shapes)]
    proto, fed = one_node("Einsum", arrays, equation=equation)
    with vklab.load(proto, device) as session:
        y = session.run(fed)["y0"]
    expected = np.einsum(equation, *arrays)
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float64", "float16"])
def test_other_numbers(device, dtype):
    arrays = [(random_array(s) * 9).astype(dtype) for s in ((3, 5), (5, 7))]
    proto, fed = one_node("Einsum", arrays, equation="ij,jk->ki")
    with vklab.load(proto, device) as session:
        y = session.run(fed)["y0"]
    np.testing.assert_allclose(y, np.einsum("ij,jk->ki", *arrays), rtol=1e-2)


@pytest.mark.parametrize(("equation", "shapes"), [
    ("ij,jk->ik", [(3, 5), (4, 7)]), ("ij->ijk", [(3, 5)]), ("ij", [(3, 5, 7)]), ("ij,j", [(3, 5)]),
    ("ij->ii", [(3, 5)]), ("i%->i", [(3, 5)]),
])  # fmt: skip
def test_equations_that_do_not_fit(device, equation, shapes):
    proto, _ = one_node("Einsum", [random_array(s) for s in shapes], equation=equation)
    with pytest.raises(ModelError, match="equation|axis"):
        vklab.load(proto, device)
