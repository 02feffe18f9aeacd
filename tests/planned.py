"""Plans of the small models of data/ and of vklab.bench, for a device that is not there."""

from __future__ import annotations

import functools

import onnx
from fake_device import fake_device
from small_models import DATA

from vklab.bench import models
from vklab.graph import onnx_import, passes, shapes
from vklab.plan.plan import Plan, make_plan
from vklab.types import DeviceInfo

NAMES = ["digits_cnn", "mini_classifier", "mnist12", "mlp", "conv_few"]


@functools.cache
def proto_of(name: str) -> onnx.ModelProto:
    path = DATA / f"{name}.onnx"
    return onnx.load(path) if path.exists() else models.build(name)


def plan_of(proto: onnx.ModelProto, info: DeviceInfo | None = None, **sizes: int) -> Plan:
    graph = onnx_import.load_graph(proto)
    bound = shapes.bind(graph, dict.fromkeys(shapes.unknown_dims(graph), 1) | sizes)
    return make_plan(passes.run(shapes.infer(bound)), info or fake_device())
