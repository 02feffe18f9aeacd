"""Variants that are forced: each rule computes the products that it can, and no others change."""

from __future__ import annotations

from dataclasses import replace

import planned
import pytest
from tuned_products import CPU, GPU, HALVES, convolution, product

from vklab import settings
from vklab.cli import conformance_variants
from vklab.errors import SettingError
from vklab.plan.options import Facts
from vklab.plan.tuning import variants
from vklab.runtime.observe import forced, tuned
from vklab.runtime.observe.forced import Forced, Variant


def kernels(graph, info, variant):
    choices = Forced(variant, info)
    plan = planned.plan_graph(graph, info, Facts((), (choices,)))
    return [step.kernel for step in plan.dispatches], choices


@pytest.mark.parametrize("info", [GPU, HALVES, CPU], ids=["GPU", "halves", "CPU"])
def test_the_variants_of_a_device_have_names_and_switch_one_thing(info):
    made = forced.every(info)
    names = [str(each) for each in made]
    assert len({*names}) == len(names) and names[0] == "as it is"
    rules = {each.rule for each in made if each.rule}
    assert rules >= variants.rules_for(replace(info, type="discrete")).keys()
    assert (("gpu" in names) == info.is_cpu) and all(
        each.as_gpu == info.is_cpu for each in made if each.rule in ("tiled", "words"))
    for each in made:
        assert len(each.switches) + bool(each.rule) + (each.as_gpu and not each.rule) <= 1, each
        for name, value in each.switches.items():
            assert settings.SETTINGS[name].parse(value) != settings.SETTINGS[name].default
        assert conformance_variants.named(str(each), info) == each
    with pytest.raises(SettingError, match="unknown variant 'fast'; choose among as it is; DIS"):
        conformance_variants.named("fast", info)


@pytest.mark.parametrize("variant, found", [
    (Variant({}, "plain", 0, 1), ["matmul"]),
    (Variant({}, "plain", 0, 3), ["matmul", "sum_splits"]),
    (Variant({}, "few_rows", 0, 1), ["matmul"]), (Variant({}, "tiled", 0, 1), ["matmul_tiled"]),
    (Variant({}, "tiled", 2, 2), ["matmul_tiled", "sum_splits"]),
    (Variant({}, "tiled", 99, 1), ["matmul_tiled"]),
], ids=str)  # fmt: skip
def test_a_rule_computes_all_products(variant, found):
    made, choices = kernels(product(), GPU, variant)
    assert made == found and len(choices) == 1 and choices.asked
    (problem,) = asked(product())
    sizes = {Forced(replace(variant, tile=n), GPU).get(problem) for n in (0, 2)}
    assert len(sizes) == (2 if variant.rule == "tiled" else 1)


def asked(graph):
    """Return the classes that a plan asks for."""
    class Noted(dict):
        def __bool__(self) -> bool:
            return True

        def get(self, problem, default=None):
            self[problem] = problem
            return default

    noted = Noted()
    planned.plan_graph(graph, GPU, Facts((), (noted,)))
    return noted


def test_matrix_units_and_convolutions_are_forced_where_they_are():
    half = Variant({}, "matrix_product", 1, 1)
    assert kernels(product(dtype="float16"), HALVES, half)[0] == ["matmul_cooperative"]
    assert not dict(kernels(product(), HALVES, half)[1])
    made, choices = kernels(convolution(), GPU, Variant({}, "tiled", 1, 1))
    assert "conv_packed" in made and len({*choices}) == 1


def test_a_rule_that_does_not_apply_leaves_the_expected_kernel():
    usual, _ = kernels(product(4, 5, 6), GPU, Variant())
    made, choices = kernels(product(4, 5, 6), GPU, Variant({}, "tiled", 0, 1))
    assert made == usual and not dict(choices) and choices.asked


def test_other_choices_count_only_inside_the_block(tmp_path, monkeypatch):
    monkeypatch.setenv("VKLAB_CACHE", str(tmp_path))
    choices = Forced(Variant({}, "plain", 0, 1), GPU)
    with tuned.instead(choices):
        assert tuned.kept(GPU) is choices
    assert tuned.kept(GPU) == {}
