"""Variants of plans for a suite: each changes one thing; classes tell where a kernel applied."""

from __future__ import annotations

import pytest

from support.fakes.tuned_products import CPU, GPU, HALVES, product
from support.models import planned
from vklab import settings
from vklab.plan.options import Facts
from vklab.plan.tuning import forced, tiles, variants
from vklab.runtime.observe import each_variant, tuned
from vklab.runtime.observe.each_variant import Classes, Variant


@pytest.mark.parametrize("info", [GPU, HALVES, CPU], ids=["GPU", "halves", "CPU"])
def test_the_variants_of_a_device_have_names_and_change_one_thing(info):
    made = each_variant.every(info)
    names = [str(each) for each in made]
    assert len({*names}) == len(names) and names[0] == "as it is"
    assert ("as a GPU" in names) == info.is_cpu
    chosen = []
    for each in made[1:]:
        assert len(each.switches) + each.as_gpu == 1, each
        for name, value in each.switches.items():
            assert settings.SETTINGS[name].parse(value) != settings.SETTINGS[name].default
        if each.kernel:
            with settings.settings(**each.switches):
                chosen.append(forced.choice())
    rules = {
        name
        for name in variants.rules_for(info, every=True)
        if not name.startswith("matrix") or info.cooperative_matrices
    }
    assert {rule for rule, _, _ in chosen} == rules
    assert {shape for rule, shape, _ in chosen if rule == "tiled"} == {
        tile.shape for table in (tiles.PRODUCT, tiles.PACKED, tiles.CONV) for tile in table
    }


@pytest.mark.parametrize("sizes, text, applies", [
    ((512, 1024, 256), "tiled 64x64x16 by 8x8", True), ((4, 5, 6), "tiled 32x32x16 by 4x4", True),
    ((4, 5, 6), "one row", False), ((1, 64, 64), "one row", True), ((4, 5, 6), "", False),
])  # fmt: skip
def test_classes_are_those_that_the_kernel_computes(sizes, text, applies):
    classes = Classes(GPU)
    with settings.settings(VARIANT=text):
        plan = planned.plan_graph(product(*sizes), GPU, Facts((), (classes,)))
    assert classes.asked and len(classes) == applies, plan
    assert not text.startswith("tiled") or plan.dispatches[0].kernel == "matmul_tiled"


def test_other_choices_count_only_inside_the_block(tmp_path, monkeypatch):
    monkeypatch.setenv("VKLAB_CACHE", str(tmp_path))
    classes = Classes(GPU)
    with tuned.instead(classes):
        assert tuned.kept(GPU) is classes
    assert tuned.kept(GPU) == {} and str(Variant({"A": "1"}, True)) == "A=1, as a GPU"
