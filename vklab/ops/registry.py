"""Register operators by a decorator, and call the one that a node means.

An operator is a function whose parameters are the ONNX schema: positional parameters are inputs
(TensorInfo, or None if left out), keyword-only parameters are attributes with ONNX's defaults.
Visited by lab 09.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vklab.base.protocols import Size
from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.body import Expansion
from vklab.ops.once import LONG
from vklab.types import Dispatch, TensorInfo

# Workgroups along x before a long grid continues along y: GRID_WIDTH of shaders/lib/index.slang.
GRID_WIDTH = 32768
WORKGROUP = 256
_UNEXPECTED = (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError)


@dataclass(frozen=True)
class Result:
    """Hold everything that an operator decides: outputs, dispatches and scratch tensors.

    An output either has a constant, is a view (`views` maps its number to the number of the
    input whose memory it shares), is written by one of the dispatches, or has no elements. If the
    size of an output depends on data, its info has the upper bound, and `trims` (output, axis,
    scratch int32[1]) names the scratch that will hold the true size along an axis. `inputs` are
    the tensors that the dispatches read, if the result was reused from an equal node.
    """

    outputs: tuple[TensorInfo, ...]
    dispatches: tuple[Dispatch, ...] = ()
    scratch: tuple[TensorInfo, ...] = ()
    views: tuple[tuple[int, int], ...] = ()
    trims: tuple[tuple[int, int, TensorInfo], ...] = ()
    inputs: tuple[TensorInfo | None, ...] = ()


Answer = Result | Expansion


@dataclass(frozen=True)
class Operator:
    """Describe one registered function: op_type, first valid opset, and schema."""

    op_type: str
    since: int
    function: Callable[..., Answer]
    inputs: tuple[str, ...]
    required: tuple[int, ...]
    variadic: bool
    attributes: Mapping[str, Any]
    types: Mapping[str, str]
    domain: str = ""


OPERATORS: dict[tuple[str, str], list[Operator]] = {}


def operator(
    op_type: str, since: int = 1, domain: str = ""
) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Return a decorator that registers a function as an operator.

    Args:
        op_type: the ONNX op_type.
        since: the first opset for which the function is valid.
        domain: the operator's domain; "" for ONNX's own.
    """

    def register(function: Callable[..., Answer]) -> Callable[..., Answer]:
        parameters = inspect.signature(function).parameters.values()
        positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        entry = Operator(
            op_type=op_type,
            since=since,
            function=function,
            inputs=tuple(p.name for p in positional),
            required=tuple(
                i
                for i, p in enumerate(positional)
                if p.default is p.empty and not str(p.annotation).endswith("| None")
            ),
            variadic=any(p.kind is p.VAR_POSITIONAL for p in parameters),
            attributes={p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY},
            types={
                p.name: str(p.annotation).removesuffix(" | None")  # int, Sequence[int] ...
                for p in parameters
                if p.kind is p.KEYWORD_ONLY and p.annotation is not p.empty
            },
            domain=domain,
        )
        versions = OPERATORS.setdefault((domain, op_type), [])
        versions.append(entry)
        versions.sort(key=lambda item: item.since, reverse=True)
        return function

    return register


def find(op_type: str, opset: int, domain: str = "") -> Operator:
    """Return the registered version for an opset; UnsupportedOperatorError if there is none.

    Args:
        op_type: the ONNX op_type.
        opset: the version of the domain's operator set that the model imports.
        domain: the operator's domain; "" for ONNX's own.
    """
    for entry in OPERATORS.get((domain, op_type), []):
        if entry.since <= opset:
            return entry
    where = f" of domain {domain!r}" if domain else ""
    raise UnsupportedOperatorError(f"operator {op_type}{where} (opset {opset}) has no kernel")


def apply(
    op_type: str,
    inputs: Sequence[TensorInfo | None],
    attributes: Mapping[str, Any],
    opset: int,
    domain: str = "",
    label: str = "",
    output_count: int = 1,
) -> Answer:
    """Return an operator's outputs and dispatches for given inputs and attributes.

    Every error names the node, the operator and the inputs. An unexpected Python exception becomes
    UnsupportedOperatorError: a reason to run the node on the host.

    Args:
        op_type: the ONNX op_type.
        inputs: the node's inputs; None for an input that is left out.
        attributes: the node's attributes by name.
        opset: the version of the domain's operator set that the model imports.
        domain: the operator's domain; "" for ONNX's own.
        label: the node's name, for errors.
        output_count: the node's number of outputs, for operators with a keyword of this name.
    """
    try:
        entry = find(op_type, opset, domain)
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        _check_inputs(entry, given)
        checked = _check_attributes(entry, attributes)
        if "output_count" in entry.attributes:
            checked["output_count"] = output_count
        return entry.function(*given, **checked)
    except ModelError as error:
        error.args = (f"{_shown(op_type, inputs, label)}: {error}",)
        raise
    except _UNEXPECTED as error:
        raise UnsupportedOperatorError(
            f"{_shown(op_type, inputs, label)} cannot be planned: {type(error).__name__}: {error}"
        ) from error


def _shown(op_type: str, inputs: Sequence[TensorInfo | None], label: str) -> str:
    given = ", ".join("-" if info is None else str(info) for info in inputs)
    return f"node {label!r} ({op_type}({given}))"


def _check_inputs(entry: Operator, given: list[TensorInfo | None]) -> None:
    missing = [entry.inputs[i] for i in entry.required if i >= len(given) or given[i] is None]
    if missing:
        raise ModelError(f"input {missing[0]} is missing")
    if len(given) > len(entry.inputs) and not entry.variadic:
        raise ModelError(f"takes {len(entry.inputs)} inputs, but {len(given)} are given")


def _check_attributes(entry: Operator, given: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in given.items():
        if name not in entry.attributes:
            raise UnsupportedOperatorError(f"attribute {name}={value!r} is not supported")
        wanted = entry.types.get(name, "")
        if wanted and not _is_of_type(value, wanted):
            raise ModelError(f"attribute {name}={value!r} must be of type {wanted}")
    for name, default in entry.attributes.items():
        if default is inspect.Parameter.empty and name not in given:
            raise ModelError(f"attribute {name} is missing")
    return dict(given)


def _is_of_type(value: Any, wanted: str) -> bool:
    if wanted.startswith("Sequence["):
        item = wanted[len("Sequence[") : -1]
        # Only of the first elements: a list of a file has one type, and trees have long lists.
        kinds = {kind for kind in set(map(type, value[:LONG])) if not issubclass(kind, Size)}
        return isinstance(value, tuple) and {kind.__name__ for kind in kinds} <= {item}
    return isinstance(value, Size) or type(value).__name__ == wanted


def output(dtype: str, shape: Sequence[int], constant: Any = None) -> TensorInfo:
    """Return the description of a new tensor; the graph names it.

    Args:
        dtype: the dtype.
        shape: the shape in elements.
        constant: the value as an array, if it is known before the run.
    """
    dims = tuple(dim if isinstance(dim, int) else int(dim) for dim in shape)  # NumPy's integers
    return TensorInfo("", dtype, dims, constant)


def grid(count: int) -> tuple[int, int, int]:
    """Return the workgroups of a long one-dimensional grid, in x and y."""
    if count <= GRID_WIDTH:
        return (count, 1, 1)
    return (GRID_WIDTH, -(-count // GRID_WIDTH), 1)
