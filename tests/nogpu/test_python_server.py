"""The forks that stand in for Python children do what fresh interpreters do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from stand_ins import loaded_python
from support.graphs.small_models import ROOT
from support.runs.waits import LIMIT_S, until

LOCALE = ("LANG", "LC_ALL", "LOCPATH")  # which a fork has from the server
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "HOME": "/nowhere",
               **{name: os.environ[name] for name in LOCALE if name in os.environ}}  # fmt: skip
SEEN = """
import atexit, json, os, random, sys
print(json.dumps([sys.argv, os.getcwd(), dict(os.environ), sys.stdin.read(), __name__]))
print("error", file=sys.stderr)
atexit.register(print, "end")
import vklab; assert vklab.__file__.startswith(sys.argv[1])
sys.exit(3)
"""


@pytest.fixture
def forked():
    if loaded_python.PLAIN not in os.environ:
        pytest.skip("forks are Linux's")

    def run(*arguments, **options):
        variables = {**ENVIRONMENT, loaded_python.PLAIN: os.environ[loaded_python.PLAIN]}
        command = loaded_python.command(list(arguments))
        assert loaded_python.__file__ in command
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(command, env=variables, text=True, **pipes, **options)

    return run


def test_a_fork_sees_and_says_what_a_fresh_interpreter_does(forked, tmp_path):
    fork = forked("-c", SEEN, str(ROOT), "b c", cwd=tmp_path)
    said, error = fork.communicate("typed")
    variables = {**ENVIRONMENT, loaded_python.PLAIN: os.environ[loaded_python.PLAIN]}
    fresh = subprocess.run(
        [sys.executable, "-c", SEEN, str(ROOT), "b c"],
        env=variables,
        cwd=tmp_path,
        input="typed",
        capture_output=True,
        text=True,
    )
    assert (fork.returncode, error) == (3, "error\n") == (fresh.returncode, fresh.stderr)
    assert said == fresh.stdout and said.endswith("end\n")


@pytest.mark.parametrize(("code", "ends", "says"), [
    ("1 / 0", 1, "ZeroDivisionError: division by zero"),
    ("raise SystemExit('word')", 1, "word"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV, ""),
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
    ("import sys; assert 'vklab.vulkan.device' in sys.modules", 0, ""),
])  # fmt: skip
def test_a_fork_ends_as_a_fresh_interpreter_does(forked, code, ends, says):
    fork = forked("-c", code)
    _, error = fork.communicate()
    assert fork.returncode == ends
    assert says in error and bool(error) == bool(says)


def test_a_module_is_the_main_one(forked, tmp_path):
    (tmp_path / "mine.py").write_text("import sys; print(__name__, sys.argv[1:], sys.path[0])")
    said, _ = forked("-m", "mine", "x", cwd=tmp_path).communicate()
    assert said == f"__main__ ['x'] {tmp_path}\n"


def test_who_ends_the_client_ends_the_fork(forked):
    fork = forked("-c", "import os, time; print(os.getpid(), flush=True); time.sleep(6000)")
    pid = int(fork.stdout.readline())
    fork.kill()
    fork.communicate()
    until(lambda: not os.path.exists(f"/proc/{pid}"))


def test_a_signal_to_the_client_is_one_to_the_fork(forked):
    # Short sleeps: one that begins while a signal arrives is not interrupted.
    code = (
        "import time\ntry:\n    print(1, flush=True)\n"
        "    for _ in range(600): time.sleep(0.1)\n"
        "except KeyboardInterrupt: print(2)"
    )
    fork = forked("-c", code)
    assert fork.stdout.readline() == "1\n"
    fork.send_signal(signal.SIGINT)
    assert fork.communicate(timeout=LIMIT_S)[0] == "2\n" and fork.returncode == 0
    fork = forked("-c", code)
    assert fork.stdout.readline() == "1\n"
    fork.terminate()
    fork.communicate(timeout=LIMIT_S)
    assert fork.returncode == -signal.SIGTERM


def test_a_fork_has_one_thread(forked):
    said, _ = forked("-c", "import os; print(os.listdir('/proc/self/task'))").communicate()
    assert said.count(",") == 0  # the locks of other threads would stay locked in it


def test_only_the_modules_of_this_package_are_forked(forked, tmp_path, monkeypatch):
    seen = []
    told = lambda arguments, _: seen.append(arguments) or ["true"]  # noqa: E731
    monkeypatch.setattr(loaded_python, "command", told)
    served = [sys.executable, "-m", "vklab_course.children.kernel_child", "x"]
    here = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(served, env=here, check=True)
    assert seen == [served[1:]]
    there = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert subprocess.run(served, env=there, capture_output=True).returncode == 1
    assert len(seen) == 1
