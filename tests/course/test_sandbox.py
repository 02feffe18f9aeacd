"""The sandbox keeps submissions in; the probe refuses by name each setting that does not."""

from __future__ import annotations

import dataclasses
import struct
import subprocess
import sys
from collections.abc import Callable

import pytest

from support.course.sandboxes import IMAGE, SMALL, as_root, needs_bubblewrap
from support.runs.waits import LIMIT_S, until
from vklab.errors import SetupError
from vklab_course import places
from vklab_course.grade.sandbox import command as sandbox
from vklab_course.grade.sandbox import limits as sandbox_limits
from vklab_course.grade.sandbox import package, probe, seccomp
from vklab_course.grade.sandbox.container import Container
from vklab_course.grade.sandbox.limits import Watch

pytestmark = pytest.mark.full


def without(*gone: str, values: int = 0) -> Callable[[list[str]], list[str]]:
    """Return a change of a command line: these options are gone, with so many values each."""

    def change(command: list[str]) -> list[str]:
        kept, skip = [], 0
        for part in command:
            if skip:
                skip -= 1
            elif part in gone:
                skip = values
            else:
                kept.append(part)
        return kept

    return change


def with_options(*options: str) -> Callable[[list[str]], list[str]]:
    """Return a change of a command line: bubblewrap gets these mounts, too."""

    def change(command: list[str]) -> list[str]:
        at = command.index("--proc")
        return [*command[:at], *options, *command[at:]]

    return change


def no_limits(command: list[str]) -> list[str]:
    at = command.index("prlimit")
    return command[:at] + command[command.index("--", at) + 1 :]


def as_root_inside(command: list[str]) -> list[str]:
    at = command.index("setpriv")
    return command[:at] + command[command.index("--", at) + 1 :]


def own_environment(command: list[str]) -> list[str]:
    return without("--clearenv")(
        [
            part
            for part in command
            if part not in ("/usr/bin/env", "-i") and not part.startswith("PATH=/usr/bin")
        ]
    )


def writable_root(command: list[str]) -> list[str]:
    at = len(command) - 1 - command[::-1].index("--remount-ro")
    return [*command[:at], "--perms", "0777", "--dir", "/run", *command[at + 2 :]]


@dataclasses.dataclass(frozen=True)
class Altered(sandbox.Bubblewrap):
    """A sandbox with one bad setting, which the real class has no switch for."""

    change: Callable[[list[str]], list[str]] = list

    def command(self, *args, **named):
        return self.change(super().command(*args, **named))


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    (folder / "documents").mkdir(parents=True)
    folder.chmod(0o755)
    package = sandbox.bubblewrap(SMALL).package
    monkeypatch.setenv("HOME", str(folder))
    return folder, package


def names(findings) -> set[str]:
    return {finding.name for finding in findings}


@needs_bubblewrap
def test_the_sandbox_of_this_machine_passes_the_probe():
    assert probe.probe(sandbox.bubblewrap(SMALL)) == []


PLANTED = {
    "the host's network": (without("--unshare-net"), {"network"}),
    "the host's processes": (without("--unshare-pid"), {"proc", "orphans"}),
    "no limits": (no_limits, {"processes", "core"}),
    "no size of folders": (without("--size", values=1), {"disk"}),
    "a root that can be written": (writable_root, {"write_outside"}),
    "the grader's environment": (own_environment, {"environment"}),
    "no filter of system calls": (without("--seccomp", values=1),
                                  {"user_namespaces", "descriptors", "socket_buffers"}),
    "root inside": (as_root_inside, {"privileges"}),
    "the host's folder for temporary files": (with_options("--bind", "/tmp", "/srv"), {"mounts"}),
    "a socket of docker": (
        with_options("--perms", "0755", "--dir", "/run", "--ro-bind", "/etc/hostname",
                     "/run/docker.sock"), {"control_sockets"}),
}  # fmt: skip
ROOT_ONLY = {"no filter of system calls", "root inside"}


@needs_bubblewrap
@pytest.mark.parametrize("setting", [
    pytest.param(name, marks=[*([as_root] if name in ROOT_ONLY else []),
                              *([] if number < 2 else [pytest.mark.slow])])
    for number, name in enumerate(PLANTED)
])  # fmt: skip
def test_the_probe_refuses_a_bad_setting_by_name(setting):
    change, expected = PLANTED[setting]
    made = sandbox.bubblewrap(SMALL)
    bad = Altered(SMALL, made.package, change=change)
    found = names(probe.probe(bad))
    assert expected <= found, found
    with pytest.raises(SetupError, match="nothing is graded") as refused:
        probe.require(bad)
    assert all(f"{name}:" in str(refused.value) for name in expected)


