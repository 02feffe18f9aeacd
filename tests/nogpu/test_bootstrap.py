"""Which Python runs a command, how a set-up runs its steps, and the tiers of `vklab test`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from support.fakes.fake_machine import ROOT, make_venv, project, record_commands
from support.runs.waits import LIMIT_S, until
from vklab import __main__ as entry
from vklab.apps import run_tests
from vklab.apps.bootstrap import choose, environment, steps


@pytest.fixture
def ran(monkeypatch):
    return record_commands(monkeypatch)


@pytest.fixture
def here(monkeypatch, tmp_path):
    """Give a project, an environment without vklab's variables, and a switch for the packages."""
    monkeypatch.delenv("VKLAB_NO_BOOTSTRAP", raising=False)
    monkeypatch.delenv(choose.GUARD, raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)

    def packages(present: bool) -> Path:
        found = object() if present else None
        monkeypatch.setattr(choose.importlib.util, "find_spec", lambda _name: found)
        return project(tmp_path)

    return packages


def test_a_command_runs_here_when_the_packages_are_here(here):
    assert choose.choose_python(["devices"], here(True)) is None


def test_a_command_runs_in_the_environment_when_there_is_one(here):
    root = here(False)
    make_venv(root)
    assert choose.choose_python(["devices"], root) == environment.venv_python(root)


def test_a_command_without_packages_says_what_to_run(here):
    with pytest.raises(steps.SetupStopped, match="python3 -m vklab lab"):
        choose.choose_python(["devices"], here(False))


@pytest.mark.parametrize("arguments", [["lab"], ["test", "--quick"]])
def test_lab_and_test_use_a_finished_environment(here, ran, arguments):
    root = here(False)
    make_venv(root, extras=["grade", "labs", "test"])
    assert choose.choose_python(arguments, root) == environment.venv_python(root)
    assert ran == []


def test_asking_for_help_installs_nothing(here, ran):
    assert choose.choose_python(["test", "--help"], here(True)) is None
    assert ran == []


def test_no_bootstrap_installs_nothing(here, ran, monkeypatch):
    monkeypatch.setenv("VKLAB_NO_BOOTSTRAP", "1")
    assert choose.choose_python(["lab"], here(True)) is None
    with pytest.raises(steps.SetupStopped, match="VKLAB_NO_BOOTSTRAP"):
        choose.choose_python(["lab"], here(False))
    assert ran == []


def test_a_set_up_that_did_not_help_ends_instead_of_looping(here, ran, monkeypatch):
    monkeypatch.setenv(choose.GUARD, "1")
    with pytest.raises(steps.SetupStopped, match="delete .*venv"):
        choose.choose_python(["lab"], here(False))
    assert choose.GUARD not in os.environ


def test_an_active_environment_that_has_everything_is_used(here, ran, monkeypatch):
    root = here(True)
    monkeypatch.setenv("CONDA_PREFIX", sys.prefix)
    monkeypatch.setattr(choose.importlib.metadata, "version", lambda _name: "1")
    assert choose.choose_python(["lab"], root) is None
    assert not (root / ".venv").exists()


def test_an_installed_package_never_builds_an_environment(here, ran, tmp_path):
    here(True)
    (tmp_path / "pyproject.toml").unlink()
    assert choose.choose_python(["lab"], tmp_path) is None
    assert ran == []


def test_a_checkout_without_its_labs_builds_no_environment(here, ran, tmp_path):
    here(True)
    shutil.rmtree(tmp_path / "labs")
    assert choose.choose_python(["lab"], tmp_path) is None
    assert ran == []


# ---- running commands


def test_output_goes_to_the_log_and_its_end_into_the_result(tmp_path):
    code = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
    log = tmp_path / "log"
    result = steps.run_logged([sys.executable, "-u", "-c", code], limit_s=LIMIT_S, log=log)
    assert result.returncode == 3
    assert result.tail == "  | one\n  | two"
    assert "one\ntwo\n" in log.read_text()


@pytest.mark.full
def test_a_command_that_hangs_is_killed():
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    assert steps.run_logged(command, limit_s=0.3).returncode < 0


def test_a_command_that_is_not_there_is_a_result():
    result = steps.run_logged(["/no/such/program"], limit_s=LIMIT_S)
    assert (result.returncode, "No such file" in result.output) == (127, True)


