"""Sizes of workgroups for products of a few rows with blocks: expected, measured, offered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from support.fakes.fake_device import fake_device
from support.fakes.tuned_products import Asked
from support.graphs.block_cases import moderate_blocks
from support.graphs.block_graphs import block_graph
from support.models import planned
from vklab import settings
from vklab.graph import shapes
from vklab.plan.block_units import Sizes
from vklab.plan.options import Facts
from vklab.plan.tuning import candidates, problems
from vklab.plan.tuning.blocks import block_sizes

GPU = fake_device(
    {"maxComputeSharedMemorySize": 49152, "maxComputeWorkGroupInvocations": 1024,
     "minSubgroupSize": 32, "maxSubgroupSize": 32},
    subgroup_size=32, subgroup_operations=frozenset({"basic", "arithmetic", "shuffle"}),
    features=frozenset({"shaderIntegerDotProduct", "shaderFloat16", "shaderInt16",
                        "uniformAndStorageBuffer16BitAccess"}),
)  # fmt: skip
SMALL = replace(GPU, limits={**GPU.limits, "maxComputeWorkGroupInvocations": 128})


def plan(name, info, choices, count=512, elements=1024, rows=1):
    x = np.zeros((rows, elements), np.float32)
    graph = block_graph("MatMulBlocks", moderate_blocks(name, count, elements), name, elements, x)
    return planned.plan_graph(shapes.infer(graph), info, Facts((), (choices,)))


def problem_of(name, info=GPU, **sizes) -> problems.Problem:
    asked = Asked()
    plan(name, info, asked, **sizes)
    (found,) = asked.values()
    return found


def sizes_of(made) -> dict[str, int]:
    (dispatch,) = made.dispatches
    return dispatch.constant_values


@pytest.mark.parametrize("info", [GPU, SMALL], ids=["gpu", "small"])
@pytest.mark.parametrize("name", ["Q4_K", "Q8_0", "F16"])
def test_every_candidate_is_planned_as_measured(name, info):
    problem = problem_of(name, info)
    choices = candidates.choices(problem, info)
    assert choices[0] == candidates.EXPECTED and 2 < len(choices) <= candidates.MOST + 2
    made = [plan(name, info, {str(problem): choice}) for choice in choices]
    assert all(step.measured == problem for each in made for step in each.dispatches)
    assert len({str(sizes_of(each)) for each in made}) == len(choices)
    expected = sizes_of(plan(name, info, {}))
    assert sizes_of(made[0]) == expected
    for choice, each in zip(choices[1:], made[1:], strict=True):
        found, sizes = sizes_of(each), Sizes(*choice[1])
        assert found["WORKGROUP"] == sizes.workgroup <= info.limit("maxComputeWorkGroupInvocations")
        rows = sizes.workgroup // 32 * sizes.at_once * sizes.tiles
        assert each.dispatches[0].workgroups == (-(-512 // rows), 1, 1)
        assert "rows of blocks" in candidates.title(choice)


def test_classes_tell_formats_storage_and_sizes_apart():
    names = {str(problem_of(name)) for name in ("Q4_K", "Q8_0", "Q6_K", "F16")}
    names |= {str(problem_of("Q4_K", count=256)), str(problem_of("Q4_K", rows=2))}
    with settings.settings(DISABLE_PREPACK=True):
        names.add(str(problem_of("Q8_0")))
    assert len(names) == 7
    assert problem_of("Q4_K", count=1000) == problem_of("Q4_K", count=1024)


def test_a_switch_and_unusable_choices_leave_the_expected_sizes():
    problem, expected = str(problem_of("Q4_K")), sizes_of(plan("Q4_K", GPU, {}))
    (choice,) = candidates.choices(problem_of("Q4_K"), GPU)[1:2]
    assert sizes_of(plan("Q4_K", GPU, {problem: choice})) != expected
    with settings.settings(DISABLE_TUNED=True):
        assert sizes_of(plan("Q4_K", GPU, {problem: choice})) == expected
    for wrong in [
        (block_sizes.RULE, (7, 1, 1, 1), 1),
        (block_sizes.RULE, (), 1),
        (block_sizes.RULE, (2048, 1, 1, 1), 1),
        ("tiled", (128, 1, 1, 1), 1),
    ]:
        made = plan("Q4_K", GPU, {problem: wrong})
        assert sizes_of(made) == expected and not made.dispatches[0].measured
