"""Runners of the benchmark that misbehave in one way each, and one that is sound."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from support.runs.waits import hang
from vklab.apps.compare.backend import Availability, Refused
from vklab.apps.compare.speed.runners.runner import Case

ABSENT = Availability("the fake library is not installed", "pip install fake")


@dataclass(frozen=True)
class Fake:
    """A runner that doubles its input x.

    Attributes:
        name: name of the runner.
        fault: what goes wrong; "" for nothing.
        log: file to which each turn appends the runner's name.
    """

    name: str
    fault: str = ""
    log: Path | None = None
    dtype: str = "float32"
    environment: Path | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    on_gpu = True

    def takes(self, case: Case) -> bool:
        return self.fault != "not taken"

    def available(self) -> Availability:
        if self.fault == "dies when asked":
            os._exit(9)
        return ABSENT if self.fault == "absent" else Availability()

    def prepare(self, model: Case) -> FakeModel:
        if self.fault == "refuses":
            raise Refused("the fake takes no such model")
        return FakeModel(self)


class FakeModel:
    """The loaded model of a fake."""

    def __init__(self, runner: Fake) -> None:
        self._runner, self._runs = runner, 0
        self.variant = "a fake"
        self.versions = {"fake": "1.0"}

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        fault, self._runs = self._runner.fault, self._runs + 1
        if fault == "crashes" or (fault == "crashes later" and self._runs > 3):
            os.abort()
        if fault == "hangs":
            hang()
        if fault == "raises":
            raise ValueError("the fake is broken")
        if fault == "other name":
            return {"z": 2 * inputs["x"]}
        made = 2 * inputs["x"]
        made[1] = {"NaN": np.nan, "wrong": 7.0}.get(fault, made[1])
        if self._runner.log:
            with self._runner.log.open("a") as file:
                file.write(f"{self._runner.name} ")
        return {"y": made}

    def device_ns(self, inputs: Mapping[str, np.ndarray], runs: int) -> list[float]:
        return [500.0] * runs

    def close(self) -> None:
        pass


def case_in(folder: Path, **more) -> Case:
    """Return a case whose expected output is twice the input."""
    x = np.arange(1, 5, dtype=np.float32)
    np.savez(folder / "inputs.npz", x=x)
    np.savez(folder / "expected.npz", y=2 * x)
    return Case(
        "double", folder / "model.onnx", folder / "inputs.npz", folder / "expected.npz", **more
    )
