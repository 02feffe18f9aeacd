"""Forms of one model: what is given on the command line, the exported ONNX file, the inputs.

Torch runs in a child: its export may fail in any way, and only a row should notice.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from vklab.apps.compare import models
from vklab.apps.compare.backend import ModelSource, Steps
from vklab.apps.compare.coreml import program
from vklab.apps.compare.judging import steps
from vklab.apps.compare.models import catalogue
from vklab.apps.compare.models import inputs as graph_inputs
from vklab.apps.compare.onnxruntime import models as onnxruntime_models
from vklab.apps.compare.torch import backend as torch
from vklab.apps.compare.truth import oracle
from vklab.base import draw, worker
from vklab.errors import ModelError
from vklab.graph import onnx_import
from vklab.runtime import host
from vklab.runtime.tolerances import Tolerance

SEED = 0
PACKAGES = (".mlpackage", ".mlmodel")


def of_text(text: str) -> ModelSource:
    """Return the source that a command names.

    That is an .onnx file, a Core ML package, a model of the catalogue, or a factory.
    """
    path = Path(text)
    if path.suffix in PACKAGES:
        if not path.exists():
            raise FileNotFoundError(f"there is no package {path}")
        return ModelSource(path.stem, package=path.absolute())
    if path.suffix == ".onnx" or path.exists():
        if not path.is_file():
            raise FileNotFoundError(f"there is no model file {path}")
        return ModelSource(path.stem, onnx=path.absolute())
    if text in models.MODELS:
        return ModelSource(text, factory=models.factory(text))
    if catalogue.is_known(text):
        return ModelSource(text, named=True)
    module, colon, function = text.partition(":")
    if not (colon and module.replace(".", "").isidentifier() and function.isidentifier()):
        raise ModelError(
            f"{text!r} is no model: give an .onnx file, an .mlpackage, a PyTorch "
            "factory as MODULE:FUNCTION, or a name among "
            f"{', '.join(catalogue.names())}"
        )
    return ModelSource(function, factory=text)


def _export(state: dict[str, Any], factory: str, path: Path, open_batch: bool) -> dict[str, Any]:
    modules = torch.load_modules()
    facts: dict[str, Any] = modules.export(factory, path, modules.OPSET, open_batch)
    return facts


def _build(state: dict[str, Any], name: str, folder: Path) -> None:
    catalogue.write(name, folder)


def exported(
    source: ModelSource, folder: Path, seconds: float, open_batch: bool = False
) -> tuple[ModelSource, list[str]]:
    """Return the source with its ONNX form, and sentences on its export.

    Args:
        source: the model.
        folder: folder for the file.
        seconds: time limit.
        open_batch: whether the first dimension should be open, if the module allows it.

    Raises worker.Failure.
    """
    if source.onnx:
        return source, []
    if source.named:
        worker.once(_build, source.name, folder, seconds=seconds)
        return replace(source, onnx=folder / "model.onnx"), []
    if not source.factory:
        return _of_package(source, folder, seconds)
    path, notes = folder / f"{source.name}.onnx", []
    try:
        facts = worker.once(_export, source.factory, path, open_batch, seconds=seconds)
    except worker.Failure as failure:
        if not open_batch:
            raise
        notes.append(f"the batch dimension cannot be opened: {failure.reason}")
        facts = worker.once(_export, source.factory, path, False, seconds=seconds)
    if facts["opset"] != facts["asked"]:
        notes.append(f"opset {facts['asked']} was asked for, {facts['opset']} obtained")
    notes.append(
        f"exported to ONNX opset {facts['opset']}: {facts['nodes']} nodes, "
        f"{draw.bytes_text(facts['bytes'])}, accepted by onnx's checker"
    )
    if facts["shapes"]:
        notes.append(f"onnx's shape inference refuses the export: {facts['shapes']}")
    return replace(source, onnx=path), notes


def _write_package(state: dict[str, Any], source: ModelSource, path: Path) -> None:
    assert source.package is not None
    onnx.save(host.to_proto(program.import_package(source.package)), path)


def program_of(source: ModelSource, path: Path, seconds: float) -> onnx.ModelProto:
    """Write the program of a Core ML package as an ONNX file, and return it.

    Args:
        source: the model with its package.
        path: file to write.
        seconds: time limit.
    """
    worker.once(_write_package, source, path, seconds=seconds)
    return onnx.load(path)


def _of_package(source: ModelSource, folder: Path, seconds: float) -> tuple[ModelSource, list[str]]:
    """Return a Core ML package with the ONNX form of its program, operator by operator.

    Args:
        source: the model; without a package it is returned as it is.
        folder: folder for the file.
        seconds: time limit.
    """
    if source.package is None:
        return source, []
    path = folder / f"{source.name}.onnx"
    program_of(source, path, seconds)
    note = (
        "the oracle is the package's program in float64, with the weights that the package "
        "stores; without the PyTorch source nobody knows the weights before rounding"
    )
    return ModelSource(source.name, "", path, source.package), [note]


def proto_of(source: ModelSource) -> onnx.ModelProto:
    """Return the ONNX form with its external data inside."""
    if source.onnx is None:
        raise ModelError(f"{source.name} has no ONNX form, of which the oracle is made")
    proto, folder = onnx_import.load_proto(source.onnx)
    return onnxruntime_models.inside(proto, folder)


def computes_in(proto: onnx.ModelProto) -> str:
    """Return "float16" for a model with weights or casts of that dtype, else "float32"."""
    half = TensorProto.FLOAT16
    stored = any(tensor.data_type == half for tensor in proto.graph.initializer)
    casts = any(
        item.name == "to" and item.i == half
        for node in proto.graph.node
        for item in node.attribute
        if node.op_type == "Cast"
    )
    return "float16" if stored or casts else "float32"


def _examples(state: dict[str, Any], source: ModelSource) -> dict[str, np.ndarray]:
    modules = torch.load_modules()
    module, tensors = modules.make(source.factory)
    names = modules.parameter_names(module, len(tensors))
    if source.onnx is not None:
        names = graph_inputs.names(onnx.load(source.onnx, load_external_data=False))
    return {name: tensor.detach().numpy() for name, tensor in zip(names, tensors, strict=True)}


def examples(source: ModelSource, seconds: float) -> dict[str, np.ndarray]:
    """Return the example tensors of the factory by the names of the model's inputs."""
    made: dict[str, np.ndarray] = worker.once(_examples, source, seconds=seconds)
    return made


