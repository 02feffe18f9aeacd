"""Child process that compiles a kernel's text to SPIR-V; it opens no device.

Run as `python -m vklab_course.children.compile_child FOLDER KERNEL`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from vklab.errors import SetupError, ShaderError
from vklab.shader import compiler
from vklab_course.children.child import begin, without

__all__ = ["main"]


def main(folder: Path, kernel: str) -> None:
    """Write FOLDER/compiled.spv, or FOLDER/failed.json with the status and the reason."""
    begin(folder)
    try:
        spirv = compiler.compile_variant(str(folder / kernel)).spirv
    except (SetupError, ShaderError) as error:
        status = "no_device" if isinstance(error, SetupError) else "compile_error"
        facts = json.dumps({"status": status, "message": without(folder, error)[:4000]})
        (folder / "failed.json").write_text(facts, encoding="utf-8")
        return
    (folder / "compiled.spv").write_bytes(spirv)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
