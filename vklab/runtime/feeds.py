"""Inputs of a run: names, dtypes and shapes, checked before any device sees the arrays.

Visited by lab 00.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vklab.errors import ModelError
from vklab.graph.graph import Graph
from vklab.ops.dtypes import OTHER_TYPES
from vklab.types import ANY_SHAPE, TensorInfo


def arrays(
    graph: Graph, inputs: tuple[Any, ...], bounds: Mapping[str, int] | None = None, last: Any = None
) -> dict[str, Any]:
    """Return one array per input by name, in the graph's order; overridden defaults follow.

    Args:
        graph: the model, for name, dtype and shape of each input and default.
        inputs: the arguments of `Session.run`: one mapping by name, or the arrays in order.
        bounds: the largest size of each open dimension, by name.
        last: a list that keeps names, shapes and dtypes that passed: equal ones need no check.

    Raises ModelError for a wrong name, number, dtype or shape.
    """
    given: Any = inputs[0] if len(inputs) == 1 else inputs
    infos, fed = graph.inputs, given
    seen = (
        [(n, a.shape, a.dtype) if type(a) is np.ndarray else 0 for n, a in given.items()]
        if last is not None and type(given) is dict
        else [0]
    )
    if seen and seen == last:
        return dict(given)
    if type(given) is dict or isinstance(given, Mapping):
        if given.keys() != {info.name for info in infos}:
            infos = _named(graph, given)
        given = [given[info.name] for info in infos]
    else:
        given = inputs
    if len(given) != len(infos):
        is_order = len(inputs) == 2 and isinstance(inputs[1], Mapping)  # that of ONNX Runtime
        hint = "; outputs are chosen by name: run(feeds, outputs=[...])" if is_order else ""
        raise ModelError(
            f"{len(given)} inputs are given, the model has {len(infos)}: "
            f"{', '.join(map(str, infos))}{hint}"
        )
    checked = [_check_array(info, value) for info, value in zip(infos, given, strict=True)]
    _check_sizes(infos, checked, bounds or {})
    if 0 not in seen and [*map(id, checked)] == [*map(id, fed.values())]:
        last[:] = seen  # the values are those given, in the graph's order
    return {info.name: value for info, value in zip(infos, checked, strict=True)}


def _named(graph: Graph, given: Mapping[str, Any]) -> tuple[TensorInfo, ...]:
    """Return the inputs and the overridden defaults; raise ModelError for wrong names."""
    infos = *graph.inputs, *(info for info in graph.defaults if info.name in given)
    names = {info.name for info in infos}
    if names == given.keys():
        return infos
    unknown, missing = sorted(given.keys() - names), sorted(names - given.keys())
    problems = [
        f"{found} are {words}"
        for found, words in ((unknown, "not known"), (missing, "missing"))
        if found
    ]
    fixed = [name for name in unknown if name in graph.initializers]
    hint = f"; to override {fixed}, load an ONNX file that lists them as inputs" if fixed else ""
    raise ModelError(
        f"inputs {', '.join(problems)}; the model has " + ", ".join(map(str, graph.inputs)) + hint
    )


def _check_sizes(
    infos: Sequence[TensorInfo], values: Sequence[Any], bounds: Mapping[str, int]
) -> None:
    """Raise ModelError if an open dimension has two sizes, or one above its upper bound."""
    sizes: dict[str, int] = {}
    for info, value in zip(infos, values, strict=True):
        if info.is_static or info.shape == ANY_SHAPE or info.dtype in OTHER_TYPES:
            continue
        for name, size in zip(info.shape, value.shape, strict=False):
            if isinstance(name, str) and sizes.setdefault(name, size) != size:
                raise ModelError(
                    f"dimension {name!r} is {sizes[name]} in one input and {size} in {info}"
                )
            if isinstance(name, str) and size > bounds.get(name, size):
                raise ModelError(
                    f"input {info} is given with {name!r} = {size}, above its upper "
                    f"bound {bounds[name]}; load the model with upper_bounds="
                    f"{ {**bounds, name: size} }, or pass less"
                )


def _check_array(info: TensorInfo, value: Any) -> Any:
    if info.dtype == "string":
        return np.asarray(value, object)
    if info.dtype in OTHER_TYPES:
        return value
    if not isinstance(value, np.ndarray):
        value = _as_array(info, value)
    if value.dtype != info.dtype:
        raise ModelError(
            f"input {info} is given as {value.dtype}; convert it with .astype(np.{info.dtype})"
        )
    if info.shape == ANY_SHAPE:
        return value
    sizes = zip(value.shape, info.shape, strict=False)
    fits = all(have == want or isinstance(want, str) for have, want in sizes)
    if not fits or len(value.shape) != len(info.shape):
        raise ModelError(f"input {info} is given with shape {value.shape}")
    return value


def _as_array(info: TensorInfo, value: Any) -> np.ndarray:
    """Convert a value without a dtype, such as a list of Python numbers, to an array."""
    try:
        # A tensor of PyTorch that requires gradients, or is on a GPU, does not convert itself.
        value = value.detach().cpu() if hasattr(value, "detach") else value
        is_foreign = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
        array = np.from_dlpack(value) if is_foreign else np.asarray(value)
    except (ValueError, TypeError, RuntimeError, BufferError) as error:
        hint = "; copy it to the host, for example with .cpu()" * hasattr(value, "__dlpack__")
        raise ModelError(f"input {info} cannot be converted to an array: {error}{hint}") from error
    if array.dtype == object:
        raise ModelError(f"input {info} is given as {type(value).__name__}, not as an array")
    plain = isinstance(value, (list, tuple, bool, int, float))
    if plain and np.can_cast(array.dtype, info.dtype, "same_kind"):
        return array.astype(info.dtype)
    return array
