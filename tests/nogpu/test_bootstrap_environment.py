"""The project's .venv: how it is installed, and when it is made anew; nothing is installed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.fakes.fake_machine import READY, ROOT, make_venv, project, record_commands
from vklab.apps.bootstrap import environment, steps

PIN = f"torch=={environment.torch_pin((ROOT / 'constraints.txt').read_text())}+cpu"


@pytest.fixture
def ran(monkeypatch):
    return record_commands(monkeypatch)


def test_without_an_nvidia_gpu_the_cpu_build_of_torch_comes_first():
    own, pytorch, default = environment.torch_alternatives("2.13.0", READY)
    assert own == ["torch==2.13.0+cpu"] and default == ["torch==2.13.0"]
    assert pytorch == ["--extra-index-url", "https://download.pytorch.org/whl/cpu", *own]


@pytest.mark.parametrize(
    "machine",
    [replace(READY, has_nvidia=True), replace(READY, system="Darwin"),
     replace(READY, system="Windows")],
)  # fmt: skip
def test_elsewhere_the_default_build_of_torch_is_the_right_one(machine):
    assert environment.torch_alternatives("2.13.0", machine) == (["torch==2.13.0"],)


@pytest.mark.parametrize("make", [environment.uv_command, environment.pip_command])
def test_versions_are_those_of_the_constraints(make):
    command = make("bin/python", ["--editable", ".[labs]"])
    assert command[command.index("--constraint") + 1] == "constraints.txt"
    assert command[-2:] == ["--editable", ".[labs]"] and "--timeout" not in command


def test_an_index_that_may_be_out_of_reach_is_not_waited_for():
    command = environment.pip_command(
        "python", ["--extra-index-url", environment.TORCH_CPU_INDEX, "torch"]
    )
    assert command[command.index("--retries") + 1] == "1"


def test_the_indexes_of_pip_s_configuration_are_read():
    config = (
        ":env:.cert='/etc/ca.crt'\n:env:.find-links='/wheels'\nglobal.extra-index-url="
        "'https://a/simple https://b/simple'\nuser.index-url='https://c/simple'\n"
    )
    indexes = environment.pip_indexes(config)
    assert indexes == [
        "--find-links",
        "/wheels",
        "--extra-index-url",
        "https://a/simple",
        "--extra-index-url",
        "https://b/simple",
        "--index-url",
        "https://c/simple",
    ]
    assert environment.pip_indexes("") == environment.pip_indexes("ERROR: no config\n") == []


def test_the_pin_of_torch_is_read_from_the_constraints():
    assert environment.torch_pin((ROOT / "constraints.txt").read_text()).startswith("2.")
    with pytest.raises(steps.SetupStopped, match="no line torch"):
        environment.torch_pin("numpy==2.4.6\n")


def test_required_distributions_follow_extras_and_leave_out_markers(tmp_path):
    (tmp_path / "labs").mkdir()
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "vklab"\ndependencies = ["numpy>=2"]\n[project.optional-dependencies]\n'
        'more = ["torch>=2", "slang; sys_platform == \'x\'"]'
    )
    (tmp_path / "labs/pyproject.toml").write_text(
        '[project]\nname = "course"\ndependencies = ["vklab==1"]\n'
        '[project.optional-dependencies]\nlabs = ["vklab[more]", "jupyterlab"]'
    )
    # An environment in use must have the course: vklab itself runs from the checkout.
    assert environment.required_distributions(tmp_path, []) == ("course", "numpy")
    found = environment.required_distributions(tmp_path, ["labs"])
    assert found == ("course", "numpy", "jupyterlab", "torch")


# ---- is .venv whole?


def test_a_finished_environment_is_ready(tmp_path):
    state = make_venv(project(tmp_path))
    assert environment.is_ready(state, ["labs"], tmp_path)
    assert not environment.is_ready(state, ["labs", "test"], tmp_path)


@pytest.mark.parametrize("name", ["pyproject.toml", "labs/pyproject.toml", "constraints.txt"])
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
    assert ran[1][-1] == environment.UV and ran[1][3] == "pip"
    installed = [command for command in ran[2:] if command[-1] != "list"]
    assert [command[-1] for command in installed] == [PIN, "./labs[labs]"]
    assert installed[1][-4:-1] == ["--editable", ".", "--editable"]
    assert {command[0] for command in installed} == {str(tmp_path / ".venv/bin/uv")}
    state = environment.read_state(tmp_path)
    assert (state["status"], state["declined"]) == ("ready", ["chromium-common"])


def test_uv_is_told_the_indexes_that_pip_reads_by_itself(ran, tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "pip_indexes", lambda config: ["--find-links", "/wheels"])
    environment.build(["labs"], project(tmp_path), set())
    by_uv = [command for command in ran if command[0] == str(tmp_path / ".venv/bin/uv")]
    assert by_uv and all("/wheels" in command for command in by_uv)
    assert not any("/wheels" in command for command in ran if command not in by_uv)


def test_where_uv_fails_pip_installs_the_same(ran, tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "uv_command", lambda *_: ["uv", "bad"])
    environment.build(["labs"], project(tmp_path), set())
    assert [command[-1] for command in ran if "--editable" in command] == ["./labs[labs]"]
    assert environment.read_state(tmp_path)["status"] == "ready"


def test_the_default_build_of_torch_is_announced(ran, tmp_path, monkeypatch, capsys):
    given = [["bad"], ["torch"]]
    monkeypatch.setattr(environment, "torch_alternatives", lambda *_: given)
    environment.build(["labs"], project(tmp_path), set())
    assert "the default one (with CUDA)" in capsys.readouterr().err


def test_extras_are_added_to_those_that_are_there(ran, tmp_path):
    make_venv(project(tmp_path), extras=["labs", "test"], key="old")
    environment.build(["labs"], tmp_path, set())
    assert ran[-1][-4:] == ["--editable", ".[test]", "--editable", "./labs[labs]"]


def test_an_environment_that_is_there_is_not_made_again(ran, tmp_path):
    make_venv(project(tmp_path), extras=["labs", "test"], key="old")
    environment.build(["labs"], tmp_path, set())
    assert not any("venv" in command for command in ran)


def test_a_failed_step_says_what_and_where(ran, tmp_path, monkeypatch):
    for command in ("uv_command", "pip_command"):
        monkeypatch.setattr(environment, command, lambda *_: ["pip", "bad"])
    with pytest.raises(steps.SetupStopped, match="installing torch .* failed") as stopped:
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
