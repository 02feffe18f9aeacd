"""Arrays of a traced plan: known values that depend on sizes, such as shapes and masks.

Code that plans may read an element, which is then a size, or compute another array: the trace
records the call. Where it reads more, the trace fixes the whole value. Visited by lab 11.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from vklab.base.protocols import Values
from vklab.graph.graph import Graph, Node

# A larger array never decides a plan by single elements.
MOST_ELEMENTS = 64


class TracedArray(NDArrayOperatorsMixin, Values):
    """An array that the trace computes.

    Attributes:
        trace: the trace.
        name: the variable in the trace.
        value: the array for which the plan is made.
        most: the array at the upper bounds.
        parts: the elements, if they are known as sizes.

    Args:
        trace: as the attribute.
        name: as the attribute.
        value: as the attribute.
        most: as the attribute.
        parts: as the attribute; None if they are not known.
    """

    def __init__(
        self, trace: Any, name: str, value: np.ndarray, most: np.ndarray,
        parts: Sequence[Any] | None = None,
    ) -> None:  # fmt: skip
        self.trace, self.name, self.value, self.most, self.parts = trace, name, value, most, parts
        self.dtype, self.ndim = value.dtype, value.ndim

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Return NumPy's type, so that `isinstance(value, np.ndarray)` holds."""
        return np.ndarray

    @functools.cached_property
    def shape(self) -> tuple[Any, ...]:
        """Return the shape; an axis that has another size at the bounds has a size of the trace."""
        number, name = self.trace.number, self.name
        self.trace.guard(f"{name}.ndim == {self.ndim}", self.ndim == self.most.ndim)
        pairs = zip(self.value.shape, self.most.shape, strict=True)
        return tuple(number(f"{name}.shape[{axis}]", *pair) for axis, pair in enumerate(pairs))

    @property
    def size(self) -> Any:
        """Return the number of elements."""
        return functools.reduce(lambda a, b: a * b, self.shape, 1)

    @property
    def nbytes(self) -> Any:
        """Return the bytes of all elements."""
        return self.size * self.dtype.itemsize

    @property
    def flat(self) -> Any:
        """Return the elements in one axis."""
        return self if self.ndim == 1 else self.reshape(-1)

    @property
    def T(self) -> Any:
        """Return the array with its axes reversed."""
        return self.transpose()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.value, name)  # AttributeError as for an array
        if name.startswith("__") or not callable(method):
            raise AttributeError(name)
        return functools.partial(self.trace.call, _method, name, self)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self.trace.fixed(self), dtype)

    def __array_function__(
        self, function: Callable[..., Any], types: Any, given: Sequence[Any], more: Any
    ) -> Any:
        if function is np.may_share_memory:
            return True
        return self.trace.call(function, *given, **more)

    def __array_ufunc__(
        self, function: Callable[..., Any], method: str, *given: Any, **more: Any
    ) -> Any:
        return self.trace.call(
            function if method == "__call__" else getattr(function, method), *given, **more
        )

    def __len__(self) -> int:
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist()) if self.ndim == 1 else (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        if self.parts is not None and type(index) is int:
            return self.parts[index]
        return self.trace.call(_item, self, index)

    def __bool__(self) -> bool:
        return bool(self.trace.call(bool, self))

    def __int__(self) -> Any:
        return self.item()

    def __float__(self) -> float:
        return float(self.trace.fixed(self))

    def __hash__(self) -> int:
        return id(self)

    def tolist(self) -> Any:
        """Return the elements in lists; those of a small array of integers are sizes."""
        if self.parts is not None:
            return list(self.parts)
        if self.dtype.kind not in "iu" or self.value.size > MOST_ELEMENTS:
            return self.trace.fixed(self).tolist()
        if self.ndim == 0:
            return self.item()
        return [self[i].tolist() if self.ndim > 1 else self[i] for i in range(len(self))]

    def tobytes(self) -> list[Any]:
        """Return what is not hashable, so that no cache keeps what it has for the elements."""
        return [self]


def _method(name: str, array: np.ndarray, *given: Any, **more: Any) -> Any:
    return getattr(array, name)(*given, **more)


def _item(array: np.ndarray, index: Any) -> Any:
    return array[index]


def evaluate(
    host: Callable[..., Sequence[Any]], node: Node, graph: Graph, values: Sequence[Any]
) -> Sequence[Any]:
    """Compute a node on the host; the trace computes it again for other sizes.

    Args:
        host: computes a node on the host.
        node: the node.
        graph: its graph.
        values: its inputs.
    """
    traced = next((value for value in values if type(value) is TracedArray), None)
    if traced is None:
        return host(node, graph, values)
    meaning = (node.op_type, node.domain, graph.opset_of(node), _text(node.attributes))
    compute = traced.trace.shared(meaning, lambda: _Folded(host, node, graph))
    return [traced.trace.call(compute, number, *values) for number in range(len(node.outputs))]


def _text(attributes: Mapping[str, Any]) -> str:
    tensors = any(isinstance(value, np.ndarray) for value in attributes.values())
    return f"{id(attributes)}" if tensors else repr(sorted(attributes.items()))


class _Folded:
    """A node that a template computes on the host, once for each size."""

    def __init__(self, host: Callable[..., Sequence[Any]], node: Node, graph: Graph) -> None:
        self._given = host, node, graph

    def __call__(self, number: int, *values: Any) -> Any:
        host, node, graph = self._given
        return host(node, graph, values)[number]