@needs_bubblewrap
@pytest.mark.full
def test_the_probe_refuses_mounted_folders_by_name(home, tmp_path):
    folder, package = home
    other = tmp_path / "submission.ipynb"
    other.write_text("{}")
    checks = places.labs_folder() / "checks"
    bad = sandbox.Bubblewrap(
        SMALL,
        package,
        extra={
            str(folder): folder,
            str(checks): checks,
            str(other): other,
            str(places.PROJECT / "labs"): places.PROJECT / "labs",
        },
    )
    found = names(probe.probe(bad, {"submissions": [other]}))
    assert found == {"home", "checks", "submissions", "working_tree"}
    assert not probe.probe(sandbox.Bubblewrap(SMALL, package), {"submissions": [other]})


@needs_bubblewrap
@pytest.mark.full
def test_the_probe_refuses_a_sandbox_without_a_limit_of_memory(monkeypatch):
    class Blind(Watch):
        def memory(self):
            return 0

    monkeypatch.setattr(probe, "Watch", Blind)
    made = sandbox.bubblewrap(SMALL)
    assert "memory" in names(probe.probe(Altered(SMALL, made.package, change=no_limits)))


@needs_bubblewrap
def test_the_code_inside_sees_the_package_and_neither_labs_nor_the_working_tree(tmp_path):
    code = (
        "import os, sys, vklab; print(vklab.__file__, os.getcwd(), os.getuid() != 0)\n"
        "import vklab_course, vklab_labs.shared.diagram as d\n"
        "import vklab.course.figures.diagram as e\n"
        "print(vklab_course.__file__, d.__file__, d is e)\n"
        "print(sorted(os.environ))\n"
        "print([n for _, _, f in os.walk('/') for n in f if n.startswith('lab_0')])"
    )
    made = sandbox.bubblewrap(SMALL)
    command = made.command([sys.executable, "-c", code], private=tmp_path)
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    first, course, variables, checks = done.stdout.splitlines()
    assert first == "/opt/vklab/vklab/__init__.py /home/student True"
    assert course == (
        "/opt/vklab/vklab_course/__init__.py /opt/vklab/vklab_labs/shared/diagram.py True"
    )
    assert "HOME" in variables and "TESTS_SHARE" not in variables
    assert checks == "[]"
    assert (made.package / "vklab_course/student").is_dir()
    assert not (made.package / "vklab_course/grade").exists()


@pytest.mark.parametrize("changed", [
    "vklab/errors.py", "vklab_course/check.py", "shaders/a.slang", "vklab_labs/__init__.py",
    "vklab_labs/lab_09/a.py",
])  # fmt: skip
def test_a_copy_is_made_anew_when_a_file_of_either_package_changes(tmp_path, changed):
    folders = {
        name: tmp_path / name.replace("/", "_")
        for name in ("vklab", "shaders", "vklab_course", "vklab_labs", "vklab_labs/lab_09")
    }
    for folder in folders.values():
        folder.mkdir()
    name, _, file = changed.rpartition("/")
    path = folders[name] / file
    path.write_text("one")
    (folders["vklab_course"] / "grade").mkdir()
    before = package._digest(folders)
    (folders["vklab_course"] / "grade/batch.py").write_text("not copied")
    assert package._digest(folders) == before
    path.write_text("another")
    assert package._digest(folders) != before


def test_all_that_students_import_is_copied():
    found = package.sources()
    assert {"vklab", "vklab_course", "vklab_labs", "vklab_labs/shared", "shaders"} <= set(found)
    assert found["vklab"].parent == places.PROJECT


@needs_bubblewrap
def test_no_descriptor_can_be_sent_inside_and_lavapipe_has_its_anonymous_file(tmp_path):
    code = (
        "import os, socket\n"
        "os.write(os.memfd_create('x'), b'x')\n"
        "ours, theirs = socket.socketpair()\n"
        "try: print(socket.send_fds(ours, [b'x'], [0]))\n"
        "except PermissionError: print('refused')"
    )
    command = sandbox.bubblewrap(SMALL).command([sys.executable, "-c", code], private=tmp_path)
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.stdout == "refused\n", done.stderr


