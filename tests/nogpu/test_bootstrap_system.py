"""What the operating system lacks, and how it is installed: nothing is run."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from support.fakes.fake_machine import BARE, READY, TOOLS, names, record_commands
from vklab.apps.bootstrap import choose, steps, system
from vklab.base import manifests


@pytest.fixture
def ran(monkeypatch):
    return record_commands(monkeypatch)


def test_a_bare_machine_lacks_venv_loader_and_driver():
    essential = ["python3.11-venv", "libvulkan1", "mesa-vulkan-drivers"]
    optional = [
        "vulkan-validationlayers",
        "glslang-tools",
        "spirv-tools",
        "bubblewrap",
        "chromium-common",
    ]
    assert names(BARE, "lab") == essential
    assert names(BARE, "test") == essential + optional


def test_a_ready_machine_lacks_nothing():
    assert names(READY, "lab") == names(READY, "test") == []
    assert names(replace(READY, tools=frozenset()), "lab") == []


def test_another_driver_makes_lavapipe_unnecessary():
    machine = replace(BARE, drivers=("/etc/vulkan/icd.d/nvidia_icd.json",))
    assert "mesa-vulkan-drivers" not in names(machine, "lab")


def test_the_venv_package_is_that_of_the_running_python():
    assert names(replace(BARE, python="3.13"), "lab")[0] == "python3.13-venv"


def test_swiftshader_is_asked_for_on_debian_only():
    assert "chromium-common" not in names(replace(BARE, distribution="ubuntu"), "test")


def test_a_browser_is_asked_for_by_all_tests_only():
    assert names(READY, "test --all") == ["chromium"]
    assert names(replace(READY, tools=READY.tools | {"chromium"}), "test --all") == []
    assert names(replace(READY, distribution="ubuntu"), "test --all") == []


def test_apt_commands_ask_nothing():
    command = " ".join(system.install_command(("libvulkan1",), as_root=True))
    assert command.startswith("env DEBIAN_FRONTEND=noninteractive apt-get ")
    assert command.endswith("install -y --no-install-recommends libvulkan1")
    assert system.install_command(("a",), as_root=False)[:2] == ["sudo", "-n"]
    assert system.update_command(as_root=False)[:2] == ["sudo", "-n"]
    assert system.update_command(as_root=True)[-1] == "update"


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (
            BARE,
            "sudo apt-get update && sudo apt-get install -y --no-install-recommends python3.11-",
        ),
        (replace(BARE, installers=frozenset({"dnf"})), "dnf install vulkan-loader"),
        (replace(BARE, installers=frozenset({"pacman"})), "pacman -S vulkan-icd-loader"),
        (replace(BARE, installers=frozenset()), "a Vulkan driver"),
        (replace(BARE, system="Darwin"), "Vulkan SDK for macOS"),
        (replace(BARE, system="Windows"), "conda env create -f environment.yml"),
    ],
)
def test_every_system_gets_its_installer_line(machine, words):
    assert words in system.installer_line(machine, system.missing_packages(machine, "lab"))


# ---- driver manifests


def manifest(path: Path, library: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"ICD": {"library_path": library}}))
    return path


def test_manifests_are_found_where_the_loader_looks(tmp_path):
    mine = manifest(tmp_path / "data/vulkan/icd.d/mine_icd.json", "libmine.so.0")
    found = manifests.drivers({"HOME": "/none", "XDG_DATA_HOME": str(tmp_path / "data")})
    assert mine in found


def test_named_manifests_replace_the_search(tmp_path):
    first = manifest(tmp_path / "a.json", "libmine.so")
    second = manifest(tmp_path / "folder/b.json", "libmine.so")
    for variable in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        named = {variable: f"{first}:{tmp_path / 'folder'}:{tmp_path / 'absent.json'}"}
        assert manifests.drivers(named) == (first, second)
    assert manifests.drivers({"VK_DRIVER_FILES": "/none.json"}) == ()


def test_manifests_that_lead_nowhere_do_not_count(tmp_path):
    manifest(tmp_path / "gone.json", "/no/such/library.so")
    manifest(tmp_path / "beside.json", "./driver.so")
    (tmp_path / "driver.so").write_text("")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "empty.json").write_text("[]")
    found = manifests.drivers({"VK_DRIVER_FILES": str(tmp_path)})
    assert [path.name for path in found] == ["beside.json"]


# ---- installing


def test_a_ready_machine_runs_no_command(ran):
    assert choose.ensure_system("test", READY, set()) == set()
    assert ran == []


def test_root_installs_the_essential_at_once_and_the_optional_one_by_one(ran):
    assert choose.ensure_system("test", BARE, set()) == set()
    essential = ["python3.11-venv", "libvulkan1", "mesa-vulkan-drivers"]
    assert ran[0][-1] == "update"
    assert ran[1][-3:] == essential
    assert [command[-1] for command in ran[2:]] == names(BARE, "test")[3:]


def test_sudo_without_a_password_is_used(ran, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000, raising=False)
    monkeypatch.setattr(choose, "_can_sudo", lambda: True)
    choose.ensure_system("lab", BARE, set())
    assert all(command[:2] == ["sudo", "-n"] for command in ran)


def test_without_rights_the_exact_line_is_printed(ran, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000, raising=False)
    with pytest.raises(steps.SetupStopped, match="apt-get install .*libvulkan1"):
        choose.ensure_system("lab", BARE, set())
    assert ran == []


def test_without_rights_the_optional_is_a_note(ran, monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1000, raising=False)
    machine = replace(READY, tools=TOOLS - {"glsl"})
    assert choose.ensure_system("test", machine, set()) == set()
    assert "apt-get install -y --no-install-recommends glslang-tools" in capsys.readouterr().err


def test_a_variable_that_hides_all_drivers_is_named_instead_of_installing_one(ran):
    hidden = replace(BARE, drivers_named_by="VK_DRIVER_FILES")
    with pytest.raises(steps.SetupStopped, match="VK_DRIVER_FILES names no"):
        choose.ensure_system("lab", hidden, set())
    assert ran == []


def test_an_optional_package_that_fails_is_not_asked_for_again(ran, monkeypatch):
    monkeypatch.setattr(system, "install_command", lambda names, as_root: ["bad", *names])
    machine = replace(READY, tools=TOOLS - {"swiftshader"})
    declined = choose.ensure_system("test", machine, set())
    assert declined == {"chromium-common"}
    ran.clear()
    choose.ensure_system("test", machine, declined)
    assert ran == []


def test_an_essential_package_that_fails_stops_with_its_name(ran, monkeypatch):
    monkeypatch.setattr(system, "inspect_machine", lambda: replace(READY, has_loader=False))
    with pytest.raises(steps.SetupStopped, match="could not install libvulkan1") as stopped:
        choose.ensure_system("lab", BARE, set())
    assert "try by hand" in str(stopped.value)
    assert "| E: no" in str(stopped.value)


@pytest.mark.parametrize("name", ["Darwin", "Windows"])
def test_other_systems_get_a_note_and_go_on(ran, capsys, name):
    assert choose.ensure_system("lab", replace(BARE, system=name), set()) == set()
    assert ran == []
    assert "conda env create" in capsys.readouterr().err
