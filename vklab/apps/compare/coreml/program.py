"""Convert an ML Program to a Graph whose values keep MIL's names. Pure; no coremltools.

Each operator of MIL becomes ONNX nodes that round once, to the operator's declared type. Core ML
itself fixes neither accumulation nor fusion.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vklab.apps.compare.coreml import emission, package, values
from vklab.apps.compare.coreml.network import neural_network
from vklab.apps.compare.coreml.package import Package
from vklab.base.names import SEPARATOR
from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.graph import graph as graphs
from vklab.graph.graph import Graph, Node
from vklab.types import TensorInfo


def import_package(path: Path | str) -> Graph:
    """Return the Graph of an .mlpackage or .mlmodel: an ML Program or a NeuralNetwork.

    Raises FileNotFoundError, ModelError for a damaged package, and UnsupportedOperatorError for
    what vklab does not run.
    """
    opened = package.open_package(path)
    kind = opened.model.WhichOneof("kind")
    if kind not in ("mlProgram", "neuralNetwork"):
        raise UnsupportedOperatorError(
            f"{path} is a model of type {kind or 'unknown'}; vklab runs mlProgram and neuralNetwork"
        )
    is_program = kind == "mlProgram"
    graph = import_program(opened) if is_program else neural_network.import_network(opened)
    for name in (name for name in graph.names() if SEPARATOR in name):
        raise ModelError(
            f"{path}: the name {name!r} has the character {SEPARATOR!r}, which stands "
            "in the names of what vklab makes; convert the model with another name"
        )
    return graph


def import_program(opened: Package) -> Graph:
    """Return the Graph of an opened package with an ML Program."""
    opened.warn_unused()
    name, function, block = _main(opened)
    scope: dict[str, TensorInfo] = {}
    inputs = []
    for given in function.inputs:
        info = values.declared(given, f"function {name!r}")
        _define(scope, info, f"function {name!r}")
        inputs.append(info)
    nodes: list[Node] = []
    constants: dict[str, TensorInfo] = {}
    for number, operation in enumerate(block.operations):
        made = _operation(operation, number, scope, opened)
        nodes += made.nodes
        constants |= made.constants
        for info in made.outputs:
            _define(scope, made.results.get(info.name, info), made.title)
    return _graph(opened, nodes, tuple(inputs), tuple(block.outputs), constants, scope)


def _main(opened: Package) -> tuple[str, Any, Any]:
    """Return name, function and block of the program that a model runs by default."""
    functions = opened.model.mlProgram.functions
    name = opened.model.description.defaultFunctionName or "main"
    if name not in functions:
        raise ModelError(
            f"{opened.path}: the program has no function {name!r}; it has {sorted(functions)}"
        )
    function = functions[name]
    blocks = function.block_specializations
    if function.opset not in blocks:
        raise ModelError(
            f"{opened.path}: function {name!r} has no block for its opset "
            f"{function.opset!r}; blocks: {sorted(blocks)}"
        )
    block = blocks[function.opset]
    if not block.outputs or block.inputs:
        raise ModelError(
            f"{opened.path}: the block of function {name!r} has {len(block.inputs)} "
            f"inputs and {len(block.outputs)} outputs; the function has the inputs"
        )
    return name, function, block


def _define(scope: dict[str, TensorInfo], info: TensorInfo, owner: str) -> None:
    if not info.name or info.name in scope:
        raise ModelError(
            f"{owner}: value {info.name!r} "
            + ("is already defined" if info.name else "has no name")
        )
    scope[info.name] = info


def _operation(
    operation: Any, number: int, scope: Mapping[str, TensorInfo], opened: Package
) -> emission.Emission:
    """Return the emission of one operation, whose inputs are in scope."""
    where = f"operation {number} ({operation.type})"
    if not operation.outputs:
        raise ModelError(f"{where} has no outputs")
    outputs = [values.declared(each, where) for each in operation.outputs]
    made = emission.Emission(operation.type, tuple(outputs))
    if operation.blocks:
        raise made.refusal("control flow; vklab runs programs of one block")
    if operation.type == "const":
        if "val" not in operation.attributes:
            raise ModelError(f"{made.title} has no value")
        info = _constant(operation.attributes["val"], made.y.name, made.title, opened)
        if (info.dtype, info.shape) != (made.y.dtype, made.y.shape):
            raise ModelError(f"{made.title} declares {made.y}, its value is {info}")
        made.results[made.y.name] = info
        return made
    inputs = {
        name: [
            _bound(binding, f"{made.outputs[0].name}/{name}_{i}", made, scope, opened)
            for i, binding in enumerate(argument.arguments)
        ]
        for name, argument in sorted(operation.inputs.items())
    }
    if operation.type.startswith("constexpr_"):  # before iOS 18, their inputs are attributes
        for name, value in operation.attributes.items():
            if name != "name":
                owner = f"{made.title}, attribute {name!r}"
                inputs[name] = [_constant(value, f"{outputs[0].name}/{name}", owner, opened)]
    return emission.emit(operation.type, outputs, inputs)


def _bound(
    binding: Any,
    name: str,
    made: emission.Emission,
    scope: Mapping[str, TensorInfo],
    opened: Package,
) -> TensorInfo:
    """Return the value that an input is bound to: one in scope, or a constant of its own."""
    kind = binding.WhichOneof("kind")
    if kind == "name":
        if binding.name not in scope:
            raise ModelError(f"{made.title} reads {binding.name!r}, which nothing before it makes")
        return scope[binding.name]
    if kind != "value":
        raise ModelError(f"{made.title}: input {name!r} is bound to nothing")
    return _constant(binding.value, name, f"{made.title}, input {name!r}", opened)


def _constant(value: Any, name: str, owner: str, opened: Package) -> TensorInfo:
    array = values.read(value, opened, owner)
    dtype = "string" if array.dtype == object else str(array.dtype)
    return TensorInfo(name, dtype, array.shape, array)


def _graph(
    opened: Package,
    nodes: list[Node],
    inputs: tuple[TensorInfo, ...],
    outputs: tuple[str, ...],
    constants: dict[str, TensorInfo],
    scope: dict[str, TensorInfo],
) -> Graph:
    """Return the graph, without the constants that only the importer read."""
    for name in outputs:
        if name not in scope:
            raise ModelError(f"{opened.path}: output {name!r} is made by no operation")
        if scope[name].constant is not None:
            constants[name] = scope[name]
    read = {name for node in nodes for name in node.reads} | set(outputs)
    kept = {name: _contiguous(info) for name, info in constants.items() if name in read}
    known = [info.name for info in inputs] + list(kept)
    ordered = graphs.topological_order(nodes, known)
    return Graph(
        opened.path.stem,
        emission.OPSET,
        ordered,
        inputs,
        outputs,
        kept,
        {info.name: info for info in (*inputs, *kept.values())},
        {"": emission.OPSET},
    )


def _contiguous(info: TensorInfo) -> TensorInfo:
    array = np.ascontiguousarray(info.constant)
    return TensorInfo(info.name, info.dtype, array.shape if info.shape else (), array)
