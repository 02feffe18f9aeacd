"""The table of switches: environment, `with`, wrong values."""

from __future__ import annotations

import re
import threading

import pytest

from support.graphs.small_models import ROOT
from vklab import SetupError, settings


@pytest.mark.parametrize("name", settings.SETTINGS)
def test_every_switch_starts_at_its_default(name, monkeypatch):
    monkeypatch.delenv(f"VKLAB_{name}", raising=False)
    setting = settings.SETTINGS[name]
    assert settings.get(name) == setting.default
    assert setting.variable == f"VKLAB_{name}" and setting.help


@pytest.mark.parametrize("name", settings.SETTINGS)
def test_an_empty_variable_is_an_unset_one(name, monkeypatch):
    monkeypatch.setenv(f"VKLAB_{name}", "")
    assert settings.get(name) == settings.SETTINGS[name].default


@pytest.mark.parametrize(("name", "text", "value"), [
    ("DEBUG", "2", 2), ("VALIDATE", "1", True), ("VALIDATE", "off", False), ("TIMEOUT", "0.5", 0.5),
    ("VALIDATE", "YES", True), ("DEVICE", "llvm", "llvm"), ("DISABLE_CACHE", " true ", True),
])  # fmt: skip
def test_the_environment(name, text, value, monkeypatch):
    monkeypatch.setenv(f"VKLAB_{name}", text)
    assert settings.get(name) == value


@pytest.mark.parametrize(("name", "text"), [
    ("DEBUG", "two"), ("DEBUG", "1.5"), ("VALIDATE", "maybe"), ("TIMEOUT", "soon"),
    ("TIMEOUT", "nan"), ("TIMEOUT", "inf"), ("MEMORY_LIMIT", "-inf"),
    ("TIMEOUT", "-1"), ("DEBUG", "99"), ("MEMORY_LIMIT", "1.5"), ("THREADS", "-2"),
])  # fmt: skip
def test_wrong_values_are_named(name, text, monkeypatch):
    monkeypatch.setenv(f"VKLAB_{name}", text)
    words = f"VKLAB_{name}='{text}'"
    with pytest.raises(SetupError, match=words + r" is not a .*(from 0 to \d|; use 1 or 0)"):
        settings.get(name)
    with pytest.raises(ValueError, match=words):
        settings.get(name)
    with pytest.raises(ValueError, match=words), settings.settings(**{name: text}):
        pytest.fail("the block was entered")


def test_with_goes_before_the_environment_and_ends(monkeypatch):
    monkeypatch.setenv("VKLAB_DEBUG", "1")
    with settings.settings(debug=2, DEVICE="a"):
        with settings.settings(DEBUG=0):
            assert (settings.get("DEBUG"), settings.get("DEVICE")) == (0, "a")
        assert settings.get("DEBUG") == 2
    assert (settings.get("DEBUG"), settings.get("DEVICE")) == (1, "")


def test_changes_of_the_environment_are_seen(monkeypatch):
    for text, value in (("5", 5.0), ("6", 6.0), ("", 60.0), ("5", 5.0)):
        monkeypatch.setenv("VKLAB_TIMEOUT", text)
        assert settings.get("TIMEOUT") == value
    monkeypatch.delenv("VKLAB_TIMEOUT")
    assert settings.get("TIMEOUT") == 60.0
    monkeypatch.setenv("VKLAB_TIMEOUT", "soon")
    for _ in range(2):
        with pytest.raises(ValueError, match="VKLAB_TIMEOUT='soon' is not a finite number"):
            settings.get("TIMEOUT")


def test_a_text_may_hold_any_character(monkeypatch):
    monkeypatch.setenv("VKLAB_DEVICE", "Größe 1")
    assert settings.get("DEVICE") == "Größe 1"


def test_switches_that_affect_plans(monkeypatch):
    monkeypatch.setenv("VKLAB_DISABLE_FUSION", "1")
    with settings.settings(HOST="Conv", TIMEOUT=1):
        switches = settings.plan_switches()
    assert switches["DISABLE_FUSION"] is True and switches["HOST"] == "Conv"
    assert "TIMEOUT" not in switches and "DEBUG" not in switches
    assert switches.keys() == {n for n, s in settings.SETTINGS.items() if s.affects_plans}


def test_switches_that_planning_reads_affect_plans():
    reads = re.compile(r'(?:settings\.get|_patterns)\("(\w+)"\)')
    folders = [ROOT / "vklab" / name for name in ("plan", "graph", "ops")]
    files = [file for folder in folders for file in folder.rglob("*.py")]
    read = {name for file in files for name in reads.findall(file.read_text("utf-8"))}
    assert "DISABLE_FUSION" in read and "HOST" in read
    # How much of a heap is free is a fact of the machine, and this a share of it.
    assert {name for name in read if not settings.SETTINGS[name].affects_plans} == {"MEMORY_LIMIT"}


def test_with_ends_also_after_an_error():
    with pytest.raises(RuntimeError), settings.settings(DEBUG=2):
        raise RuntimeError
    assert settings.get("DEBUG") == 0


def test_with_may_set_a_switch_back(monkeypatch):
    monkeypatch.setenv("VKLAB_CHECK", "outputs")
    with settings.settings(CHECK=""):
        assert settings.get("CHECK") == ""


def test_unknown_switches_are_named_with_those_that_exist():
    with pytest.raises(KeyError, match="no switch 'COLOUR'.*DEBUG"), settings.settings(COLOUR=1):
        pytest.fail("the block was entered")
    with pytest.raises(KeyError):
        settings.get("COLOUR")


def test_another_thread_has_its_own():
    seen = []
    with settings.settings(DEBUG=2):
        thread = threading.Thread(target=lambda: seen.append(settings.get("DEBUG")))
        thread.start()
        thread.join()
    assert seen == [0]
