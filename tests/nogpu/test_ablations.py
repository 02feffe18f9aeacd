"""Ablations of vklab bench: every switch, pass, fusion and choice of kernels has a row."""

from __future__ import annotations

import pytest

from support.fakes.fake_device import fake_device
from vklab import settings
from vklab.apps.compare.speed import ablations
from vklab.base import catalogue
from vklab.ops import registry
from vklab.plan.tuning import variants
from vklab.types import TensorInfo


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
def test_ablations_switch_every_optimisation_off_alone(kind):
    first, *others = ablations.runners(fake_device(type=kind))
    assert first.name == "vklab" and not first.variables
    left_out = set()
    for runner in others:
        [(variable, value)] = runner.variables.items()
        switch = settings.SETTINGS[variable.removeprefix("VKLAB_")]
        assert switch.parse(value) != switch.default
        left_out.add(switch.name)
        if switch.name == "DISABLE_PASSES":
            with settings.settings(DISABLE_PASSES=value):
                catalogue.check_names()
    assert left_out == {*ablations.switches()}
    assert {"DISABLE_FUSION", "DISABLE_VARIANTS", "DISABLE_REPLAY"} <= left_out


@pytest.mark.parametrize(("left_out", "op_type", "shapes", "with_it", "without"), [
    ("tiled", "MatMul", [(2048, 2048), (2048, 2048)], "matmul_tiled", "matmul"),
    ("row_registers", "Softmax", [(64, 256)], "softmax_registers", "softmax"),
    ("elements", "Transpose", [(512, 512)], "transpose", "elementwise"),
])  # fmt: skip
def test_a_choice_of_kernels_is_left_out_by_its_name(left_out, op_type, shapes, with_it, without):
    info = fake_device(subgroup_operations=frozenset({"arithmetic"}), subgroup_size=32)
    inputs = [TensorInfo(f"x{n}", "float32", shape) for n, shape in enumerate(shapes)]
    given = {"perm": (1, 0)} if op_type == "Transpose" else {}
    (dispatch,) = registry.apply(op_type, inputs, given, 23).dispatches
    chosen = variants.choose(dispatch, info)
    with settings.settings(DISABLE_PASSES=left_out):
        left = variants.choose(dispatch, info)
    assert (chosen[0].kernel, left[0].kernel) == (with_it, without)
