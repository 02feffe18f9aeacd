"""The caller's half of tests/support/runs/python_server.py.

`subprocess.Popen` starts a small client in place of a fresh interpreter; the client hands its
files, folder and environment to the server, waits, and ends as the fork of the server ends. Whoever
ends the client ends the fork; SIGINT and SIGTERM are passed on. Run as
`python -I -S loaded_python.py ADDRESS -m MODULE ...`.
"""

import os
import signal
import sys

__all__ = ["NOTEBOOKS", "PLAIN", "SERVED", "command", "install"]

PLAIN, NOTEBOOKS = "PYTHON_SERVER", "NOTEBOOK_SERVER"  # variables that hold the servers' addresses
# Modules that are run by a fork, wherever in the tests or the product they are started.
SERVED = {"vklab_course.children.compile_child": PLAIN,
          "vklab_course.children.kernel_child": PLAIN, "vklab_course.children.limited_child": PLAIN,
          "vklab_labs.lab_05.creation": PLAIN,
          "ipykernel_launcher": NOTEBOOKS, "pytest": NOTEBOOKS}  # fmt: skip
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def command(arguments, variable=PLAIN):
    """Return the command line of a fork that does what `python ARGUMENTS` does."""
    address = os.environ.get(variable)
    if not address:
        return [sys.executable, *arguments]
    return [sys.executable, "-I", "-S", __file__, address, *arguments]


def install():
    """Have this process start the modules of SERVED as forks."""
    import subprocess

    if getattr(subprocess.Popen.__init__, "__module__", "") == __name__:
        return
    plain = subprocess.Popen.__init__

    def started(self, args, *others, **options):
        path = (options.get("env") or os.environ).get("PYTHONPATH", "")
        if path.split(os.pathsep)[0] == ROOT and isinstance(args, list):  # no copy of the package
            asked = [word for word in args[1:] if word != "-Xfrozen_modules=off"]
            if asked[:1] == ["-m"] and asked[1] in SERVED and SERVED[asked[1]] in os.environ:
                args = command(asked, SERVED[asked[1]])
        plain(self, args, *others, **options)

    started.__module__ = __name__
    subprocess.Popen.__init__ = started


def client(address, arguments):
    """Ask the server for a fork, wait for its end, and end in the same way."""
    import json
    import socket

    asked = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: connection.send(bytes([number])))
        data = json.dumps(asked).encode() + b"\n"
        sent = socket.send_fds(connection, [data], [0, 1, 2])
        connection.sendall(data[sent:])
        said = b""
        while not said.endswith(b"\n"):
            part = connection.recv(64)
            if not part:
                return 70
            said += part
    code = int(said)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (9, 19) else None
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    os._exit(client(sys.argv[1], sys.argv[2:]))
