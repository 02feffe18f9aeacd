"""Plans of the small models of data/ and of the benchmark, for a device that is not there."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from support.fakes.fake_device import fake_device
from support.graphs.small_models import DATA
from support.models import exported_models
from vklab.apps.compare.models import graphs
from vklab.graph import onnx_import, passes, shapes
from vklab.graph.graph import Graph
from vklab.plan import capability, partition
from vklab.plan import plan as plans
from vklab.plan.chunk import Chunk
from vklab.plan.options import Facts, Options
from vklab.plan.partition import Needed
from vklab.plan.place import placement
from vklab.plan.plan import Plan
from vklab.plan.tuning import tune
from vklab.runtime import host, plan_cache
from vklab.types import DeviceInfo, TensorInfo

# Places nodes as a plan does, whose kernels are cut and tuned for each device.
place = functools.partial(
    placement.place, refusal=functools.partial(capability.refusal, tune=tune.adapt)
)
# Models that are planned whole; those of `exported_models.NAMES` are, too.
NAMES = ["digits_cnn", "mini_classifier", "mnist12", "mlp", "conv_few"]


@functools.cache
def proto_of(name: str) -> onnx.ModelProto:
    path = DATA / f"{name}.onnx"
    return onnx.load(path) if path.exists() else graphs.build(name)


def plan_of(proto: onnx.ModelProto, info: DeviceInfo | None = None, **sizes: int) -> Plan:
    """Return the plan of a model in one chunk; open dimensions are 1 or as given."""
    graph = onnx_import.load_graph(proto)
    bound = shapes.bind(graph, dict.fromkeys(shapes.unknown_dims(graph), 1) | sizes)
    return plan_graph(passes.run(shapes.infer(bound)), info)


@functools.cache
def whole(name: str) -> tuple[Graph, dict[str, np.ndarray]]:
    """Return a model of NAMES or `exported_models.NAMES` as it is imported, and its inputs."""
    if name in NAMES:
        return onnx_import.load_graph(proto_of(name)), graphs.sample_inputs(proto_of(name))
    proto = exported_models.load(name)
    arrays = exported_models.inputs_of(proto, exported_models.sizes_of(name)[0])
    return onnx_import.load_graph(proto), arrays


def plan_whole(name: str, infos: Sequence[DeviceInfo], options: Options | None = None) -> Plan:
    """Return the plan of such a model as a session makes it."""
    graph, arrays = whole(name)
    inputs = {value: plan_cache.describe(value, array) for value, array in arrays.items()}
    return plans.make_plan(graph, inputs, infos, options, Facts(evaluate=host.evaluate))


def plan_graph(graph: Graph, info: DeviceInfo | None = None, facts: Facts | None = None) -> Plan:
    """Return the plan of a shaped graph, after the passes, in one chunk."""
    info = info or fake_device()
    chunk = plans.lower_rewritten(Chunk(0, graph), info, facts)
    return Plan(graph, (info,), chunks=(chunk,))


def next_chunk(
    graph: Graph, inputs: Mapping[str, TensorInfo], info: DeviceInfo | None = None
) -> tuple[Chunk, Graph] | Needed:
    """Return what `partition` decides first for a device on which every kernel can be had."""
    require = functools.partial(
        capability.require, kernel_refusal=lambda dispatch: "", tune=tune.adapt
    )
    return partition.next_chunk(graph, inputs, [info or fake_device()], host.evaluate, require)
