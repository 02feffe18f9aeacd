"""Models split over lavapipe and SwiftShader: for tests that run in a process with both drivers."""

from __future__ import annotations

import glob
import itertools
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from onnx import helper

import vklab
from support.graphs.small_models import DATA, model, random_array, value
from support.models import exported_models, light_models
from vklab.apps.compare.models import graphs as bench_models
from vklab.plan import plan as plans
from vklab.plan.options import Facts
from vklab.runtime import host, open_devices
from vklab.types import Dispatch, TensorInfo
from vklab.vulkan import api

NAMES = [info.name for info in vklab.devices()]
# The devices, by the drivers of a machine without a GPU, unless TWO_DEVICES names two others.
BOTH = [int(index) for index in os.environ.get("TWO_DEVICES", "").split(",") if index] or [
    next(i for i, name in enumerate(NAMES) if driver in name)
    for driver in ("llvmpipe", "SwiftShader")
]
LAVAPIPE, SWIFTSHADER = BOTH
LABELS = {index: f"{index}: {NAMES[index]}" for index in BOTH}


def pins(names: Sequence[str], pieces: int = 2) -> dict[str, int]:
    """Pin nodes in pieces of equal length, by turns on one device and on the other."""
    return {
        glob.escape(name): BOTH[place * pieces // len(names) % 2]
        for place, name in enumerate(names)
    }


def cheapest(session: vklab.Session, fed: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Pin to SwiftShader, which is slow, the run of nodes with the least work for its dispatches.

    It has a quarter of the dispatches and some: at the cut, nodes are no longer fused. Dispatches
    are counted in its own plan, since a node may take several, on each device another number.
    """
    places = {node.name: place for place, node in enumerate(session.graph.nodes)}
    infos = {n: TensorInfo(n, str(array.dtype), array.shape) for n, array in fed.items()}
    (chunk,) = plans.make_plan(
        session.graph, infos, [vklab.devices()[SWIFTSHADER]], facts=Facts(evaluate=host.evaluate)
    ).chunks
    # Work and dispatches by the last node of what is fused.
    work, dispatches, place = Counter[int](), Counter[int](), 0
    for label, step in zip(chunk.nodes, chunk.steps, strict=True):
        place = max((places[name] for name in label.split(" + ") if name in places), default=place)
        if isinstance(step, Dispatch):
            work[place] += step.flops + step.size_bytes
            dispatches[place] += 1
    ends, whole = sorted(work), dispatches.total()
    fewest = whole // 4 + whole // 20 + 2  # the cuts take some of them, and add to the others'
    windows = []
    for first in range(len(ends)):
        sums = itertools.accumulate(dispatches[end] for end in ends[first:])
        length = next((n for n, count in enumerate(sums, 1) if count >= fewest), 0)
        windows += [ends[first : first + length]] if length else []
    window = min(windows, key=lambda window: sum(map(work.__getitem__, window)))
    span = range(window[0], window[-1] + 1)
    return {glob.escape(name): BOTH[place in span] for name, place in places.items()}


def node_names(source: Any) -> list[str]:
    """Return the names of a model's nodes as a session knows them."""
    with vklab.load(source, LAVAPIPE) as session:
        return [node.name for node in session.graph.nodes]


def split(source: Any, pieces: int = 2, **more: Any) -> vklab.Session:
    """Load a model on both devices, cut in pieces."""
    return vklab.load(source, devices=BOTH, place=pins(node_names(source), pieces), **more)


def case(name: str) -> tuple[Any, dict[str, np.ndarray]]:
    """Return a model by name and inputs for it."""
    if name == "digits":
        return DATA / "digits_cnn.onnx", {"image": np.load(DATA / "digits.npz")["images"][:7]}
    if name in exported_models.NAMES:
        proto = exported_models.load(name)
        return proto, exported_models.inputs_of(proto, exported_models.sizes_of(name)[0])
    is_light = name in light_models.NAMES
    proto = with_logits(light_models.build(name)) if is_light else bench_models.build(name)
    (given,) = proto.graph.input
    shape = [axis.dim_value or 1 for axis in given.type.tensor_type.shape.dim]
    return proto, {given.name: random_array(shape)}


def with_logits(proto: Any) -> Any:
    """Return a classifier that tells what its Softmax reads as well.

    With random weights one class may have all the probability: then it hides what went wrong.
    """
    last = proto.graph.node[-1]
    if last.op_type == "Softmax":
        proto.graph.output.append(helper.make_empty_tensor_value_info(last.input[0]))
    return proto


def diamond() -> tuple[Any, dict[str, np.ndarray]]:
    """Return two branches that meet, with a second input and an output on the way."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "a"),
        helper.make_node("MatMul", ["a", "w"], ["b"], "b"),
        helper.make_node("Softmax", ["a"], ["c"], "c"),
        helper.make_node("Mul", ["c", "z"], ["d"], "d"),
        helper.make_node("Add", ["b", "d"], ["e"], "e"),
        helper.make_node("Sigmoid", ["e"], ["f"], "f"),
    ]
    shapes = [value("x", ("n", 8)), value("z", ("n", 8))]
    proto = model(nodes, shapes, ["f", "b"], {"w": random_array((8, 8))})
    return proto, {"x": random_array((3, 8), 1), "z": random_array((3, 8), 2)}


DIAMOND = {"a": LAVAPIPE, "b": LAVAPIPE, "[cd]": SWIFTSHADER, "e": LAVAPIPE, "f": SWIFTSHADER}


def outputs_of(source: Any, fed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return what one device makes of it."""
    with vklab.load(source, LAVAPIPE) as session:
        return session.run(fed)


def differs(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> float:
    """Return the largest difference, relative to the largest value of each output."""
    assert one.keys() == other.keys()
    return max(
        float(np.abs(other[name].astype(float) - array).max() / max(np.abs(array).max(), 1e-9))
        for name, array in one.items()
    )


@contextmanager
def nothing_left() -> Iterator[None]:
    """Fail if anything is alive on any device when the block has ended."""
    yield
    open_devices.close_all()
    assert api.live_handles() == {}, api.live_handles()
