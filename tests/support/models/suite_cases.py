"""ONNX's backend suite, made once for all processes of a run: it computes for seconds.

Three cases take most of its time, as onnx.reference pools volumes by loops: they are made for a run
with the tests marked slow.
"""

from __future__ import annotations

import functools
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from onnx.backend.test.case import base

from support.runs import tiers
from support.runs.waits import until
from vklab.apps import conformance
from vklab.apps.conformance import Case

LONG = {f"export_{kind}pool_3d_default" for kind in ("average", "lp", "max")}


def _export(cls: Any, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> None:
    """Make the cases of one class, as onnx does, without the long ones and without their text."""
    for key in members:
        if key.startswith("export") and (key not in LONG or tiers.is_long()):
            np.random.seed(0)
            getattr(cls, key)()
    type.__init__(cls, name, bases, members)


base._Exporter.__init__ = _export


@functools.cache
def all_cases() -> tuple[Case, ...]:
    """Return every case, read where another process of the run has made them."""
    if "TESTS_SHARE" not in os.environ:
        return tuple(conformance.cases())
    folder = Path(os.environ["TESTS_SHARE"])
    path, claim = folder / "suite_cases.pickle", folder / "suite_cases.claim"
    try:
        claim.touch(exist_ok=False)
    except FileExistsError:
        until(path.exists, "the process that makes the cases has ended")
        return pickle.loads(path.read_bytes())
    cases = tuple(conformance.cases())
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_bytes(pickle.dumps(cases))
    partial.rename(path)
    return cases


def node_cases() -> list[Case]:
    """Return the cases of single operators."""
    return [case for case in all_cases() if case.kind == "node"]


def case_of_each_operator() -> list[Case]:
    """Return the last case of each operator."""
    return list({case.operator: case for case in node_cases() if case.operator}.values())
