"""Core ML packages that a report converts from a factory: once a form, and failures are rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from vklab.apps.compare import packages, vulkan
from vklab.apps.compare.backend import ModelSource
from vklab.apps.compare.coreml import backend as apple
from vklab.apps.compare.coreml import inspect, on_vulkan
from vklab.apps.compare.report import rows
from vklab.base import worker

MINI = Path(__file__).resolve().parents[2] / "data/packages/mini_classifier.mlpackage"
FACTORY = ModelSource("net", factory="some_module:net")
ROW = vulkan.Vulkan(0, "device")
PROGRAM = on_vulkan.CoreMLProgram(ROW, "float16")
FUSED = on_vulkan.CoreMLProgram(ROW, "float16", True)
NETWORK = on_vulkan.CoreMLProgram(ROW, "float32", kind="neuralNetwork")


@dataclass
class Once:
    """A stand-in for the child that converts.

    Args:
        failure: what it raises; None to succeed.
    """

    failure: worker.Failure | None = None

    def __post_init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __call__(self, function: object, *arguments: object, seconds: float) -> None:
        """Note the call."""
        self.calls.append((*arguments, seconds))
        if self.failure:
            raise self.failure


def made(monkeypatch, tmp_path, source=FACTORY, failure=None):
    """Return packages of a source, and the stand-in."""
    once = Once(failure)
    monkeypatch.setattr(packages.worker, "once", once)
    return packages.Packages(source, tmp_path, 7), once


def test_each_form_is_converted_once_when_a_row_asks(monkeypatch, tmp_path):
    found, once = made(monkeypatch, tmp_path)
    assert found.source_of(ROW) == FACTORY and not once.calls
    assert found.waits(PROGRAM)
    paths = [
        found.source_of(each).package for each in (PROGRAM, FUSED, apple.CoreML("ALL"), NETWORK)
    ]
    assert [path.name for path in paths] == [*["net_float16.mlpackage"] * 3, "net_network.mlmodel"]
    assert not found.waits(FUSED)
    assert [(call[2].kind, call[2].precision, call[3]) for call in once.calls] == [
        ("mlprogram", "float16", 7),
        ("neuralnetwork", "float32", 7),
    ]


@pytest.mark.parametrize("source", [
    ModelSource("net", factory="some_module:net", package=MINI), ModelSource("net"),
])  # fmt: skip
def test_nothing_is_converted_beside_a_package_or_without_a_factory(monkeypatch, tmp_path, source):
    found, once = made(monkeypatch, tmp_path, source)
    assert found.source_of(PROGRAM) == source and not once.calls


@pytest.mark.parametrize(("status", "reason", "shown"), [
    ("absent", "conversion needs coremltools", "conversion needs coremltools"),
    ("refused", "coremltools refuses the model", "there is no Core ML package: coremltools ref"),
    ("timeout", "gave no answer to `convert`", "there is no Core ML package: gave no answer"),
])  # fmt: skip
def test_a_failed_conversion_is_each_rows_reason(monkeypatch, tmp_path, status, reason, shown):
    found, once = made(monkeypatch, tmp_path, FACTORY, worker.Failure(status, reason, "repair"))
    for each in (PROGRAM, FUSED):
        with pytest.raises(worker.Failure) as caught:
            found.source_of(each)
        row = rows.failed(each, caught.value, "MODEL").row
        assert (row.status, row.install.partition("; ")[0]) == (status, "repair")
        assert row.reason.startswith(shown)
    assert len(once.calls) == 1


def test_rows_of_programs_and_of_networks_have_names_of_their_own():
    assert [each.name for each in on_vulkan.every((ROW,))] == [
        "coreml-by-vklab-0-float32",
        "coreml-by-vklab-0-float16",
        "coreml-by-vklab-0-float16-fused",
        "coreml-by-vklab-0-network",
    ]
    assert {each.package_form for each in on_vulkan.every((ROW,))} == {*packages.FORMS}


def test_a_loaded_package_says_in_what_it_computes():
    """The row of a Mac is judged by the package's dtype: the table has none called "package"."""
    assert inspect.computes_in(MINI) == "float16"
    dtypes = apple.Loaded(None, 1, inspect.computes_in(MINI)).dtypes
    assert rows.comparable(dtypes).arithmetic == "float16"
    assert rows.comparable(dtypes).sums == ""


def test_a_float16_package_has_a_float32_form_beside_it(monkeypatch, tmp_path):
    found, once = made(monkeypatch, tmp_path)
    paths = [found.wide_form(each).package.name for each in (PROGRAM, FUSED)]
    assert paths == ["net_float32.mlpackage"] * 2 and len(once.calls) == 1
    assert found.wide_form(NETWORK) is None and found.wide_form(ROW) is None
    given, _ = made(monkeypatch, tmp_path, ModelSource("net", factory="a:b", package=MINI))
    assert given.wide_form(PROGRAM) is None
    failing, _ = made(monkeypatch, tmp_path, FACTORY, worker.Failure("timeout", "too slow"))
    assert failing.wide_form(PROGRAM) is None
