"""Transfers between devices: plain facts, a student's paths in the runtime, a traced split.

The runtime is asked in a process of its own. Two described GPUs stand for real ones where a plan is
only made; lavapipe and SwiftShader are two devices for a real run. Visited by lab 13b.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import vklab
from vklab.graph.graph import Graph
from vklab.plan import arenas, storage
from vklab.plan.chunk import Chunk, Transfer
from vklab.plan.options import Options, PlacementOptions
from vklab.plan.place import transfer_paths
from vklab.types import DeviceInfo, MemoryType, TensorInfo
from vklab.vulkan import dma_buf, host_memory
from vklab_course import words
from vklab_course.children.run_limited import run_limited
from vklab_course.data import data
from vklab_course.piece import Given, Piece
from vklab_labs.lab_13.second_device import second_device
from vklab_labs.shared import machines, swapped

__all__ = ["PAIRS", "TRANSFER_PATHS", "facts_of", "guarded", "halves", "lent_devices",
           "load_in_halves", "spread", "traced_split"]  # fmt: skip

PAST_THE_HOST = ("dma-buf", "ring")
PATHS = (*PAST_THE_HOST, "opaque fd", "device group", "shared host", "host copy", "nothing")
# Memory types of a GPU without ReBAR: none is both device-local and visible to the host.
DISCRETE = (("device_local", 1), ("host_visible host_coherent", 6),
            ("host_visible host_coherent host_cached", 14))  # fmt: skip
SECONDS = 120.0

_GPU: dict[str, Any] = {"uuid": "a", "group": None, "offers": (), "direct": False,
                        "element_bytes": 4}  # fmt: skip
_OTHER, _CPU = _GPU | {"uuid": "b"}, {"direct": True}
_HOST: dict[str, Any] = {"offers": ("host_import",)}
_DMA: dict[str, Any] = {"offers": ("dma_export", "dma_import", "host_import")}
# Pairs of devices by the facts that decide over a path.
PAIRS = {
    "two GPUs that share nothing": (_GPU, _OTHER),
    "two GPUs, host import": (_GPU | _HOST, _OTHER | _HOST),
    "two GPUs, host import and dma-buf": (_GPU | _DMA, _OTHER | _DMA),
    "a GPU and a CPU driver, host import": (_GPU | _HOST, _OTHER | _HOST | _CPU),
    "two CPU drivers, host import": (_GPU | _HOST | _CPU, _OTHER | _HOST | _CPU),
}

Choose = Callable[[Mapping[str, Any], Mapping[str, Any], int], tuple[str, int]]


def facts_of(info: DeviceInfo, dtype: str = "float32", size_bytes: int = 1 << 24) -> dict[str, Any]:
    """Return what decides over the path of a value, as plain data.

    Args:
        info: the device.
        dtype: the value's type.
        size_bytes: the value's size on the host.
    """
    offers = []
    if host_memory.EXTENSION in info.extensions:
        offers.append("host_import")
    if info.extensions.issuperset(dma_buf.EXTENSIONS):
        offers += ["dma_export", "dma_import"]
    return {
        "uuid": info.uuid,
        "group": None,
        "offers": tuple(offers),
        "direct": arenas.writes_in_place(info, size_bytes),
        "element_bytes": np.dtype(storage.stored_dtype(dtype, info)).itemsize,
    }


def lent_devices(*extensions: str) -> tuple[DeviceInfo, DeviceInfo]:
    """Return two described GPUs with memory of their own, which offer these extensions."""
    info = vklab.devices()[0]
    types = tuple(MemoryType(0, frozenset(names.split()), bits) for names, bits in DISCRETE)
    one, other = (
        replace(
            info,
            index=number,
            name=f"GPU {number}",
            type="discrete",
            memory_types=types,
            uuid=f"{number:02}",
            extensions=frozenset(extensions),
        )
        for number in range(2)
    )
    return one, other


def spread(**switches: str) -> dict[str, Any]:
    """Return arguments of `run_swapped`: two described GPUs, and what else the process sees.

    Without a second device no model runs, and a graph is planned only.

    Args:
        switches: settings of the runtime, by the names of their environment variables.
    """
    variables = second_device()
    return {
        "models": () if variables is None else swapped.MODELS,
        "load": load_in_halves,
        "infos": lent_devices(host_memory.EXTENSION),
        "options": _halved,
        "variables": {**(variables or {}), **switches},
    }


def halves(names: Sequence[str], devices: Sequence[int]) -> dict[str, int]:
    """Return the device of each node: the first half of the nodes on the first device.

    Args:
        names: names of the nodes in order; patterns in the result match one name each.
        devices: the numbers of two devices.
    """
    return {glob.escape(name): devices[2 * n // len(names)] for n, name in enumerate(names)}


def _halved(graph: Graph) -> Options:
    pins = halves([node.name for node in graph.nodes], (0, 1))
    return Options(placement=PlacementOptions(pins=pins))


def load_in_halves(file: str) -> vklab.Session:
    """Load a model whose halves run on two devices, the default device first."""
    with vklab.load(file) as session:
        names = [node.name for node in session.graph.nodes]
        first = session.device.index
    second = next(
        info.index for info in vklab.devices() if not info.refusal and info.index != first
    )
    return vklab.load(file, devices=[first, second], place=halves(names, (first, second)))


def guarded(choose_path: Choose) -> Callable[..., frozenset[str]]:
    """Return a function with the signature of `unseen` that asks a student's function.

    It raises AssertionError for a path that the two devices do not have.

    Args:
        choose_path: the student's function: facts of both devices, and elements -> (path, bytes).
    """

    def unseen(
        graph: Graph, stages: Sequence[Chunk], moves: Sequence[Transfer],
        devices: Sequence[DeviceInfo],
    ) -> frozenset[str]:  # fmt: skip
        return _verified(choose_path, graph, stages, moves, devices)

    return unseen


def _verified(
    choose_path: Choose, graph: Graph, stages: Sequence[Chunk], moves: Sequence[Transfer],
    devices: Sequence[DeviceInfo],
) -> frozenset[str]:  # fmt: skip
    """Ask for each value that crosses; raise AssertionError for a path that cannot be."""
    kept: dict[str, bool] = {}
    for move in moves:
        info = graph.infos[move.value]
        numbers = stages[move.source or 0].device, stages[move.target].device
        if not move.size_bytes or move.value in graph.outputs:
            kept[move.value] = False
        if numbers[0] == numbers[1]:
            kept.setdefault(move.value, True)
            continue
        ends = [facts_of(devices[n], info.dtype, move.size_bytes) for n in numbers]
        got = choose_path(ends[0], ends[1], info.count)
        pair = isinstance(got, tuple | list) and len(got) == 2 and isinstance(got[0], str)
        assert pair, f"{move.value}: {words.short(got)} is no (path, bytes)"
        path = got[0]
        assert path in PATHS, f"{move.value}: {words.short(path)} is no path of the table"
        wanted = path in PAST_THE_HOST
        able = not (ends[0]["direct"] or ends[1]["direct"])
        assert able or path != "ring", f"{move.value}: a ring needs device memory at both ends"
        same = ends[0]["element_bytes"] == ends[1]["element_bytes"]
        assert same or not wanted, f"{move.value}: only the host changes the size of elements"
        kept[move.value] = kept.get(move.value, True) and wanted and able
    return frozenset(name for name, keep in kept.items() if keep)


def traced_split(model: str, feed: Mapping[str, Any]) -> tuple[list[tuple[Any, ...]], str]:
    """Split a model over two devices; return (lane, words, start, end, kind) of each span in us.

    Args:
        model: a file of `data/`.
        feed: the inputs.
    """
    variables = second_device()
    if variables is None:
        return [], "there is no second Vulkan device or driver on this machine"
    ran = run_limited(_traced, str(data(model)), dict(feed), seconds=SECONDS, variables=variables)
    return (ran.value, "") if ran.status == "returned" else ([], ran.message)


def _traced(file: str, feed: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    with load_in_halves(file) as session:
        session.run(feed)
        spans = session.trace(feed).spans
    first = min(span.start_ns for span in spans)
    return [
        (
            span.device,
            span.name,
            (span.start_ns - first) / 1e3,
            (span.end_ns - first) / 1e3,
            span.kind,
        )
        for span in spans
        if span.kind in ("chunk", "transfer")
    ]


# ------------------------------------------------------------------- the piece of exercise 1

# How often each path copies a value; a value that the host does not see is not small.
COPIES = {"dma-buf": 1, "ring": 2, "shared host": 1, "host copy": 3}
LARGE = 1 << 22
HALF = frozenset({"shaderFloat16", "storageBuffer16BitAccess"})


def _runtime_choice(params: Mapping[str, Any]) -> Choose:
    """Return the runtime's rule for values past the host behind the signature of exercise 1.

    Planning decides only whether a value moves past the host; drivers decide about the path, once
    devices are open. So the path is named by what the devices offer, and its bytes are a multiple
    of the value's.
    """

    def choose_path(
        source: Mapping[str, Any], target: Mapping[str, Any], elements: int
    ) -> tuple[str, int]:
        if not elements:
            return "nothing", 0
        least = min(source["element_bytes"], target["element_bytes"])
        ends = [_described(facts, facts["element_bytes"] == least) for facts in (source, target)]
        value = TensorInfo("value", "float16", (max(elements, LARGE),))
        offers = {*source["offers"], *target["offers"]}
        if transfer_paths._moves_past(value, ends):
            path = "dma-buf" if {"dma_export", "dma_import"} <= offers else "ring"
        else:
            path = "shared host" if "host_import" in offers else "host copy"
        return path, COPIES[path] * elements * least

    return choose_path


def _described(facts: Mapping[str, Any], is_small: bool) -> DeviceInfo:
    """Return a made-up device with these facts; a small element is one of 16 bits."""
    info = machines.machine("server")[0]
    kinds = (("device_local host_visible host_coherent host_cached", 15),)
    types = tuple(
        MemoryType(0, frozenset(names.split()), bits)
        for names, bits in (kinds if facts["direct"] else DISCRETE)
    )
    features = info.features | HALF if is_small else info.features - HALF
    return replace(info, memory_types=types, features=features)


def _choosing(choose: Given) -> Callable[..., frozenset[str]]:
    return guarded(choose.value)


TRANSFER_PATHS = Piece(
    "transfer_paths",
    "vklab.plan.place.transfer_paths.unseen",
    {"13b-1": _runtime_choice},
    _choosing,
    devices=2,
    load={"policy": "greedy", "memory_caps": {0: 60_000}},
)
