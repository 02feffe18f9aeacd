"""Write the models of tests/models: the structure of small PyTorch models, without their weights.

    python tests/support/models/export_models.py [NAME ...]

Needs, beside what tests need: torch, onnxscript, torchvision, transformers. Each model is exported
by both of PyTorch's exporters, since both are met in the wild: NAME.onnx by the one built on
torch.export, NAME_script.onnx by the one built on TorchScript. Weights become shapes with a mean
and a deviation; `exported_models.load` makes values again.
"""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests/, for a run of this file

from support.models.exported_models import FOLDER
from support.models.torch_models import MODELS, Decoder, Pick, Source

STRIPPED_ELEMENTS = 256
# Open axes, and what divides them.
FACTORS = {"batch": 1, "sequence": 1, "past": 1, "total": 1, "height": 4, "width": 4}


def randomize(module: nn.Module) -> None:
    """Give every weight the scale of its inputs, and every factor and bias some spread."""
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        with torch.no_grad():
            if tensor.ndim > 1 and tensor.is_floating_point():
                is_table = "embed" in name or "wte" in name or "wpe" in name
                tensor.normal_(0, 0.5 if is_table else (2 / tensor[0].numel()) ** 0.5)
            elif tensor.is_floating_point() and "inv_freq" not in name:
                tensor.add_(0.1 * torch.randn_like(tensor))


def dynamic(source: Source, is_script: bool) -> dict[str, Any]:
    """Return how an exporter is told which axes are open."""
    if is_script:
        named = {**source.axes, **dict.fromkeys(source.outputs, {0: "batch"})}
        return {"dynamic_axes": named}
    dims = {
        name: factor * torch.export.Dim(name) if factor > 1 else torch.export.Dim(name)
        for name, factor in FACTORS.items()
    }
    shapes = [{axis: dims[name] for axis, name in source.axes[i].items()} for i in source.inputs]
    head = 3 if isinstance(source.module, Decoder) else 0  # what follows is variadic
    is_variadic = isinstance(source.module, (Pick, Decoder))
    return {"dynamic_shapes": (*shapes[:head], tuple(shapes[head:])) if is_variadic else shapes}


def export(source: Source, is_script: bool) -> onnx.ModelProto:
    """Return the model that one of the exporters makes."""
    target = io.BytesIO()
    more = dynamic(source, is_script)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = torch.onnx.export(
            source.module.eval(),
            tuple(source.inputs.values()),
            target if is_script else None,
            input_names=list(source.inputs),
            output_names=source.outputs,
            dynamo=not is_script,
            opset_version=17 if is_script else source.opset,
            verbose=False,
            **more,
        )
    return onnx.load_from_string(target.getvalue()) if is_script else made.model_proto


def parts(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and the bodies of its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from parts(attribute.g)


def strip(model: onnx.ModelProto, source: Source) -> onnx.ModelProto:
    """Replace weights by mean and deviation; drop what describes where nodes came from."""
    for value in model.graph.input:
        for axis, name in source.axes[value.name].items():
            value.type.tensor_type.shape.dim[axis].dim_param = name
    for graph in parts(model.graph):
        del graph.value_info[:], graph.metadata_props[:]
        for item in (*graph.node, *graph.input, *graph.output, *graph.initializer):
            del item.metadata_props[:]
            item.doc_string = ""
        for tensor in graph.initializer:
            array = numpy_helper.to_array(tensor)
            is_random = array.dtype == np.float32 and np.unique(array).size > 0.9 * array.size
            if array.size >= STRIPPED_ELEMENTS and is_random:
                tensor.ClearField("raw_data")
                tensor.ClearField("float_data")
                tensor.doc_string = f"normal {array.mean():.6g} {array.std():.6g}"
    del model.metadata_props[:], model.functions[:]
    return model


def main(names: list[str]) -> None:
    """Export the named models, or all."""
    FOLDER.mkdir(exist_ok=True)
    for name in names or MODELS:
        for is_script in (False, True):
            torch.manual_seed(0)
            source = MODELS[name]()
            randomize(source.module)
            target = FOLDER / f"{name}{'_script' if is_script else ''}.onnx"
            try:
                model = strip(export(source, is_script), source)
            except Exception as error:  # exporters raise what they like; the others are written
                print(f"{target.name}: not exported: {type(error).__name__}: {error}"[-400:])
                continue
            onnx.save(model, target)
            print(f"{target.name}: {len(model.graph.node)} nodes, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