@needs_bubblewrap
def test_what_runs_inside_ends_with_the_process_that_started_it(tmp_path):
    made = sandbox.bubblewrap(SMALL)
    command = made.command(["sleep", "86412"], private=tmp_path)
    code = f"import subprocess, time; subprocess.Popen({command!r}); time.sleep(6000)"
    parent = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        until(lambda: len(sandbox_limits.family(parent.pid)) > 3)
        inside = sandbox_limits.family(parent.pid)[:-1]
    finally:
        parent.kill()  # the parent alone
        parent.wait()
    until(lambda: not any(map(sandbox_limits._runs, inside)))


def test_without_bubblewrap_the_error_says_what_to_type(monkeypatch):
    monkeypatch.setattr(sandbox.sys, "platform", "linux")
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    with pytest.raises(SetupError, match=r"bwrap.* not installed[\s\S]*apt-get install"):
        sandbox.bubblewrap()
    monkeypatch.setattr(sandbox.sys, "platform", "darwin")
    with pytest.raises(SetupError, match=r"needs Linux[\s\S]*--sandbox-image"):
        sandbox.bubblewrap()


def test_the_advice_names_the_profile_where_apparmor_restricts(monkeypatch):
    monkeypatch.setattr(sandbox.sys, "platform", "linux")
    monkeypatch.setattr(sandbox.os, "geteuid", lambda: 1000, raising=False)
    monkeypatch.setattr(sandbox.Path, "is_file", lambda self: True)
    monkeypatch.setattr(sandbox.Path, "read_text", lambda self: "1\n")
    advice = sandbox.install_advice()
    assert "profile bwrap /usr/bin/bwrap" in advice and "userns," in advice
    assert "sysctl" not in advice


def test_a_user_without_root_gets_a_user_namespace_of_his_own(monkeypatch, tmp_path):
    monkeypatch.setattr(sandbox.os, "geteuid", lambda: 1000, raising=False)
    command = sandbox.Bubblewrap(SMALL).command(["true"], private=tmp_path)
    assert {"--unshare-user", "--disable-userns"} <= set(command)
    assert "setpriv" not in command and "CAP_SETUID" not in " ".join(command)


def test_the_filter_of_system_calls_is_well_formed():
    for machine, audit in (("x86_64", 0xC000003E), ("aarch64", 0xC00000B7)):
        steps = list(struct.iter_unpack("<HBBI", seccomp.program(machine)))
        assert steps[1][3] == audit and len(steps) < 256
        for number, (code, yes, no, value) in enumerate(steps):
            jump = max(yes, no) if code & 7 == 5 else 0
            assert number + jump < len(steps), (number, value)
        assert steps[-1][0] == 6 and steps[-1][3] == seccomp.ALLOW
    with pytest.raises(ValueError, match="no filter of system calls for riscv64"):
        seccomp.program("riscv64")


@needs_bubblewrap
def test_sockets_inside_are_local_and_their_buffers_keep_their_size(tmp_path):
    code = (
        "import socket\n"
        "a, b = socket.socketpair()\n"
        "sizes = [socket.SO_SNDBUF, socket.SO_RCVBUF]\n"
        "before = [a.getsockopt(socket.SOL_SOCKET, s) for s in sizes]\n"
        "for s in sizes: a.setsockopt(socket.SOL_SOCKET, s, 8 << 20)\n"
        "print(before == [a.getsockopt(socket.SOL_SOCKET, s) for s in sizes])\n"
        "a.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)\n"
        "print(a.getsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED), a.send(b'x'))\n"
        "for kind in (socket.AF_INET, socket.AF_INET6, 38):\n"  # 38: AF_ALG
        "    try: print(socket.socket(kind, socket.SOCK_STREAM))\n"
        "    except OSError as error: print(error.errno)"
    )
    command = sandbox.bubblewrap(SMALL).command([sys.executable, "-c", code], private=tmp_path)
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.stdout.split() == ["True", "1", "1", "97", "97", "97"], done.stderr


def test_settings_make_the_same_sandbox_in_another_process(tmp_path):
    for made in (
        Container(IMAGE, extra={"/data": tmp_path}),
        sandbox.Bubblewrap(SMALL, tmp_path, extra={"/data": tmp_path}),
    ):
        again = sandbox.from_settings(made.settings(), made.limits)
        assert again.settings() == made.settings() and type(again) is type(made)
