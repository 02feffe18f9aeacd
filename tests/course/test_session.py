"""Sessions: every submission gets the marks that it earned, and nothing is left of any of them."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat.v4 import new_notebook

from support.course.hand_ins import cell
from support.course.hostile import HOSTILE, LASTING
from support.course.sandboxes import needs_bubblewrap
from vklab_course.definition.exercise import exercises_of
from vklab_course.grade.results.records import results_of, validated
from vklab_course.grade.sandbox import command as sandbox
from vklab_course.grade.sandbox.limits import Limits
from vklab_course.grade.session import process as session_process
from vklab_course.grade.session.kernel import GradedKernel, KernelEnded
from vklab_course.grade.session.process import run_session
from vklab_course.grade.session.run import Job, Run

pytestmark = needs_bubblewrap
LABS = Path(__file__).resolve().parent / "labs"
LIMITS = Limits(memory_bytes=700 << 20, work_bytes=64 << 20, processes=100)
WITHOUT_REFUSAL = """def round_up(count, multiple=256):
    return (count + multiple - 1) // multiple * multiple
"""
RIGHT = """def round_up(count, multiple=256):
    if multiple < 1:
        raise ValueError(multiple)
    return (count + multiple - 1) // multiple * multiple
"""
# Those that cost little and stand for the others; all of them run in --all.
DEFAULT = {"exit in the answer", "ten gigabytes", "init's environment", "stub replaced",
           "modules replaced", "forged broadcast", "fake verdict", "a subclass of int",
           "daemons"}  # fmt: skip
# Of a session that would otherwise end at its time limit.
SAYS = {"huge reply": "or sent a message of more than 48 MiB"}
# Of an exercise behind an answer that has spoiled their kernel.
ALLOWED = {"passed", "error", "timeout", "failed"}


@pytest.fixture(autouse=True)
def fixture_labs(monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(LABS))


@pytest.fixture(scope="module")
def box():
    return sandbox.bubblewrap(LIMITS)


@pytest.fixture
def nothing_left(box, monkeypatch):
    """Give a test a short folder for temporary files; nothing of it may stay, nor a process."""
    folder = tempfile.mkdtemp(prefix="t", dir="/tmp")
    monkeypatch.setenv("TMPDIR", folder)
    monkeypatch.setattr(tempfile, "tempdir", folder)
    before = Path("/proc/self/mounts").read_text()
    yield
    assert os.listdir(folder) == []
    assert not _running(folder, box.uid)
    assert Path("/proc/self/mounts").read_text() == before
    os.rmdir(folder)


def _running(folder: str, uid: int) -> list[str]:
    """Return the processes that name the folder, and those of the sandbox's user."""
    running = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = " ".join(process.cmdline())
            ours = f"{folder}/" in words or process.uids().real == uid
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                running.append(words[:300])
    return running


def submission(path: Path, *cells) -> Path:
    made = [cell(*each, number=number) for number, each in enumerate(cells)]
    nbformat.write(new_notebook(cells=made), path)
    return path


def graded(box, tmp_path, *cells, **more):
    """Grade cells in this process, without nbval; return the run after its end."""
    found = exercises_of("90", {})
    wanted = {key: found[key] for key in ("90-1", "90-3")}
    settings = {"cell_seconds": 3, "wall_seconds": 900, "spare_seconds": 8, **more}
    run = Run(Job(wanted, "secret", box, tmp_path / "private", **settings))
    try:
        for number, each in enumerate(cells):
            one = cell(*each, number=number)
            if one.metadata.get("vklab", {}).get("role") == "check":
                run.check(one)
            else:
                run.execute(one, lambda one=one: run.kernel.run(one["source"]))
    finally:
        run.end()
    return run


def two(first: str):
    return [
        (first, "exercise", "90-1"),
        ('check("90-1", round_up)', "check", "90-1"),
        ("workgroups = 16", "exercise", "90-3"),
        ('check("90-3", workgroups)', "check", "90-3"),
    ]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.full if name in DEFAULT else pytest.mark.slow])
        for name in HOSTILE
    ],
)
def test_a_hostile_answer_earns_nothing_and_the_next_exercise_goes_on(
    box, tmp_path, nothing_left, name
):
    run = graded(box, tmp_path, *two(HOSTILE[name]))
    first, second = run.results["90-1"], run.results["90-3"]
    assert first["points"] == 0 and first["status"] != "passed", first
    assert first["messages"] or any(part["message"] for part in first["parts"])
    assert len(json.dumps(first)) < 2 << 20
    assert SAYS.get(name, "") in json.dumps(first)
    if name in LASTING:
        assert second["status"] in ALLOWED
    else:
        assert second["status"] == "passed", second


