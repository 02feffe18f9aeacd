"""Facts of a Core ML model, read without coremltools: on any system, nothing is loaded or run."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vklab.apps.compare.coreml import package

UNITS = {
    "ALL": "CPU, GPU and Neural Engine; Core ML chooses for each operator (the default)",
    "CPU_AND_GPU": "no Neural Engine; also for sizes that change with each input",
    "CPU_AND_NE": "no GPU, which stays free for graphics; macOS 13 or later",
    "CPU_ONLY": "the CPU alone; the reference of the other three",
}
"""Units that each choice permits, by its name. A permitted unit may stay unused."""

Limits = tuple[tuple[int, int], ...]  # the smallest and the largest size of each axis
_DTYPES = {65552: "float16", 65568: "float32", 65600: "float64", 131080: "int8", 131104: "int32"}


_MIL_FLOAT16 = 10  # of the enumeration DataType of MIL.proto


@dataclass(frozen=True)
class Feature:
    """One input or output.

    Attributes:
        name: its name.
        dtype: of its elements, or the kind of what is no array.
        shape: its default shape.
        flexible: the sizes allowed beside it, as "32..64" or as whole shapes; empty if fixed.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    flexible: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """Contents of a Core ML model.

    Attributes:
        kind: "mlProgram", "neuralNetwork" or the name of another type.
        version: the specification's version; it tells which systems run the model.
        opset: the operator set of an ML Program, for example "CoreML7"; "" for other types.
        inputs: the inputs.
        outputs: the outputs.
        operators: the count of each operator or layer type, constants left out.
        weight_bytes: bytes of the weight files; of the model file if weights are inside of it.
        size_bytes: bytes of all files.
    """

    kind: str
    version: int
    opset: str
    inputs: tuple[Feature, ...]
    outputs: tuple[Feature, ...]
    operators: dict[str, int]
    weight_bytes: int
    size_bytes: int


def inspect(path: Path | str) -> Facts:
    """Return the facts of an .mlpackage or .mlmodel.

    Raises FileNotFoundError, and ModelError for a damaged package.
    """
    opened = package.open_package(path)
    model = opened.model
    kind = model.WhichOneof("kind") or "unknown"
    functions = [model.mlProgram.functions[name] for name in sorted(model.mlProgram.functions)]
    size, weights = _bytes(opened.path)
    return Facts(
        kind,
        model.specificationVersion,
        functions[0].opset if functions else "",
        tuple(_feature(each) for each in model.description.input),
        tuple(_feature(each) for each in model.description.output),
        _operators(model, functions),
        weights,
        size,
    )


def computes_in(path: Path | str) -> str:
    """Return "float32" for an ML Program without float16 values, else "float16".

    Core ML computes a NeuralNetwork in float16 where a permitted unit prefers that.
    """
    model = package.open_package(path).model
    functions = model.mlProgram.functions
    blocks = [
        block for name in functions for block in functions[name].block_specializations.values()
    ]
    kinds = {
        output.type.tensorType.dataType
        for block in blocks
        for operation in block.operations
        for output in operation.outputs
    }
    return "float32" if blocks and _MIL_FLOAT16 not in kinds else "float16"


def limits(path: Path | str) -> dict[str, tuple[Limits, ...]]:
    """Return the shapes that a package allows, by input of open size: one of them must hold.

    The program's own types say only that a size is open.
    """
    found: dict[str, tuple[Limits, ...]] = {}
    for each in package.open_package(path).model.description.input:
        array = each.type.multiArrayType
        shapes = [
            tuple((size, size) for size in given.shape) for given in array.enumeratedShapes.shapes
        ]
        ranges = tuple((size.lowerBound, size.upperBound) for size in array.shapeRange.sizeRanges)
        if shapes or any(low != high for low, high in ranges):
            found[each.name] = tuple(shapes) or (ranges,)
    return found


def allows(allowed: Sequence[Limits], shape: Sequence[int]) -> bool:
    """Tell whether a shape is one of those that `limits` returns; -1 is no upper limit."""
    return any(
        len(each) == len(shape)
        and all(
            low <= size and (high < 0 or size <= high)
            for size, (low, high) in zip(shape, each, strict=True)
        )
        for each in allowed
    )


def _bytes(path: Path) -> tuple[int, int]:
    files = [each for each in [path, *path.rglob("*")] if each.is_file()]
    weights = [each for each in files if each.parent.name == "weights"] or (
        files if path.is_file() else []
    )
    return (
        sum(each.stat().st_size for each in files),
        sum(each.stat().st_size for each in weights),
    )


def _operators(model: Any, functions: list[Any]) -> dict[str, int]:
    counts: collections.Counter[str] = collections.Counter()
    for function in functions:
        for name in function.block_specializations:
            counts.update(_types(function.block_specializations[name]))
    counts.update(layer.WhichOneof("kind") or "unknown" for layer in model.neuralNetwork.layers)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _types(block: Any) -> list[str]:
    """Return the operator types of a block and of the blocks inside of it."""
    found = [operation.type for operation in block.operations if operation.type != "const"]
    for operation in block.operations:
        for inner in operation.blocks:
            found += _types(inner)
    return found


def _feature(description: Any) -> Feature:
    array = description.type.multiArrayType
    if not description.type.HasField("multiArrayType"):
        return Feature(description.name, "no array", ())
    dtype = _DTYPES.get(array.dataType, f"type {array.dataType}")
    if array.enumeratedShapes.shapes:
        allowed = tuple(str(tuple(each.shape)) for each in array.enumeratedShapes.shapes)
    else:
        ranges = array.shapeRange.sizeRanges
        sizes = tuple(
            f"{each.lowerBound}..{'' if each.upperBound < 0 else each.upperBound}"
            if each.upperBound != each.lowerBound
            else str(each.lowerBound)
            for each in ranges
        )
        allowed = sizes if any(".." in size for size in sizes) else ()
    return Feature(description.name, dtype, tuple(array.shape), allowed)
