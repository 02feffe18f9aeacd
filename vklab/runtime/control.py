"""If, Loop and Scan: the host evaluates the control flow; each body is planned like any graph.

A body has a plan cache of its own, so its plans are kept between iterations. Visited by lab 09.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vklab import settings
from vklab.errors import ModelError
from vklab.graph import shapes
from vklab.graph.graph import Graph, Node
from vklab.runtime import declared
from vklab.runtime.plan_cache import PlanCache
from vklab.types import TensorInfo

RunBody = Callable[[PlanCache, dict[str, Any]], Mapping[str, Any]]


class Control:
    """Run one control node; a body reads its inputs and the outer values that it captures.

    Source: ONNX If-16, Loop-16 and Scan-16.

    Args:
        graph: the graph of the node alone, with the constants that it reads.
        bodies: the plan cache of each body, by attribute name.
        run_body: runs a body on its inputs and captured values, and returns its outputs by name.
    """

    def __init__(self, graph: Graph, bodies: Mapping[str, PlanCache], run_body: RunBody) -> None:
        self.graph = graph
        self.node: Node = graph.nodes[0]
        self.opset = graph.opset_of(self.node)
        self.bodies = bodies
        self._constants = {name: info.constant for name, info in graph.initializers.items()}
        self._run_body = run_body

    def run(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run the node, and return its outputs by name.

        Raises ModelError naming the node for inputs that do not fit its attributes or bodies.
        """
        step = {"If": self._if, "Loop": self._loop, "Scan": self._scan}[self.node.op_type]
        values = {**values, **self._constants}
        inputs = [values[name] if name else None for name in self.node.inputs]
        try:
            outputs = step(inputs, values)
        except (TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
            if hasattr(error, "__notes__"):  # a body's own error, which no input explains
                raise
            given = ", ".join(map(_described, inputs)) or "no inputs"
            raise ModelError(
                f"node {self.node.name!r} ({self.node.op_type}) cannot run with {given}: {error}"
            ) from error
        named = zip(self.node.outputs, outputs, strict=False)
        return declared.require(self.graph, {name: value for name, value in named if name})

    def close(self) -> None:
        """Free the programs of the bodies."""
        for body in self.bodies.values():
            body.close()

    def _body(self, name: str, inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Any]:
        if name not in self.bodies:
            raise ModelError(
                f"node {self.node.name!r} ({self.node.op_type}) has no attribute {name!r}"
            )
        body = self.bodies[name]
        graph = body.plan.graph
        if len(inputs) != len(graph.inputs):
            raise ModelError(
                f"node {self.node.name!r} ({self.node.op_type}): {name} takes "
                f"{len(graph.inputs)} inputs, {len(inputs)} are given"
            )
        scope = {capture: values[capture] for capture in graph.captures}
        for info, value in zip(graph.inputs, inputs, strict=True):
            scope[info.name] = value
        try:
            outputs = self._run_body(body, scope)
        except Exception as error:
            error.add_note(f"in {name} of node {self.node.name!r} ({self.node.op_type})")
            raise
        return [outputs[output] for output in graph.outputs]

    def _flag(self, value: Any) -> bool:
        if np.size(value) != 1:
            raise ModelError(f"node {self.node.name!r}: a condition is one bool, not {value!r}")
        return bool(np.reshape(value, ())[()])

    def _none(self, inputs: Sequence[Any], values: Mapping[str, Any], first: int) -> list[Any]:
        """Return the stacked outputs of a body, from the first one on, for no iteration.

        Their shapes are inferred; if that fails, a run of the body on `inputs` tells them.

        Args:
            inputs: what the body would take.
            values: the outer values by name.
            first: the number of the first output to return.
        """
        graph = self.bodies["body"].plan.graph
        names = [info.name for info in graph.inputs]
        known = {name: values[name] for name in graph.captures}
        known.update(zip(names, inputs, strict=True))
        try:
            given = [TensorInfo(n, str(v.dtype), v.shape) for n, v in known.items()]
            infos = shapes.infer(replace(graph, inputs=tuple(given))).infos
            made = [infos[name] for name in graph.outputs[first:]]
            return [np.zeros((0, *info.shape), info.dtype) for info in made]
        except (ModelError, AttributeError, KeyError, TypeError):  # a size is not known
            return [
                np.zeros((0, *value.shape), value.dtype)
                for value in self._body("body", inputs, values)[first:]
            ]

    def _if(self, inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Any]:
        branch = "then_branch" if self._flag(inputs[0]) else "else_branch"
        return self._body(branch, (), values)

    def _loop(self, inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Any]:
        limit = None if inputs[0] is None else int(np.reshape(inputs[0], ()))
        going = len(inputs) < 2 or inputs[1] is None or self._flag(inputs[1])
        carried = list(inputs[2:])
        collected: list[Any] = [[] for _ in self.node.outputs[len(carried) :]]
        number = 0
        while going and (limit is None or number < limit):
            if number >= int(settings.get("LOOP_LIMIT")):
                raise ModelError(
                    f"node {self.node.name!r} (Loop) has run {number} times, and its "
                    f"condition still holds (trip count: {limit}); VKLAB_LOOP_LIMIT "
                    "allows more turns"
                )
            condition = np.asarray(going)
            made = self._body("body", [np.asarray(number, np.int64), condition, *carried], values)
            going = self._flag(made[0])
            carried = made[1 : 1 + len(carried)]
            for rows, value in zip(collected, made[1 + len(carried) :], strict=False):
                rows.append(value)
            number += 1
        if collected and not number:
            collected = self._none(
                [np.asarray(0, np.int64), np.asarray(going), *carried], values, 1 + len(carried)
            )
        return [*carried, *map(_stack, collected)]

    def _scan(self, inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Any]:
        if self.opset < 9:
            return self._scan_batches(inputs, values)
        given = self.node.attributes
        count = int(given.get("num_scan_inputs", len(inputs)))
        states, scanned = list(inputs[: len(inputs) - count]), inputs[len(inputs) - count :]
        axes = given.get("scan_input_axes") or (0,) * count
        backwards = given.get("scan_input_directions") or (0,) * count
        rows = [
            np.moveaxis(value, axis, 0)[:: -1 if back else 1]
            for value, axis, back in zip(scanned, axes, backwards, strict=True)
        ]
        states, collected = self._steps(states, rows, values)
        out_axes = given.get("scan_output_axes") or (0,) * len(collected)
        out_back = given.get("scan_output_directions") or (0,) * len(collected)
        stacked = [
            _stack(parts[:: -1 if back else 1], axis)
            for parts, axis, back in zip(collected, out_axes, out_back, strict=True)
        ]
        return [*states, *stacked]

    def _scan_batches(self, inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Any]:
        """Run Scan as in opset 8, with a leading batch axis and optional sequence lengths.

        Source: ONNX Scan-8.
        """
        lengths, *rest = inputs
        given = self.node.attributes
        count = int(given.get("num_scan_inputs", len(rest)))
        backwards = given.get("directions") or (0,) * count
        results: list[list[Any]] = []
        if rest and not len(rest[0]):
            return self._scan_no_batch(rest, count, values)
        for number in range(len(rest[0]) if rest else 0):
            states = [value[number] for value in rest[: len(rest) - count]]
            end = None if lengths is None else int(lengths[number])
            rows = [
                value[number][:end][:: -1 if back else 1]
                for value, back in zip(rest[len(rest) - count :], backwards, strict=True)
            ]
            states, collected = self._steps(states, rows, values)
            results.append([*states, *map(_stack, collected)])
        return [np.stack(column) for column in zip(*results, strict=True)]

    def _scan_no_batch(
        self, inputs: Sequence[Any], count: int, values: Mapping[str, Any]
    ) -> list[Any]:
        """Return the outputs of a Scan of opset 8 for an empty batch: no elements, all dimensions.

        Args:
            inputs: the states, then the scanned inputs.
            count: the number of scanned inputs.
            values: the outer values by name.
        """
        items = [np.zeros(value.shape[1:], value.dtype) for value in inputs]
        states, rows = items[: len(items) - count], items[len(items) - count :]
        states, collected = self._steps(states, [row[:0] for row in rows], values)
        shapes_of = [
            *(value.shape for value in states),
            *((len(rows[0]), *value.shape[1:]) for value in collected),
        ]
        made = zip(shapes_of, [*states, *collected], strict=True)
        return [np.zeros((0, *shape), value.dtype) for shape, value in made]

    def _steps(
        self, states: list[Any], rows: Sequence[np.ndarray], values: Mapping[str, Any]
    ) -> tuple[list[Any], list[Any]]:
        lengths = {len(row) for row in rows}
        if len(lengths) != 1:
            raise ModelError(
                f"node {self.node.name!r} (Scan): the scanned inputs have lengths "
                f"{sorted(lengths)}; they must agree"
            )
        count = lengths.pop()
        collected: list[Any] = [[] for _ in self.node.outputs[len(states) :]]
        if collected and not count:
            items = [np.zeros(row.shape[1:], row.dtype) for row in rows]
            collected = self._none([*states, *items], values, len(states))
        for number in range(count):
            items = [np.array(row[number], order="C") for row in rows]
            made = self._body("body", [*states, *items], values)
            states = made[: len(states)]
            for parts, value in zip(collected, made[len(states) :], strict=False):
                parts.append(value)
        return states, collected


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return "an input left out" if value is None else f"a {type(value).__name__}"


def _stack(parts: Sequence[Any] | np.ndarray, axis: int = 0) -> Any:
    """Stack the values of all iterations along a new axis; `_none` gives an array along axis 0."""
    return np.moveaxis(parts, 0, axis) if isinstance(parts, np.ndarray) else np.stack(parts, axis)
