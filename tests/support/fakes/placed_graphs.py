"""Graphs and devices for tests of placement: weights take no memory, devices are not there."""

from __future__ import annotations

import itertools
import random

import numpy as np

from support.fakes.fake_device import fake_device
from vklab.graph import shapes
from vklab.graph.graph import Graph, Node
from vklab.plan.place import placement
from vklab.plan.place.costs import DeviceCosts
from vklab.types import DeviceInfo, TensorInfo

EVEN = DeviceCosts(
    bytes_per_ns=100, flops_per_ns=100, thin_flops_per_ns=100, launch_ns=1000,
    link_bytes_per_ns=10, submit_ns=5000,
)  # fmt: skip


def machines(count: int) -> list[DeviceInfo]:
    """Return devices that differ in nothing but their names."""
    return [fake_device(index=number, name=f"GPU {number}") for number in range(count)]


def weight(name: str, rows: int, columns: int) -> TensorInfo:
    """Return a weight that takes no memory here."""
    value = np.broadcast_to(np.float32(0), (rows, columns))
    return TensorInfo(name, "float32", (rows, columns), value)


def network(
    layers: list[tuple[str, str, tuple[str, ...]]], size: int = 64, dtype: str = "float32"
) -> Graph:
    """Build a graph of (output, operator, reads) over [size, size]; w... are weights."""
    nodes = tuple(Node(out, op, reads, (out,)) for out, op, reads in layers)
    made = {out for out, _, _ in layers}
    read = dict.fromkeys(name for _, _, reads in layers for name in reads)
    weights = {name: weight(name, size, size) for name in read if name.startswith("w")}
    inputs = tuple(
        TensorInfo(name, dtype, (size, size))
        for name in read
        if name not in made and name not in weights
    )
    outputs = tuple(name for name in made if name not in read)
    return shapes.infer(Graph("network", 17, nodes, inputs, outputs, weights))


def chain(random_: random.Random, count: int) -> Graph:
    """Build a chain of products, Softmax and Relu with sizes of their own."""
    sizes = [64 * random_.randint(1, 8)]
    weights, nodes = {}, []
    for number in range(count):
        read = f"v{number - 1}" if number else "x"
        if random_.random() < 0.6:
            name = f"w{number}"
            weights[name] = weight(name, sizes[-1], 64 * random_.randint(1, 8))
            sizes.append(weights[name].dims[1])
            nodes.append(Node(f"n{number}", "MatMul", (read, name), (f"v{number}",)))
        else:
            kind = random_.choice(["Softmax", "Relu"])  # Relu is fused with what is before it
            nodes.append(Node(f"n{number}", kind, (read,), (f"v{number}",)))
    x = TensorInfo("x", "float32", (random_.randint(1, 600), sizes[0]))
    return shapes.infer(Graph("chain", 17, tuple(nodes), (x,), (f"v{count - 1}",), weights))


def random_costs(random_: random.Random) -> DeviceCosts:
    """Return a device of some other speed."""
    pick = random_.choice
    flops = pick([10, 100, 1000])
    return DeviceCosts(
        pick([5, 50, 500]),
        flops,
        flops / 4,
        pick([1000, 20000]),
        pick([1, 10]),
        pick([1000, 50000]),
    )


def runs(placed: placement.Placement) -> list[tuple[int, int]]:
    """Return (device, nodes) of each run along the order of nodes."""
    groups = itertools.groupby(placed.devices.values())
    return [(device, len(list(group))) for device, group in groups]


def network_with_shape(layers: list[tuple[str, str, tuple[str, ...]]]) -> Graph:
    """Build a network in which "shape" is the constant that Reshape takes."""
    target = TensorInfo("shape", "int64", (2,), np.array([64, 64]))
    nodes = tuple(Node(out, op, reads, (out,)) for out, op, reads in layers)
    read = {name for node in nodes for name in node.reads}
    weights = {name: weight(name, 64, 64) for name in sorted(read) if name.startswith("w")}
    if "shape" in read:
        weights["shape"] = target
    outputs = tuple(node.name for node in nodes if node.name not in read)
    x = TensorInfo("x", "float32", (64, 64))
    return shapes.infer(Graph("random", 17, nodes, (x,), outputs, weights))