def inputs_of(source: ModelSource, file: Path | None, seconds: float) -> dict[str, np.ndarray]:
    """Return the inputs of a report: of a file, of the factory, or random ones of a seed.

    Args:
        source: the model.
        file: an .npz with an array for each input.
        seconds: time limit.
    """
    if file is not None:
        return read_inputs(file)
    if source.factory:
        return examples(source, seconds)
    return random_inputs(proto_of(source))


def read_inputs(file: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file by name; ModelError for a damaged one."""
    try:
        with np.load(file, allow_pickle=False) as loaded:
            return {name: loaded[name] for name in loaded.files}
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no input file {file}") from None
    except (ValueError, EOFError, OSError, AttributeError, zipfile.BadZipFile) as error:
        raise ModelError(f"{file} is no .npz file of inputs: {error}") from error


def require_inputs(source: ModelSource, inputs: Mapping[str, np.ndarray]) -> None:
    """Raise ModelError unless there is an array for each input of the model, and no other."""
    wanted = graph_inputs.names(proto_of(source))
    if {*wanted} != {*inputs}:
        raise ModelError(
            f"the inputs are {', '.join(inputs) or 'none'}, the model has {', '.join(wanted)}"
        )


def random_inputs(proto: onnx.ModelProto, seed: int = SEED) -> dict[str, np.ndarray]:
    """Return inputs of a seed: normal numbers, and 0 or 1 for integers; open sizes are 1."""
    return graph_inputs.drawn(proto, np.random.default_rng(seed), 2)


def _truth(
    state: dict[str, Any], source: ModelSource, inputs: Mapping[str, np.ndarray]
) -> oracle.Oracle:
    proto = proto_of(source)
    if not source.factory:
        return oracle.of_graph(proto, inputs)
    module, _ = torch.load_modules().make(source.factory)
    return oracle.of_module(module, proto, inputs)


def _deviation(
    state: dict[str, Any], source: ModelSource, inputs: Mapping[str, np.ndarray],
    layers: Mapping[str, np.ndarray], given: Steps,
) -> dict[str, float]:  # fmt: skip
    return steps.deviation(proto_of(source), inputs, layers, given)


def tolerance_of(
    source: ModelSource, inputs: Mapping[str, np.ndarray], truth: oracle.Oracle,
    given: Steps, seconds: float,
) -> Tolerance:  # fmt: skip
    """Return the tolerance of an 8-bit form of the model: the noise of its steps, followed.

    Args:
        source: the model.
        inputs: arrays by input name.
        truth: the oracle.
        given: the steps.
        seconds: time limit.

    Raises worker.Failure where the model has no values in float64.
    """
    made = worker.once(_deviation, source, inputs, truth.layers, given, seconds=seconds)
    return steps.allowed(made, truth.outputs)


def truth(
    source: ModelSource, inputs: Mapping[str, np.ndarray], seconds: float
) -> tuple[oracle.Oracle, str]:
    """Return the oracle and a note: the module in float64, else the widened graph.

    Args:
        source: the model.
        inputs: arrays by input name.
        seconds: time limit.

    Raises worker.Failure where there is no oracle at all.
    """
    try:
        return worker.once(_truth, source, inputs, seconds=seconds), ""
    except worker.Failure as failure:
        if not source.factory:
            raise
        alone = ModelSource(source.name, "", source.onnx, source.package)
        found = worker.once(_truth, alone, inputs, seconds=seconds)
        return found, f"the module has no float64 form ({failure.reason})"
