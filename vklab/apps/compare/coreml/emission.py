"""Emission: the ONNX nodes and constants that stand for one operation of a Core ML model.

Also the table of MIL's operators, whose functions fill emissions.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vklab.apps.compare.coreml.values import ONNX_CODES
from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.graph import shapes
from vklab.graph.graph import Graph, Node
from vklab.types import TensorInfo

OPSET = 21
MOST_ELEMENTS = 1 << 26
Operand = TensorInfo | np.ndarray | np.generic | str | None
Rule = Callable[..., None]
# The function of each MIL operator by its name.
OPERATORS: dict[str, Rule] = {}
# Inputs that are lists of values.
LISTS = frozenset({"values"})


@dataclass
class Emission:
    """Nodes, constants and results of one operation; `kind` is its type, as "conv"."""

    kind: str
    outputs: tuple[TensorInfo, ...]
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, TensorInfo] = field(default_factory=dict)
    results: dict[str, TensorInfo] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Return the operation's name and type, for error messages."""
        return f"operation {self.outputs[0].name!r} ({self.kind})"

    @property
    def y(self) -> TensorInfo:
        """Return the declared output of an operation that has one."""
        if len(self.outputs) != 1:
            raise ModelError(f"{self.title} has {len(self.outputs)} outputs, not 1")
        return self.outputs[0]

    def node(self, op_type: str, *inputs: Operand, **attributes: Any) -> str:
        """Add a node inside the operation; return the name of its value.

        Args:
            op_type: ONNX's operator.
            *inputs: values, constants, or names that `node` returned; None where left out.
            **attributes: ONNX's attributes; None where left out.
        """
        value = f"{self.outputs[0].name}/{op_type}_{len(self.nodes)}"
        self._add(value, op_type, inputs, (value,), attributes)
        return value

    def result(self, op_type: str, *inputs: Operand, **attributes: Any) -> None:
        """Add the node that makes the outputs of the operation.

        Args:
            op_type: ONNX's operator.
            *inputs: as in `node`.
            **attributes: as in `node`.
        """
        names = tuple(info.name for info in self.outputs)
        self._add(names[0], op_type, inputs, names, attributes)

    def constant(self, values: np.ndarray) -> None:
        """Make a constant the output of the operation."""
        values = np.ascontiguousarray(values)
        if (str(values.dtype), values.shape) != (self.y.dtype, self.y.shape):
            raise ModelError(
                f"{self.title} declares {self.y}, its constant is {values.dtype}"
                f"{list(values.shape)}"
            )
        self.results[self.y.name] = replace(self.y, constant=values)

    def filled(self, value: float, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """Return a constant array; a damaged file may declare a shape of any size.

        Args:
            value: each element.
            shape: the shape.
            dtype: the dtype.
        """
        if math.prod(shape) > MOST_ELEMENTS:
            raise ModelError(
                f"{self.title}: a constant of shape {shape} has more than {MOST_ELEMENTS} elements"
            )
        return np.full(shape, value, dtype)

    def wide(self, x: TensorInfo) -> TensorInfo | str:
        """Return x in float32, in which a float16 operation of several nodes computes."""
        return self.node("Cast", x, to=ONNX_CODES["float32"]) if x.dtype == "float16" else x

    def narrow(self, op_type: str, *inputs: Operand, **attributes: Any) -> None:
        """Add the last node of an operation that computes in float32, rounded once.

        Args:
            op_type: ONNX's operator.
            *inputs: as in `node`.
            **attributes: as in `node`.
        """
        if self.y.dtype == "float32":
            self.result(op_type, *inputs, **attributes)
        else:
            last = self.node(op_type, *inputs, **attributes)
            self.result("Cast", last, to=ONNX_CODES[self.y.dtype])

    def refusal(self, what: str) -> UnsupportedOperatorError:
        """Return the error for a case of the operator that vklab does not run."""
        return UnsupportedOperatorError(f"{self.title}: {what}")

    def _add(
        self, name: str, op_type: str, inputs: Sequence[Operand], outputs: tuple[str, ...],
        attributes: Mapping[str, Any],
    ) -> None:  # fmt: skip
        names = tuple(self._named(each) for each in inputs)
        while names and not names[-1]:
            names = names[:-1]
        kept = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(Node(name, op_type, names, outputs, kept))

    def _named(self, operand: Operand) -> str:
        if operand is None or isinstance(operand, str):
            return operand or ""
        if not isinstance(operand, TensorInfo):
            operand = np.asarray(operand)
            name = f"{self.outputs[0].name}/constant_{len(self.constants)}"
            operand = TensorInfo(name, str(operand.dtype), operand.shape, operand)
        if operand.constant is not None:
            self.constants[operand.name] = operand
        return operand.name


def operator(*kinds: str) -> Callable[[Rule], Rule]:
    """Register the function of MIL operators; its keyword-only parameters are constants."""

    def register(function: Rule) -> Rule:
        for kind in kinds:
            OPERATORS[kind] = function
        return function

    return register


def emit(
    kind: str, outputs: Sequence[TensorInfo], inputs: Mapping[str, Sequence[TensorInfo]]
) -> Emission:
    """Return the emission of one MIL operation; its nodes are checked against declared types.

    Args:
        kind: the operator's name.
        outputs: the declared outputs.
        inputs: the values bound to each input.
    """
    emission = Emission(kind, tuple(outputs))
    function = OPERATORS.get(kind)
    if function is None:
        raise emission.refusal(
            f"vklab has no MIL operator {kind!r}; {__name__}.OPERATORS lists "
            f"the {len(OPERATORS)} that it has"
        )
    call(emission, function, inputs)
    check(emission, [info for infos in inputs.values() for info in infos])
    return emission


def call(emission: Emission, function: Rule, inputs: Mapping[str, Sequence[TensorInfo]]) -> None:
    """Call an operator's function with inputs bound by name.

    Args:
        emission: the emission to fill.
        function: the operator's function; its signature is the operator's schema.
        inputs: the values bound to each input.
    """
    parameters = dict(list(inspect.signature(function).parameters.items())[1:])
    bound: dict[str, Any] = {}
    for name, infos in inputs.items():
        if name not in parameters:
            raise UnsupportedOperatorError(
                f"{emission.title} has an input {name!r}; vklab knows {', '.join(parameters)}"
            )
        if name in LISTS:
            bound[name] = tuple(infos)
            continue
        if len(infos) != 1:
            raise ModelError(f"{emission.title}: input {name!r} has {len(infos)} values, not 1")
        is_constant = parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        bound[name] = _plain(emission, name, infos[0]) if is_constant else infos[0]
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in bound:
            raise ModelError(f"{emission.title} lacks its input {name!r}")
    try:
        function(emission, **bound)
    except (
        TypeError,
        ValueError,
        IndexError,
        KeyError,
        AttributeError,
        OverflowError,
        ZeroDivisionError,
    ) as error:
        shown = {name: str(infos[0]) for name, infos in inputs.items() if infos}
        raise ModelError(
            f"{emission.title} has inputs that do not go together: {error}; {shown}"
        ) from error


def _plain(emission: Emission, name: str, info: TensorInfo) -> Any:
    """Return a constant as a number, text or tuple of them."""
    if info.constant is None:
        raise emission.refusal(f"input {name!r} is {info.name!r}, which is no constant")
    values = np.asarray(info.constant)
    if values.ndim > 1:
        raise ModelError(
            f"{emission.title}: input {name!r} has shape {values.shape}; it takes a "
            "scalar or a vector"
        )
    return values.item() if values.ndim == 0 else tuple(values.tolist())


def check(emission: Emission, inputs: Sequence[TensorInfo]) -> None:
    """Compare the declared outputs of an operation with what its nodes compute.

    Open dimensions, and operators that vklab has no kernels for, are not checked.

    Args:
        emission: the operation.
        inputs: the values that it reads.
    """
    infos = {info.name: info for info in (*inputs, *emission.constants.values())}
    if not all(info.is_static for info in (*infos.values(), *emission.outputs)):
        return
    computed = shapes_of(emission.nodes, infos, emission.title)
    for info in emission.outputs:
        made = computed.get(info.name)
        if made and (made.dtype, made.shape) != (info.dtype, info.shape):
            raise ModelError(f"{emission.title} declares {info}, but its inputs give {made}")


def shapes_of(
    nodes: Sequence[Node], infos: Mapping[str, TensorInfo], title: str
) -> Mapping[str, TensorInfo]:
    """Return infos of the values that nodes make; none if one of them has no kernel.

    Args:
        nodes: the nodes, in order.
        infos: the values that they read.
        title: the operation, for error messages.
    """
    constants = {name: info for name, info in infos.items() if info.constant is not None}
    given = tuple(info for info in infos.values() if info.constant is None)
    graph = Graph("operation", OPSET, tuple(nodes), given, (), constants, opsets={"": OPSET})
    try:
        return shapes.infer(graph).infos
    except UnsupportedOperatorError:
        return {}
    except ModelError as error:
        raise ModelError(f"{title}: {error}") from error
