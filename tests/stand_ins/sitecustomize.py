"""Python imports this when a child of the tests starts: servers compile its kernels, fork its own.

tests/support/runs/slang_server.py and tests/support/runs/python_server.py are the servers.
"""

import os

if "SLANG_SERVER" in os.environ:
    import subprocess

    import loaded_compiler

    subprocess.Popen = loaded_compiler.Popen

if "PYTHON_SERVER" in os.environ or "NOTEBOOK_SERVER" in os.environ:
    import loaded_python

    loaded_python.install()
