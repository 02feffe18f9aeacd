"""Expand operators into nodes of other operators, as ONNX's function bodies do.

Shape inference, partition and fusion then see only those nodes. Visited by lab 09.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vklab.types import TensorInfo

# The opset of the nodes in a body.
BODY_OPSET = 23


@dataclass(frozen=True)
class Step:
    """Describe one node of a body; inputs and outputs are local names or names of the graph."""

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    domain: str = ""


@dataclass(frozen=True)
class Expansion:
    """Describe the nodes that replace an operator in the graph."""

    steps: tuple[Step, ...]
    constants: Mapping[str, np.ndarray]
    outputs: tuple[str, ...]
    opset: int = BODY_OPSET


class Body:
    """Build the nodes that replace an operator: `y = body("Add", x, 1.5)`, `body.result(y)`.

    An input is a TensorInfo of the operator, a value of this body, an array, a number (stored as
    float32), or None for an input that is left out.
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
        """Add a node with one output and return the output's name.

        Args:
            op_type: the ONNX op_type.
            inputs: the node's inputs.
            domain: the operator's domain; "" for ONNX's own.
            attributes: the node's attributes; None leaves one out.
        """
        return self.many(op_type, 1, *inputs, domain=domain, **attributes)[0]

    def many(
        self, op_type: str, count: int, *inputs: Any, domain: str = "", **attributes: Any
    ) -> tuple[str, ...]:
        """Add a node with several outputs and return their names.

        Args:
            op_type: the ONNX op_type.
            count: the number of outputs.
            inputs: the node's inputs.
            domain: the operator's domain; "" for ONNX's own.
            attributes: the node's attributes; None leaves one out.
        """
        names = tuple(self._input(value) for value in inputs)
        outputs = tuple(self._name() for _ in range(count))
        given = {key: value for key, value in attributes.items() if value is not None}
        self._steps.append(Step(op_type, names, outputs, given, domain))
        return outputs

    def result(self, *outputs: Any) -> Expansion:
        """Return the finished body with these values as outputs; None leaves an output out."""
        names = tuple(self._input(value) for value in outputs)
        return Expansion(tuple(self._steps), self._constants, names)
