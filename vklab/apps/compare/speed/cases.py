"""Cases of the benchmark: each model is built in a child, and written once for all runners.

The expected outputs are those of ONNX Runtime on the CPU in float32.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from vklab.apps.compare.models import catalogue, graphs
from vklab.apps.compare.speed import work
from vklab.apps.compare.speed.runners.runner import Case
from vklab.base import worker
from vklab.base.worker import Failure
from vklab.runtime import host

AT_ONCE = 6  # models that are built at the same time


def make_all(
    names: Sequence[str], folder: Path, seconds: float
) -> Iterator[tuple[str, Case | Failure]]:
    """Yield each model's name with its case, or with the reason why there is none.

    All are built before the first is yielded, so that no building disturbs a measurement.

    Args:
        names: names of models, or paths of .onnx files.
        folder: folder for the files.
        seconds: time limit of each.
    """
    def made(name: str) -> Case | Failure:
        own = folder / f"{len(name)}-{Path(name).name}"
        own.mkdir(parents=True, exist_ok=True)
        try:
            return make(name, own, seconds)
        except Failure as failure:
            return failure

    with ThreadPoolExecutor(min(AT_ONCE, os.cpu_count() or 1)) as pool:
        yield from zip(names, list(pool.map(made, names)), strict=True)


def make(name: str, folder: Path, seconds: float) -> Case:
    """Write the files of one model, in a child.

    Args:
        name: name of the model, or path of an .onnx file.
        folder: folder for the files.
        seconds: time limit.

    Raises Failure.
    """
    flops, size = worker.once(_write, name, folder, seconds=seconds)
    given = Path(name) if name.endswith(".onnx") else None
    module = folder / "module.pt"
    return Case(
        given.stem if given else name, given.absolute() if given else folder / "model.onnx",
        folder / "inputs.npz", folder / "expected.npz", module if module.exists() else None,
        flops, size, catalogue.is_operator(name),
    )  # fmt: skip


def _write(state: dict[str, Any], name: str, folder: Path) -> tuple[int, int]:
    """Write model, inputs and expected outputs; return operations and bytes.

    Args:
        state: the child's dict.
        name: as in `make`.
        folder: folder for the files.
    """
    if name.endswith(".onnx"):
        model = onnx.load(name)
        given: dict[str, Any] = graphs.sample_inputs(model)
        np.savez(folder / "inputs.npz", **given)
    else:
        catalogue.write(name, folder)
        model = onnx.load(folder / "model.onnx")
    with np.load(folder / "inputs.npz") as stored:
        inputs = {key: stored[key] for key in stored.files}
    expected: dict[str, Any] = host.Reference(model).run(inputs)
    np.savez(folder / "expected.npz", **expected)
    return work.counted(model)
