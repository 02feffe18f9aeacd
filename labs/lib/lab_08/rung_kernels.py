"""Compile what `products.py` measures: the ladder, the runtime's product, a chain of loads.

Visited by lab 08. `PYTHONPATH=.:labs/engine python3 -P labs/lib/lab_08/rung_kernels.py FOLDER`
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from vklab.ops import linear
from vklab.ops.registry import Result
from vklab.plan.tuning import variants
from vklab.shader import compiler
from vklab.types import TensorInfo
from vklab_labs.lab_08.rungs import LADDER, RUNTIME, SIZES
from vklab_labs.shared.machines import machine

__all__ = ["compile_kernels"]


def compile_kernels(folder: Path) -> None:
    """Write SPIR-V of the ladder, of the runtime's product and of the chain, and what they take."""
    folder.mkdir(parents=True, exist_ok=True)
    takes: dict[str, Any] = {}
    for name in (*(f"matmul_{rung}" for rung in LADDER), "latency"):
        (folder / f"{name}.spv").write_bytes(compiler.compile_variant(f"labs/{name}").spirv)
    server = machine("server")[0]  # the limits of a large GPU; the choice needs no driver
    for size in SIZES:
        sides = [TensorInfo(name, "float32", (size, size)) for name in "ab"]
        result = linear.matmul(*sides)
        assert isinstance(result, Result)
        chosen = variants.choose(result.dispatches[0], server)
        if len(chosen) != 1:  # a small product is split into parts, which are summed afterwards
            continue
        takes[str(size)] = {
            "defines": dict(chosen[0].defines),
            "push": dict(chosen[0].push),
            "constants": dict(chosen[0].constants),
            "workgroups": chosen[0].workgroups,
        }
        shader = compiler.compile_variant(chosen[0].kernel, chosen[0].defines)
        (folder / f"{RUNTIME}_{size}.spv").write_bytes(shader.spirv)
    (folder / "runtime.json").write_text(json.dumps(takes, indent=1), "utf-8")


if __name__ == "__main__":
    compile_kernels(Path(sys.argv[1]))
