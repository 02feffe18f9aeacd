"""Operators said in terms of others, as ONNX's own functions are: nodes that take a node's place.

What they become is ordinary graph: shape inference, partition and fusion see the parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vklab.types import TensorInfo

__all__ = ["BODY_OPSET", "Body", "Expansion", "Step"]

# The opset in which bodies are written.
BODY_OPSET = 23


@dataclass(frozen=True)
class Step:
    """One node of an operator's body; its values are local names or names of the graph."""

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    domain: str = ""


@dataclass(frozen=True)
class Expansion:
    """An operator said in terms of others: the nodes that take its place in the graph."""

    steps: tuple[Step, ...]
    constants: Mapping[str, np.ndarray]
    outputs: tuple[str, ...]
    opset: int = BODY_OPSET


class Body:
    """Write down an operator in terms of others: `y = body("Add", x, 1.5)`, `body.result(y)`.

    Inputs are TensorInfos of the operator, values that the body made, arrays, or numbers (which
    become float32), or None where an input is left out.
    """

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._constants: dict[str, np.ndarray] = {}
        self._count = 0

    def _name(self) -> str:
        self._count += 1
        return f"%{self._count}"

    def _input(self, value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, str):
            return value
        if isinstance(value, TensorInfo):
            return value.name
        name = self._name()
        typed = isinstance(value, (np.ndarray, np.generic))
        self._constants[name] = np.asarray(value, None if typed else np.float32)
        return name

    def __call__(self, op_type: str, *inputs: Any, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output; return the name of that."""
        return self.many(op_type, 1, *inputs, domain=domain, **attributes)[0]

    def many(
        self, op_type: str, count: int, *inputs: Any, domain: str = "", **attributes: Any
    ) -> tuple[str, ...]:
        """Add a node with several outputs; return their names."""
        names = tuple(self._input(value) for value in inputs)
        outputs = tuple(self._name() for _ in range(count))
        given = {key: value for key, value in attributes.items() if value is not None}
        self._steps.append(Step(op_type, names, outputs, given, domain))
        return outputs

    def result(self, *outputs: Any) -> Expansion:
        """Return the finished body, whose outputs are these values; None leaves one out."""
        names = tuple(self._input(value) for value in outputs)
        return Expansion(tuple(self._steps), self._constants, names)
