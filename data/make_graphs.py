"""Record the graphs of five known networks, without their weights, for labs 09 to 13.

    python data/make_graphs.py

Needs, beside what the other scripts need: torchvision 0.28 and transformers. Each network is
exported twice, with another batch and another size. A dimension that differs between the two
exports depends on the batch or on the size; the metadata of the file says which.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any

import checksums
import onnx
import torch
from torch import nn

from vklab.apps.compare.models.exporting import quiet, strip_metadata

FOLDER = checksums.DATA / "graphs"
# Tensors with more elements are weights: the file holds their shapes only.
MOST_ELEMENTS = 64
# Batches and sizes of the two exports.
IMAGES, TEXTS = ((1, 2), (224, 320)), ((2, 3), (128, 320))


class UNet(nn.Module):
    """U-Net: four scales down, four up, with a skip connection at each.

    Source: Ronneberger, Fischer and Brox 2015; with padding, so that sizes are halved exactly.
    """

    CHANNELS = (64, 128, 256, 512, 1024)

    def __init__(self) -> None:
        super().__init__()
        wide = self.CHANNELS
        pairs = list(itertools.pairwise(wide))
        self.down = nn.ModuleList(map(self._twice, (3, *wide[:-1]), wide))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairs[::-1])
        self.up = nn.ModuleList(self._twice(b, a) for a, b in pairs[::-1])
        self.last = nn.Conv2d(wide[0], 2, 1)

    @staticmethod
    def _twice(before: int, after: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1),
            nn.ReLU(),
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return two scores a pixel."""
        kept: list[torch.Tensor] = []
        x = image
        for number, block in enumerate(self.down):
            x = block(x if number == 0 else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        for grow, block in zip(self.grow, self.up, strict=True):
            x = block(torch.cat([kept[-2], grow(x)], 1))
            kept.pop()
        return self.last(x)


class Bert(nn.Module):
    """BERT base without its pooled output; all four inputs are given, so none is a constant."""

    INPUTS = ("tokens", "kinds", "positions", "mask")

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        config = BertConfig(attn_implementation="eager")
        self.model = BertModel(config, add_pooling_layer=False)

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        """Return a vector for each token."""
        tokens, kinds, positions, mask = given
        return self.model(
            tokens,
            token_type_ids=kinds,
            position_ids=positions,
            attention_mask=mask,
            use_cache=False,
        ).last_hidden_state


def networks() -> Iterable[tuple[str, nn.Module]]:
    """Yield the name and the module of each network."""
    from torchvision import models

    yield "resnet50", models.resnet50()
    yield "inception_v1", models.googlenet(init_weights=False, aux_logits=False)
    yield "shufflenet_v2", models.shufflenet_v2_x1_0()
    yield "unet", UNet()
    yield "bert_base", Bert()


def export(module: nn.Module, batch: int, size: int) -> onnx.ModelProto:
    """Return a module as ONNX, with the shapes of all values and without metadata."""
    names = list(Bert.INPUTS) if isinstance(module, Bert) else ["image"]
    example = (
        torch.zeros(batch, 3, size, size)
        if names == ["image"]
        else torch.zeros(batch, size, dtype=torch.int64)
    )
    with quiet():
        program = torch.onnx.export(
            module.eval(),
            (example,) * len(names),
            None,
            input_names=names,
            output_names=["output"],
            opset_version=18,
            dynamo=True,
            verbose=False,
        )
    model = program.model_proto
    strip_metadata(model)
    return model


def shapes_of(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Return the shape of every value that a node makes, and of the inputs."""
    infos = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    return {
        info.name: tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim) for info in infos
    }


def axes_of(
    one: Mapping[str, tuple[int, ...]],
    other: Mapping[str, tuple[int, ...]],
    exports: tuple[tuple[int, int], tuple[int, int]],
) -> dict[str, str]:
    """Return a letter for each axis: N for the batch, S for the size, a dot for a fixed one."""

    def letter(first: int, second: int) -> str:
        if first == second:
            return "."
        for letter, (a, b) in zip("NS", exports, strict=True):
            if first * b == second * a:
                return letter
        raise ValueError(f"{first} becomes {second}: that is neither the batch nor the size")

    return {name: "".join(map(letter, shape, other[name])) for name, shape in one.items()}


def without_weights(model: onnx.ModelProto) -> list[str]:
    """Turn the weights of a model into inputs; return their names."""
    graph, weights = model.graph, []
    kept = []
    for tensor in graph.initializer:
        elements = 1
        for dim in tensor.dims:
            elements *= dim
        if elements <= MOST_ELEMENTS:
            kept.append(tensor)
            continue
        weights.append(tensor.name)
        graph.input.append(
            onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
    known = [info for info in graph.value_info if info.name not in weights]
    for field, items in ((graph.initializer, kept), (graph.value_info, known)):
        copies = [type(item).FromString(item.SerializeToString()) for item in items]
        del field[:]
        field.extend(copies)
    return weights


def record(module: nn.Module) -> onnx.ModelProto:
    """Return the graph of a network with the axes of its values."""
    exports = TEXTS if isinstance(module, Bert) else IMAGES
    model, other = (export(module, *each) for each in zip(*exports, strict=True))
    pairs = list(zip(model.graph.node, other.graph.node, strict=True))
    if any(one.op_type != two.op_type for one, two in pairs):
        raise ValueError("another batch or size gives other nodes")
    names = {info.name: info.name for info in model.graph.input}
    names |= {a: b for one, two in pairs for a, b in zip(one.output, two.output, strict=True)}
    first, second = shapes_of(model), shapes_of(other)
    shapes = {value: first[value] for value in names}
    axes = axes_of(shapes, {value: second[names[value]] for value in names}, exports)
    facts: dict[str, Any] = {"weights": without_weights(model), "axes": axes}
    onnx.helper.set_model_props(model, {k: json.dumps(v) for k, v in facts.items()})
    return model


def main() -> None:
    """Write the graphs and their checksums; print their sizes."""
    FOLDER.mkdir(exist_ok=True)
    torch.manual_seed(0)
    for name, module in networks():
        model = record(module)
        onnx.checker.check_model(model)
        file = FOLDER / f"{name}.onnx"
        file.write_bytes(model.SerializeToString(deterministic=True))
        checksums.update(f"graphs/{file.name}")
        print(f"{file.name:20} {file.stat().st_size:8} bytes, {len(model.graph.node)} nodes")


if __name__ == "__main__":
    main()
