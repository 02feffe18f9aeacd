"""What lab 05 holds answers against: structs in SPIR-V, the runtime's caches, measured times."""

from __future__ import annotations

import json
import sys

import pytest

from support.runs import tiers
from vklab.shader import reflection, toolchain
from vklab_course.data import data
from vklab_course.definition.draw import draw
from vklab_course.definition.exercise import find
from vklab_course.places import PROJECT
from vklab_labs.lab_05 import creation, interfaces, pipelines

needs_slang = pytest.mark.skipif(not toolchain.find_toolchain("slang"), reason="no slangc")


@pytest.fixture
def definitions(monkeypatch):
    """Return the exercises of lab 05 by id."""
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))
    return find


@needs_slang
def test_offsets_are_those_of_the_compiler(definitions):
    exercise = definitions("05-2")
    module = sys.modules[type(exercise).__module__]
    cases = [case.args for case in draw(exercise, "one") if len(case.args[0]) > 1]
    for members, rules in cases[::9]:
        assert interfaces.reflected_blocks(members)[rules] == module.block(members, rules)


@needs_slang
def test_three_languages_give_one_layout():
    for language in interfaces.vector_adds():
        if language == "glsl" and not toolchain.find_toolchain("glsl"):
            continue
        facts = reflection.reflect(interfaces.vector_add(language))
        assert [binding.number for binding in facts.bindings.values()] == [0, 1, 2], language
        assert facts.push_bytes == 4


@needs_slang
@pytest.mark.full
@pytest.mark.parametrize("variant", tiers.seeds(0, 1, 2, 3))
def test_predicted_hits_are_those_of_the_runtime(definitions, variant):
    exercise = type(definitions("05-4"))(variant)
    real = interfaces.answer_requests(interfaces.requests_of(exercise.params["trace"]))
    print(real)
    assert {name: said for name, (said, *_) in real.items()} == {
        name: asked.right for name, asked in exercise.questions().items()
    }


@needs_slang
@pytest.mark.slow
def test_creation_is_measured_in_every_mode_and_drawn(tmp_path):
    creation.compile_kernels(tmp_path)
    times = creation.measure(tmp_path, processes=1)
    assert list(times) == list(creation.MODES)
    assert times["cold"] and times["driver's files"]
    for kernels in filter(None, times.values()):  # lavapipe puts nothing into a VkPipelineCache
        assert list(kernels) == list(creation.KERNELS)[1:]
        assert all(value > 0 for stages in kernels.values() for value in stages.values())
    picture = pipelines.draw_creation({"mine": times}, "caption")
    assert "mine, cold, conv, create" in picture._repr_html_()
    is_empty = "pipeline cache: this driver puts nothing into it" in picture._repr_html_()
    assert is_empty == (not times["pipeline cache"])


def test_the_record_names_device_driver_and_date():
    record = json.loads(data("recorded/pipelines_h200.json").read_text("utf-8"))
    assert record["device"] and record["driver"] and record["date"] and record["made_by"]
    assert set(record["time_ns"]) == set(record["modes"])
