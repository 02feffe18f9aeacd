"""Child process of run_limited: calls one function and writes its outcome to a file.

Run as `python -m vklab_course.children.limited_child FOLDER`.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import cloudpickle

from vklab_course import words
from vklab_course.children.child import begin

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

__all__ = ["main"]

FILE_BYTES = 256 << 20


def main(folder: Path) -> None:
    """Read FOLDER/call, call the function, write FOLDER/result."""
    _limit_files()
    function, arguments = cloudpickle.loads((folder / "call").read_bytes())
    result: tuple[str, Any, str]
    begin(folder)
    try:
        result = ("returned", function(*arguments), "")
    except NotImplementedError as error:
        said = words.short_message(error)
        unsolved = said.startswith("Lab ")
        result = ("not_attempted" if unsolved else "raised", None, said)
    except BaseException as error:
        result = ("raised", None, words.error_text(error))
    try:
        data = cloudpickle.dumps(result)
    except Exception as error:
        text = f"returned a {type(result[1]).__name__} that cannot leave its process: {error}"
        data = cloudpickle.dumps(("raised", None, text))
    partial = folder / "result.partial"
    partial.write_bytes(data)
    partial.rename(folder / "result")


def _limit_files() -> None:
    """Bound the size of every file that the child writes, if the system supports it."""
    if resource is None:
        return
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
