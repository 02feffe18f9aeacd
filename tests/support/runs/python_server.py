"""Python with vklab loaded once: a fork of one process is each Python child that tests start.

A fresh interpreter spends most of a second on imports before it does what a test is about. A child
of the server starts with the modules of LOADED imported and nothing else done: no Vulkan loader, no
settings, no devices, and the environment, folder, files and arguments of its caller. It ends as
every interpreter does. tests/stand_ins/loaded_python.py is the caller's half.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

from stand_ins import loaded_python
from support.runs import child

ROOT = Path(__file__).resolve().parents[3]
# What a server imports, by the variable that holds its address: for processes that run models, and
# for those that run notebooks.
LOADED = {
    loaded_python.PLAIN: (
        "cloudpickle",
        "onnx",
        "vklab_course.children.kernel_child",
        "vklab_course.children.limited_child",
        "support.graphs.small_models",
        "support.checks.plan_checks",
        "support.models.exported_models",
        "support.models.light_models",
        "vklab.apps.compare.models.graphs",
        "vklab.plan.report.table",
        "vklab.runtime.many.streams",
        "vklab.graph.passes",
        "vklab.plan.fusion",
    ),
    loaded_python.NOTEBOOKS: (
        "pytest",
        "nbval.plugin",
        "nbformat",
        "ipykernel.kernelapp",
        "matplotlib.pyplot",
        "matplotlib_inline.backend_inline",
        "vklab_course",
        "numpy",
        "onnx",
        "vklab_course.grade.preload",
    ),
}
BACKEND = "module://matplotlib_inline.backend_inline"  # as in every notebook
HEADER_BYTES = 1 << 20


@contextlib.contextmanager
def running(folder: Path, variable: str = loaded_python.PLAIN) -> Iterator[None]:
    """Have the children that tests start forked by a server.

    Args:
        folder: gets the socket.
        variable: which of the servers.
    """
    if sys.platform != "linux" or variable in os.environ:
        yield
        return
    address = str(folder / "python")
    environment = {**child.env(), "MPLBACKEND": BACKEND}
    server = subprocess.Popen(
        [sys.executable, __file__, address, variable],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        if server.stdout and server.stdout.read(1):
            os.environ[variable] = address
            loaded_python.install()
        yield
    finally:
        os.environ.pop(variable, None)
        server.communicate()  # the end of its input ends it


def serve(address: str, variable: str) -> None:
    """Answer each connection in a fork, until the input of this process ends."""
    base = [entry for entry in sys.path[1:] if entry not in _listed(os.environ)]
    for name in LOADED[variable]:
        with contextlib.suppress(ModuleNotFoundError):  # of an extra that is not installed
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # the collector writes to what forks share
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        os.write(1, b"1")
        while listener in select.select([listener, 0], [], [])[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                watch(connection, base)
            connection.close()
            bury()


def bury() -> None:
    """Forget the forks that have ended; their time counts as that of this process."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def watch(connection: socket.socket, base: list[str]) -> None:
    """Start what a connection asks for; report its end, or end it when the caller has gone."""
    said, files, _, _ = socket.recv_fds(connection, HEADER_BYTES, 3)
    while not said.endswith(b"\n"):
        said += connection.recv(HEADER_BYTES)
    child = os.fork()
    if child == 0:
        connection.close()
        become(json.loads(said), files, base)
    for file in (*files, 0, 1, 2):
        os.close(file)
    ended = os.pidfd_open(child)
    while ended not in select.select([connection, ended], [], [])[0]:
        number = connection.recv(1)  # a signal for the child, or the end of the caller
        with contextlib.suppress(ProcessLookupError):
            if number:
                os.kill(child, number[0])
            else:
                os.killpg(child, signal.SIGKILL)
                break
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(OSError):
        connection.sendall(f"{status}\n".encode())
    os._exit(0)


def become(asked: dict, files: list[int], base: list[str]) -> None:
    """Be the process that the caller has asked for: `-c CODE` or `-m MODULE`, and arguments."""
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    loaded_python.install()
    random.seed()
    sys.modules["numpy"].random.seed()
    if os.environ.get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(write_through=True)
    kind, what, *rest = asked["arguments"]
    sys.argv = [kind, *rest]
    sys.path[:] = ["" if kind == "-c" else os.getcwd(), *_listed(os.environ), *base]
    if kind == "-m":
        sys.modules.pop(what, None)  # it is the main module, as in a fresh interpreter
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), vars(main))
    sys.exit()


def _listed(environment: os._Environ[str]) -> list[str]:
    return [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]


if __name__ == "__main__":
    serve(*sys.argv[1:])
