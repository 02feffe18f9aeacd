"""Containers as sandboxes: their command line, and the removal of those that are left."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from support.course.sandboxes import IMAGE, SMALL
from vklab.errors import SetupError
from vklab_course.grade.sandbox import leftovers
from vklab_course.grade.sandbox.container import Container


def test_a_container_has_no_network_no_privileges_and_a_pinned_image(tmp_path):
    made = Container(IMAGE, "podman", SMALL)
    command = made.command(["/usr/bin/python", "-m", "x"], writable=[tmp_path], private=tmp_path)
    text = " ".join(command)
    for wanted in (
        "--network none",
        "--read-only",
        "--cap-drop ALL",
        "--pids-limit 60",
        "--security-opt no-new-privileges",
        "nr_inodes=10000,",
        f"--memory {600 << 20}",
        f"--memory-swap {600 << 20}",
        f"--entrypoint python3 {IMAGE} -m x",
    ):
        assert wanted in text, wanted
    assert "--privileged" not in text and "--pid host" not in text


@pytest.mark.parametrize("image", [
    "vklab:latest", "vklab", "vklab@sha256:12", "-v@sha256:" + "0" * 64,
])  # fmt: skip
def test_a_container_is_named_by_its_digest(image):
    with pytest.raises(SetupError, match="not named by its digest"):
        Container(image)


def test_a_container_refuses_the_socket_of_its_own_program(tmp_path):
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(path))
    link = tmp_path / "innocent"
    link.symlink_to(path)
    made = Container(IMAGE)
    for mounted in (path, link, Path("/"), Path("/var/run"), Path.home()):
        with pytest.raises(SetupError, match="must not be mounted"):
            made.command(["python"], readable={"/x": mounted}, private=tmp_path)


@pytest.fixture
def docker(monkeypatch):
    """Record the commands given to docker; it lists the names in the second list."""
    run: list[list[str]] = []
    names: list[str] = []

    def answer(command, **_):
        run.append(command)
        return subprocess.CompletedProcess(command, 0, "\n".join(names), "")

    monkeypatch.setattr("vklab_course.grade.sandbox.container.subprocess.run", answer)
    return run, names


def test_a_container_is_removed_by_the_name_that_it_was_given(tmp_path, docker):
    run, _ = docker
    made = Container(IMAGE)
    made.ended(tmp_path)
    assert not run
    command = made.command(["python"], private=tmp_path)
    name = command[command.index("--name") + 1]
    made.ended(tmp_path)
    made.ended(tmp_path)
    assert run == [["docker", "rm", "-f", name]]
    assert not leftovers.is_left(name) and leftovers.is_left(name, os.getpid())


def gone() -> int:
    """Return the id of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_containers_of_graders_that_are_gone_are_removed_and_no_others(docker):
    run, names = docker
    dead = gone()
    mine = leftovers.fresh_name()
    left = mine.replace(f"-{os.getpid()}-", f"-{dead}-")
    elsewhere = left.replace("vklab-", "vklab-another-", 1)
    names += [mine, left, elsewhere, "vklab-notes", "postgres", f"my{left}"]
    listing = ["podman", "ps", "--all", "--filter", "name=vklab-", "--format", "{{.Names}}"]
    assert Container(IMAGE, "podman").swept() == [left]
    assert run == [listing, ["podman", "rm", "-f", left]]
    run.clear()
    Container(IMAGE, "podman").closed()
    assert run == [listing, ["podman", "rm", "-f", mine]]


def test_a_docker_that_does_not_answer_stops_no_batch(tmp_path, monkeypatch):
    assert Container(IMAGE, "/no/such/program").swept() == []
    slow = tmp_path / "docker"
    slow.write_text("#!/bin/sh\nsleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr("vklab_course.grade.sandbox.container.PATIENCE_S", 0.2)
    assert Container(IMAGE, str(slow)).swept() == []