def test_there_are_at_least_thirty_hostile_answers():
    assert len(HOSTILE) >= 30 and set(HOSTILE) >= DEFAULT | LASTING


@pytest.mark.full
def test_a_session_grades_a_notebook_in_a_process_of_its_own(box, tmp_path, nothing_left):
    path = submission(
        tmp_path / "a.ipynb",
        ("import numpy as np\nfrom vklab_course import check",),
        ("raise SystemError('a demo is not executed')", "demo", "90-1"),
        (RIGHT, "exercise", "90-1"),
        ("open('/tmp/ran', 'w')", "check", "90-1"),
        ("# NBVAL_SKIP\nworkgroups = 15", "exercise", "90-3"),
        ('check("90-3", workgroups)', "check", "90-3"),
    )
    found = run_session(path, "90", sandbox=box, secret="a", exercises=("90-1", "90-2", "90-3"))
    entries = found["exercises"]
    assert found["broken"] == "" and found["kernels"] == 1
    for one in entries.values():
        assert validated(one, one["of"]).status == one["status"]
    # The check cell names no answer; what it says instead is not executed.
    assert entries["90-1"]["status"] in ("error", "failed")
    assert entries["90-2"]["status"] == "missing" and entries["90-2"]["of"] == 3
    assert entries["90-3"]["status"] == "failed" and "15" in entries["90-3"]["parts"][0]["message"]
    assert "c1" not in found["cells"] and found["cells"]["c4"]["status"] == "ran"
    assert len(found["seed_fingerprint"]) == 16 and found["sandbox"]["kind"] == "bubblewrap"


# Writes to the kernel's own connection a message of ZeroMQ whose last part never comes.
ENDLESS = """import os, socket, struct
frame = b"\\3" + struct.pack(">Q", 1 << 20) + bytes(1 << 20)
for number in map(int, os.listdir("/proc/self/fd")):
    try:
        one = socket.socket(fileno=os.dup(number))
        one.getpeername()
        peer = struct.unpack("3i", one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        found = one.getsockname().endswith("k-1") and peer != os.getpid()
    except (OSError, AttributeError):
        continue
    if found:
        one.setblocking(True)
        while True:
            one.sendall(frame)
"""


@pytest.mark.full
def test_a_session_that_is_killed_keeps_its_marks_and_leaves_no_folder(
    box, tmp_path, nothing_left, monkeypatch
):
    monkeypatch.setattr(session_process, "MEMORY_BYTES", 500 << 20)
    path = submission(
        tmp_path / "a.ipynb",
        (RIGHT, "exercise", "90-1"),
        ('check("90-1", round_up)', "check", "90-1"),
        (ENDLESS, "exercise", "90-3"),
        ('check("90-3", workgroups)', "check", "90-3"),
    )
    found = run_session(path, "90", sandbox=box, secret="a", exercises=("90-1", "90-3"))
    assert "of memory, more than 500" in found["interrupted"] and found["broken"] == ""
    assert found["seconds"] > 0 and set(found["exercises"]) == {"90-1"}
    done = results_of(found, {"90-1": 4, "90-3": 1})
    assert (done["90-1"].status, done["90-1"].points) == ("passed", 4)
    assert done["90-3"].status == "out_of_memory" and "more than 500" in done["90-3"].messages[0]


@pytest.mark.full
def test_right_answers_pass_and_a_raising_cell_is_told(box, tmp_path, nothing_left):
    run = graded(
        box,
        tmp_path,
        (RIGHT, "exercise", "90-1"),
        ('check("90-1", round_up)', "check", "90-1"),
        ("workgroups = 1 / 0", "exercise", "90-3"),
        ('check("90-3", workgroups)', "check", "90-3"),
    )
    assert run.results["90-1"]["status"] == "passed" and run.results["90-1"]["points"] == 4
    assert run.results["90-3"]["status"] == "error"
    assert "name 'workgroups' is not defined" in run.results["90-3"]["messages"][0]


@pytest.mark.full
def test_part_of_the_points_for_part_of_an_answer(box, tmp_path):
    stub = "workgroups = ..."
    run = graded(
        box,
        tmp_path,
        (WITHOUT_REFUSAL, "exercise", "90-1"),
        ('check("90-1", round_up)', "check", "90-1"),
        (stub, "exercise", "90-3"),
        ('check("90-3", workgroups)', "check", "90-3"),
    )
    assert run.results["90-1"]["status"] == "partial"
    assert 0 < run.results["90-1"]["points"] < 4
    assert run.results["90-3"]["status"] == "not_attempted"


