"""Pictures and helpers of the labs: `shared` for several labs, `lab_NN` for one.

In a source tree they are in labs/lib; in an installation, beside this file.
"""

from pathlib import Path

_SOURCES = Path(__file__).resolve().parents[2] / "lib"
if (_SOURCES / "shared/diagram.py").is_file():
    __path__ = [str(_SOURCES)]
