"""The project's .venv: pip's command lines, and when it is made anew; nothing is installed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from fake_machine import READY, ROOT, make_venv, project, record_commands

from vklab.bootstrap import environment, steps


@pytest.fixture
def ran(monkeypatch):
    return record_commands(monkeypatch)


def test_without_an_nvidia_gpu_the_cpu_build_of_torch_comes_first():
    first, second = environment.torch_install_commands("python", "2.13.0", READY)
    assert first[-1] == "torch==2.13.0+cpu"
    assert "https://download.pytorch.org/whl/cpu" in first
    assert first[first.index("--retries") + 1] == "1"
    assert second[-1] == "torch==2.13.0"
    assert "--extra-index-url" not in second and "--timeout" not in second
    for command in (first, second):
        assert command[command.index("--constraint") + 1] == "constraints.txt"


@pytest.mark.parametrize(
    "machine",
    [replace(READY, has_nvidia=True), replace(READY, system="Darwin"),
     replace(READY, system="Windows")],
)  # fmt: skip
def test_elsewhere_the_default_build_of_torch_is_the_right_one(machine):
    (only,) = environment.torch_install_commands("python", "2.13.0", machine)
    assert only[-1] == "torch==2.13.0"
    assert "--extra-index-url" not in only


def test_the_project_is_installed_editable_with_its_extras():
    command = environment.project_install_command("python", {"test", "labs"})
    assert command[-2:] == ["--editable", ".[labs,test]"]
    assert command[:4] == ["python", "-I", "-m", "pip"]


def test_the_pin_of_torch_is_read_from_the_constraints():
    assert environment.torch_pin((ROOT / "constraints.txt").read_text()).startswith("2.")
    with pytest.raises(steps.SetupStopped, match="no line torch"):
        environment.torch_pin("numpy==2.4.6\n")


def test_required_distributions_follow_extras_and_leave_out_markers():
    text = (
        '[project]\nname = "vklab"\ndependencies = ["numpy>=2"]\n[project.optional-dependencies]\n'
        'labs = ["vklab[more]", "jupyterlab"]\nmore = ["torch>=2", "slang; sys_platform == \'x\'"]'
    )
    assert environment.required_distributions(text, []) == ("numpy",)
    assert environment.required_distributions(text, ["labs"]) == ("numpy", "jupyterlab", "torch")


# ---- is .venv whole?


def test_a_finished_environment_is_ready(tmp_path):
    state = make_venv(project(tmp_path))
    assert environment.is_ready(state, ["labs"], tmp_path)
    assert not environment.is_ready(state, ["labs", "test"], tmp_path)


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_changed_file_means_install_again_but_not_from_nothing(tmp_path, name):
    state = make_venv(project(tmp_path))
    with open(tmp_path / name, "a") as file:
        file.write("\n# changed\n")
    assert not environment.is_ready(state, ["labs"], tmp_path)
    assert environment.rebuild_reason(state, tmp_path) is None


def test_an_interrupted_set_up_is_made_anew(tmp_path):
    state = make_venv(project(tmp_path), status="installing")
    assert "interrupted" in environment.rebuild_reason(state, tmp_path)


def test_a_failed_step_is_completed(tmp_path):
    state = make_venv(project(tmp_path), status="failed")
    assert not environment.is_ready(state, ["labs"], tmp_path)
    assert environment.rebuild_reason(state, tmp_path) is None


def test_a_moved_folder_is_made_anew(tmp_path):
    state = make_venv(project(tmp_path), root="/elsewhere")
    assert "moved" in environment.rebuild_reason(state, tmp_path)


def test_a_python_that_is_gone_or_another_is_noticed(tmp_path):
    state = make_venv(project(tmp_path))
    (tmp_path / ".venv/pyvenv.cfg").write_text("version = 3.99.1\n")
    python = environment.venv_python(tmp_path)
    python.unlink()
    assert "gone" in environment.rebuild_reason(state, tmp_path)
    (tmp_path / "python3.11").write_text("")
    python.symlink_to(tmp_path / "python3.11")
    assert (
        environment.rebuild_reason(state, tmp_path)
        == "it was made for Python 3.99, and its Python is 3.11 now"
    )


@pytest.mark.parametrize("text", ["", "[]", "{", "\0"])
def test_an_unreadable_state_file_is_no_state(tmp_path, text):
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/vklab-setup.json").write_text(text)
    assert environment.read_state(tmp_path) == {}


# ---- building it


def test_a_first_build_makes_torch_then_the_project(ran, tmp_path):
    environment.build(["labs"], project(tmp_path), {"chromium-common"})
    assert ran[0][-3:] == ["-m", "venv", str(tmp_path / ".venv")]
    assert ran[1][-1] == "pip>=25"
    assert ran[2][-1].endswith("+cpu")
    assert [".[labs]", str(tmp_path / ".venv" / "lib")] == sorted(c[-1] for c in ran[3:5])
    assert ran[5] == environment.compile_command(ran[5][0], tmp_path / ".venv")
    state = environment.read_state(tmp_path)
    assert (state["status"], state["declined"]) == ("ready", ["chromium-common"])


def test_extras_are_added_to_those_that_are_there(ran, tmp_path):
    make_venv(project(tmp_path), extras=["labs", "test"], key="old")
    environment.build(["labs"], tmp_path, set())
    (install,) = [command for command in ran if command[-1] == ".[labs,test]"]
    assert "--no-compile" in install
    assert ran[-1][2:5] == ["-m", "compileall", "-q"]
    assert ran[-1][-1] == str(tmp_path / ".venv" / "lib")


@pytest.mark.parametrize("file, compiled", [
    ("sympy/core/add.py", True), ("sympy/core/tests/test_add.py", False),
    ("pandas/test/x.py", False), ("onnx/backend/test/case/node/add.py", True),
    ("torch/testing/_comparison.py", True),
])  # fmt: skip
def test_tests_of_other_packages_are_not_compiled(tmp_path, file, compiled):
    root = tmp_path / "tests"  # a project inside a folder of this name is compiled as any other
    command = environment.compile_command(sys.executable, root / ".venv")
    path = root / ".venv/lib/python3/site-packages" / file
    path.parent.mkdir(parents=True)
    path.write_text("x = 1\n")
    subprocess.run(command, check=True, timeout=60)
    assert bool(list(path.parent.glob("__pycache__/*.pyc"))) == compiled


def test_an_environment_that_is_there_is_not_made_again(ran, tmp_path):
    make_venv(project(tmp_path), extras=["labs", "test"], key="old")
    environment.build(["labs"], tmp_path, set())
    assert not any("venv" in command for command in ran)


def test_a_failed_step_says_what_and_where(ran, tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "project_install_command", lambda *_: ["pip", "bad"])
    with pytest.raises(steps.SetupStopped, match="installing vklab failed") as stopped:
        environment.build(["labs"], project(tmp_path), set())
    assert "command: pip bad" in str(stopped.value)
    assert "vklab-setup.log" in str(stopped.value)
    assert environment.read_state(tmp_path)["status"] == "failed"


def test_without_a_network_pip_s_own_conclusion_is_left_out(ran, tmp_path, monkeypatch):
    output = "WARNING: Retrying ... NewConnectionError\nERROR: conflicting dependencies\n"
    monkeypatch.setattr(steps, "run_logged", lambda *_, **__: steps.StepResult(1, output))
    make_venv(project(tmp_path), status="failed")
    with pytest.raises(steps.SetupStopped, match="cannot be reached") as stopped:
        environment.build(["labs"], tmp_path, set())
    assert "conflicting" not in str(stopped.value)


def test_a_killed_step_leaves_the_mark_of_an_interruption(tmp_path, ran, monkeypatch):
    monkeypatch.setattr(steps, "run_logged", lambda *_, **__: steps.StepResult(-9))
    with pytest.raises(steps.SetupStopped):
        environment.build(["labs"], project(tmp_path), set())
    assert environment.read_state(tmp_path)["status"] == "installing"