@pytest.mark.full
def test_two_set_ups_take_turns(tmp_path, monkeypatch):
    order: list[str] = []
    waiting: list[str] = []
    monkeypatch.setattr(steps, "announce", waiting.append)

    def second() -> None:
        with steps.exclusive(tmp_path / "lock"):
            order.append("second")

    with steps.exclusive(tmp_path / "lock"):
        thread = threading.Thread(target=second)
        thread.start()
        until(lambda: waiting)
        order.append("first")
    thread.join(LIMIT_S)
    assert order == ["first", "second"]


@pytest.mark.full
def test_the_wait_for_another_set_up_is_finite(tmp_path):
    with (
        steps.exclusive(tmp_path / "lock"),
        pytest.raises(steps.SetupStopped, match="another set-up"),
        steps.exclusive(tmp_path / "lock", limit_s=0.1),
    ):
        pass


# ---- the entry


@pytest.mark.parametrize("version", [(3, 10, 1), (3, 14, 0)])
def test_another_python_is_turned_away_in_one_line(monkeypatch, capsys, version):
    monkeypatch.setattr(sys, "version_info", version)
    assert entry.main(["lab"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [(steps.SetupStopped("no"), 2), (PermissionError(13, "no"), 2), (KeyboardInterrupt(), 130)],
)
def test_expected_failures_are_one_line_not_a_traceback(monkeypatch, capsys, error, code):
    def fail(*_arguments):
        raise error

    monkeypatch.setattr(choose, "choose_python", fail)
    assert entry.main(["lab"]) == code
    err = capsys.readouterr().err
    assert err.startswith("vklab: ") and err.count("\n") == 1


def test_a_python_without_packages_says_so(tmp_path):
    # -S: no site-packages, as on a bare machine; the folder holds the package and nothing else.
    (tmp_path / "vklab").symlink_to(ROOT / "vklab")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from vklab import __main__ as m; "
    code += "m.__file__ = '/none/vklab/__main__.py'; sys.exit(m.main(['devices']))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert "python3 -m vklab lab" in done.stderr and done.stderr.count("\n") == 1


# ---- the tiers of `vklab test`


@pytest.mark.parametrize(
    ("arguments", "markers", "rest"),
    [
        ([], "not slow", []),
        (["--quick", "-k", "plan"], "not slow and not full", ["-k", "plan"]),
        (["-x", "--all"], "", ["-x"]),
        (["--fuzz", "-x"], "", ["-x"]),
    ],
)
def test_a_tier_selects_by_markers(arguments, markers, rest):
    tier, others = run_tests.split_arguments(arguments)
    assert (tier.markers, others) == (markers, rest)
    command = run_tests.pytest_command(tier, others)
    assert ("-m" in command[3:]) == bool(markers)
    assert command[len(command) - len(rest) :] == rest


@pytest.mark.parametrize(("flag", "workers"), [("--quick", 2), ("", 3), ("--all", 3)])
def test_long_tiers_have_a_worker_more_than_cores(monkeypatch, flag, workers):
    monkeypatch.setattr(run_tests.os, "cpu_count", lambda: 2)
    command = run_tests.pytest_command(run_tests.TIERS[flag], [])
    assert command[command.index("-n") + 1] == str(workers)


def test_two_tiers_at_once_are_a_usage_error(capsys):
    assert run_tests.main(["--quick", "--all"]) == 2
    assert "exclude each other" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("pytest_code", "code"), [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2), (5, 2), (-6, 1), (-11, 1)]
)
def test_exit_codes(pytest_code, code):
    assert run_tests.exit_code(pytest_code) == code


def test_a_crash_is_named(monkeypatch, capsys):
    command = [sys.executable, "-c", "import os; os.abort()"]
    monkeypatch.setattr(run_tests, "pytest_command", lambda *_: command)
    assert run_tests.main([]) == 1
    assert "CRASHED by signal 6" in capsys.readouterr().out


def test_steps_read_the_names_of_folders_as_utf_8(monkeypatch):
    code = "import sys; print(sys.getfilesystemencoding())"
    monkeypatch.setenv("LC_ALL", "de_DE.ISO-8859-1")
    told = steps.run_logged([sys.executable, "-I", "-c", code], limit_s=LIMIT_S)
    assert told.output.split() == ["utf-8"]