@pytest.mark.full
def test_an_answer_that_ends_its_kernel_keeps_the_points_of_its_other_parts(box, tmp_path):
    answer = (
        RIGHT + "whole = round_up\ndef round_up(count, multiple=256):\n"
        "    import os\n    if multiple == 64 and count % 64 == 0: os._exit(1)\n"
        "    return whole(count, multiple)"
    )
    run = graded(box, tmp_path, *two(answer))
    found = run.results["90-1"]
    assert found["status"] == "partial" and found["points"] == 3, found
    stay = next(part for part in found["parts"] if not part["passed"])
    assert "ended its own process" in stay["message"] and stay["points"] == 1
    assert run.results["90-3"]["status"] == "passed"


@pytest.mark.slow
def test_a_kernel_of_a_shader_runs_in_a_sandbox_too(box, tmp_path, nothing_left):
    source = (LABS / "source" / "90_fixture.py").read_text("utf-8")
    start = source.index('SCALE = """')
    text = source[start : source.index('"""', start + 12) + 3]
    path = submission(
        tmp_path / "a.ipynb", (text, "exercise", "90-2"), ('check("90-2", SCALE)', "check", "90-2")
    )
    found = run_session(path, "90", sandbox=sandbox.bubblewrap(), exercises=("90-2",))
    assert found["exercises"]["90-2"]["status"] == "passed", found


@pytest.mark.full
def test_a_session_that_fails_before_its_first_mark_gives_an_error_for_each_exercise(
    box, tmp_path, monkeypatch
):
    path = tmp_path / "no.ipynb"
    path.write_text("{")
    found = run_session(path, "90", sandbox=box, exercises=("90-1", "90-3"))
    assert {one["status"] for one in found["exercises"].values()} <= {"error", "missing"}
    monkeypatch.setattr(session_process, "DATA_BYTES", 1 << 20)  # Python cannot start
    found = run_session(path, "90", sandbox=box, exercises=("90-1", "90-3"))
    assert "the session failed: it ended with code" in found["broken"]
    assert {one.status for one in results_of(found, {"90-1": 4, "90-3": 1}).values()} == {"error"}


def test_the_secret_is_not_on_the_command_line_nor_in_the_environment(monkeypatch, tmp_path):
    seen = {}

    class Popen:
        returncode, pid = 3, 2**22 + 1

        def __init__(self, command, **more):
            seen.update(command=command, **more)

        def wait(self, seconds=0):
            return 3

    monkeypatch.setattr("vklab_course.grade.session.process.subprocess.Popen", Popen)
    path = submission(tmp_path / "a.ipynb", ("pass",))
    made = sandbox.Bubblewrap(LIMITS)
    found = run_session(path, "90", sandbox=made, secret="s3cret", exercises=("90-3",))
    assert "ended with code 3" in found["broken"]
    assert "s3cret" not in " ".join(seen["command"]) + str(seen["env"])
    assert not list(Path(seen["cwd"]).parent.glob("*"))


@pytest.mark.full
def test_a_kernel_cannot_put_another_socket_in_the_place_of_its_own(box, tmp_path, nothing_left):
    kernel = GradedKernel(box, tmp_path)
    try:
        assert len(str(kernel.folder)) + len("/k-1") < 107
        kernel.allow(5, 20)
        kernel.run("import glob, os\nfor f in glob.glob('/tmp/*/vk-*/*'): os.unlink(f)")
        kernel.run("for f in glob.glob('/tmp/*/vk-*/*'): os.unlink(f)")
        if os.geteuid() == 0:
            assert len(list(kernel.folder.iterdir())) >= 3
        assert kernel.is_alive()
    finally:
        kernel.end()
    with pytest.raises(KernelEnded, match="ended its own process"):
        kernel.get_message("shell", 1)


def test_a_right_answer_that_prints_half_a_character(box, tmp_path, nothing_left):
    text = RIGHT.replace("    if multiple", "    print('a\\ud800b')\n    if multiple", 1)
    path = submission(
        tmp_path / "s.ipynb",
        (text, "exercise", "90-1"),
        ('check("90-1", round_up)', "check", "90-1"),
    )
    done = run_session(path, "90", sandbox=box, secret="secret", exercises=["90-1"])
    result = validated(done["exercises"]["90-1"], done["exercises"]["90-1"]["of"])
    assert result.status == "passed" and "a\\ud800b" in " ".join(result.messages), done
