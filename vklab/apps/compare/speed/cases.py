"""Cases of the benchmark: each model is built in a child, and written once for all runners.

The expected outputs are those of ONNX Runtime on the CPU in float32. The work that is
counted is what no implementation of the same algorithm can avoid: Winograd does fewer operations.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from vklab.apps.compare.models import catalogue, graphs
from vklab.apps.compare.speed.runners.runner import Case
from vklab.base import worker
from vklab.base.worker import Failure
from vklab.runtime import host

Shapes = dict[str, tuple[int, ...]]
AT_ONCE = 6  # models that are built at the same time


def counted(model: onnx.ModelProto) -> tuple[int, int]:
    """Return floating-point operations, and the bytes of weights, inputs and outputs.

    A multiply-add counts as two operations. Open dimensions count as 1.
    """
    shapes = _shapes(model)
    flops = sum(_flops(node, shapes) for node in model.graph.node)
    constants = {tensor.name for tensor in model.graph.initializer}
    size = sum(_tensor_bytes(tensor) for tensor in model.graph.initializer)
    ends = [*(v for v in model.graph.input if v.name not in constants), *model.graph.output]
    for value in ends:
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        size += prod(shapes.get(value.name, ())) * dtype.itemsize
    return flops, size


def _tensor_bytes(tensor: onnx.TensorProto) -> int:
    return prod(tensor.dims) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def _shapes(model: onnx.ModelProto) -> Shapes:
    """Return the shape of every value that ONNX's shape inference knows."""
    light = onnx.ModelProto()
    light.CopyFrom(_without_weights(model))
    graph = onnx.shape_inference.infer_shapes(light).graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        shapes[value.name] = tuple(dim.dim_value or 1 for dim in dims)
    return shapes


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with its large initializers as inputs: inference copies what it is given."""
    light = onnx.ModelProto(ir_version=model.ir_version)
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    light.graph.name = model.graph.name
    light.graph.node.extend(model.graph.node)
    light.graph.output.extend(model.graph.output)
    light.graph.value_info.extend(model.graph.value_info)
    large = {t.name for t in model.graph.initializer if prod(t.dims) > 64}
    light.graph.input.extend(v for v in model.graph.input)
    known = {v.name for v in model.graph.input}
    for tensor in model.graph.initializer:
        if tensor.name not in large:
            light.graph.initializer.append(tensor)
        elif tensor.name not in known:
            light.graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    return light


def _flops(node: onnx.NodeProto, shapes: Shapes) -> int:
    """Return the operations of a product or convolution; 0 for another node."""
    made = prod(shapes.get(node.output[0], (0,)))
    second = shapes.get(node.input[1], ()) if len(node.input) > 1 else ()
    if node.op_type in ("Conv", "ConvTranspose"):
        first = shapes.get(node.input[0], (1,))
        terms = prod(second[1:])  # of one output of a convolution, of one input of a transposed one
        return 2 * terms * (made if node.op_type == "Conv" else prod(first))
    if node.op_type == "MatMul" and second:
        return 2 * made * second[-2 if len(second) > 1 else 0]
    if node.op_type == "Gemm" and second:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        return 2 * made * second[1 if attributes.get("transB") else 0]
    return 0


def make_all(
    names: Sequence[str], folder: Path, seconds: float
) -> Iterator[tuple[str, Case | Failure]]:
    """Yield each model's name with its case, or with the reason why there is none.

    All are built before the first is yielded, so that no building disturbs a measurement.

    Args:
        names: names of models, or paths of .onnx files.
        folder: folder for the files.
        seconds: time limit of each.
    """

    def made(name: str) -> Case | Failure:
        own = folder / f"{len(name)}-{Path(name).name}"
        own.mkdir(parents=True, exist_ok=True)
        try:
            return make(name, own, seconds)
        except Failure as failure:
            return failure

    with ThreadPoolExecutor(min(AT_ONCE, os.cpu_count() or 1)) as pool:
        yield from zip(names, list(pool.map(made, names)), strict=True)


def make(name: str, folder: Path, seconds: float) -> Case:
    """Write the files of one model, in a child.

    Args:
        name: name of the model, or path of an .onnx file.
        folder: folder for the files.
        seconds: time limit.

    Raises Failure.
    """
    flops, size = worker.once(_write, name, folder, seconds=seconds)
    given = Path(name) if name.endswith(".onnx") else None
    module = folder / "module.pt"
    return Case(
        given.stem if given else name,
        given.absolute() if given else folder / "model.onnx",
        folder / "inputs.npz",
        folder / "expected.npz",
        module if module.exists() else None,
        flops,
        size,
        catalogue.is_operator(name),
    )


def _write(state: dict[str, Any], name: str, folder: Path) -> tuple[int, int]:
    """Write model, inputs and expected outputs; return operations and bytes.

    Args:
        state: the child's dict.
        name: as in `make`.
        folder: folder for the files.
    """
    if name.endswith(".onnx"):
        model = onnx.load(name)
        given: dict[str, Any] = graphs.sample_inputs(model)
        np.savez(folder / "inputs.npz", **given)
    else:
        catalogue.write(name, folder)
        model = onnx.load(folder / "model.onnx")
    with np.load(folder / "inputs.npz") as stored:
        inputs = {key: stored[key] for key in stored.files}
    expected: dict[str, Any] = host.Reference(model).run(inputs)
    np.savez(folder / "expected.npz", **expected)
    return counted(model)
