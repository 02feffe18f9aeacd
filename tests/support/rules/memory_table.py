"""How well each model's memory is planned.

    PYTHONPATH=. python tests/support/rules/memory_table.py

The bound is computed here, from the dispatches alone, apart from vklab.plan.memory.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
from onnx import numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests/, for a run of this file

from support.fakes.fake_device import fake_device
from support.models import exported_models, light_models, planned
from vklab import settings
from vklab.graph import onnx_import, passes
from vklab.graph.graph import Graph
from vklab.plan import arenas
from vklab.plan.chunk import Chunk
from vklab.plan.lowering import Lowered
from vklab.plan.partition import Needed
from vklab.runtime import plan_cache
from vklab.types import DeviceInfo

FEATURES = frozenset({"shaderInt64", "shaderFloat64", "shaderInt8", "shaderInt16", "shaderFloat16",
                      "storageBuffer8BitAccess", "storageBuffer16BitAccess"})  # fmt: skip
HOLE_BYTES = 1 << 16
# What most devices ask of an offset.
INFO = fake_device({"minStorageBufferOffsetAlignment": 16}, features=FEATURES, type="cpu")


def largest_live(lowered: Lowered, chunk: Chunk) -> int:
    """Return the largest sum of true bytes that one step needs, scratch included.

    What lies among inputs, outputs or weights does not count; a result that may replace an operand
    which nobody reads again counts once with it.
    """
    steps: dict[str, list[int]] = {}
    sizes: dict[str, int] = {}
    for number, dispatch in enumerate(lowered.dispatches):
        for _, info in dispatch.reads + dispatch.writes:
            root = lowered.roots[info.name]
            if chunk.memory.slots[root].arena.startswith("activations"):
                steps.setdefault(root, []).append(number)
                first = lowered.slices.get(info.name, 0) * np.dtype(info.dtype).itemsize
                sizes[root] = max(sizes.get(root, 0), first + info.size_bytes)
    largest = 0
    for number, dispatch in enumerate(lowered.dispatches):
        needed = sum(sizes[root] for root, at in steps.items() if at[0] <= number <= at[-1])
        dying = [
            sizes[root]
            for name, info in dispatch.reads
            if name in dispatch.in_place
            for root in [lowered.roots[info.name]]
            if root in steps and steps[root][-1] == number
        ]
        born = [
            sizes[root]
            for _, info in dispatch.writes
            for root in [lowered.roots[info.name]]
            if root in steps and steps[root][0] == number
        ]
        if len(dispatch.writes) == 1 and born and born[0] in dying:
            needed -= born[0]
        largest = max(largest, needed)
    return largest


@dataclass(frozen=True)
class Row:
    """A model: bytes of its arena, of the bound, and of all values without aliasing."""

    model: str
    dispatches: int
    arena: int
    bound: int
    plain: int

    def __str__(self) -> str:
        ratio, saved = self.arena / max(self.bound, 1), self.plain / max(self.arena, 1)
        return (
            f"| {self.model} | {self.dispatches} | {self.arena} | {self.bound} | {ratio:.3f} | "
            f"{self.plain} | {saved:.1f} |"
        )


def row(
    name: str, model: onnx_import.Model, inputs: Mapping[str, np.ndarray], info: DeviceInfo = INFO
) -> Row:
    """Plan a model's first chunk on a device, with and without aliasing."""
    graph = onnx_import.load_graph(model)
    needed: list[str] = []
    while True:
        known = {
            n: plan_cache.describe(n, array, array if n in needed else None)
            for n, array in inputs.items()
        }
        answer = planned.next_chunk(graph, known, info)
        if not isinstance(answer, Needed):
            break
        needed += answer.names
    chunk, rest = answer
    assert chunk.kind == "vulkan" and not rest.nodes, f"{name} is not whole on Vulkan"
    final = passes.run(chunk.graph)
    given: list[Lowered] = []
    arrange = arenas.arrange

    def listen(graph: Graph, lowered: Lowered, *others: Any) -> arenas.Arenas:
        given.append(lowered)
        return arrange(graph, lowered, *others)

    with mock.patch.object(arenas, "arrange", listen):
        chunk = planned.plan_graph(final, info).chunks[0]
    with settings.settings(DISABLE_ALIASING=True):
        plain = planned.plan_graph(final, info).memory.arena_bytes
    taken = next(each for each in given if each.dispatches == chunk.dispatches)
    bound = largest_live(taken, chunk)
    return Row(name, len(chunk.dispatches), chunk.memory.arena_bytes, bound, plain)


def light_rows() -> Iterator[Row]:
    """Yield a row for each light CNN; its large weights are a hole in a file, and cost nothing."""

    def described(array: np.ndarray, name: str) -> onnx.TensorProto:
        if array.nbytes < HOLE_BYTES:
            return numpy_helper.from_array(array, name)
        tensor = onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=array.shape)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="hole.bin")
        return tensor

    def values(random: object, role: object, shape: tuple[int, ...]) -> np.ndarray:
        return np.broadcast_to(np.float32(0.5), shape)

    with tempfile.TemporaryDirectory() as folder:
        with (Path(folder) / "hole.bin").open("wb") as file:
            file.truncate(1 << 30)
        path = Path(folder) / "m.onnx"
        for name in light_models.NAMES:
            with mock.patch.multiple(light_models, _values=values, from_array=described):
                model = light_models.build(name)
            path.write_bytes(model.SerializeToString())
            image = np.zeros((1, 3, 224, 224), np.float32)
            yield row(name, path, {model.graph.input[0].name: image})


def exported_rows(name: str) -> Iterator[Row]:
    """Yield a row for each size of an exported model."""
    model = exported_models.load(name)
    for sizes in exported_models.sizes_of(name):
        shown = ",".join(map(str, sizes.values()))
        yield row(f"{name} {shown}", model, exported_models.inputs_of(model, sizes))


if __name__ == "__main__":
    print("| model | dispatches | arena bytes | bound | ratio | without aliasing | times |")
    print("|---|---|---|---|---|---|---|")
    for found in itertools.chain(light_rows(), *map(exported_rows, exported_models.NAMES)):
        print(found, flush=True)
