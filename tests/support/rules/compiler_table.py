"""What the compiler makes of real models: a table.

    python tests/support/rules/compiler_table.py [--write FILE]

Plans are for a lavapipe that is described here and need not be there; times are taken on the
machine's own device. tests/nogpu/test_compiler_table.py holds docs/compiler.md to the planner.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests/, for a run of this file

import vklab
from support.fakes.fake_device import fake_device
from support.models import exported_models, light_models
from support.rules import memory_table
from vklab import settings
from vklab.graph import onnx_import
from vklab.graph.graph import Graph
from vklab.plan.plan import Plan
from vklab.runtime.compiled import build

DOCUMENT = Path(__file__).resolve().parents[3] / "docs/compiler.md"
# lavapipe, as far as plans depend on a device.
LAVAPIPE = fake_device(
    {"maxComputeWorkGroupInvocations": 1024, "maxComputeSharedMemorySize": 32768,
     "minStorageBufferOffsetAlignment": 16, "maxPerStageDescriptorStorageBuffers": 32,
     "maxMemoryAllocationSize": 2 << 30, "maxBufferSize": 4 << 30, "minSubgroupSize": 8,
     "maxSubgroupSize": 8},
    name="lavapipe", type="cpu", vendor="Mesa", driver="llvmpipe", subgroup_size=8,
    subgroup_operations=frozenset({"arithmetic", "ballot", "basic", "quad", "shuffle",
                                   "shuffle_relative", "vote"}),
    features=memory_table.FEATURES | {
        "uniformAndStorageBuffer8BitAccess", "uniformAndStorageBuffer16BitAccess",
        "subgroupSizeControl", "computeFullSubgroups",
    },
)  # fmt: skip
OFF = {"DISABLE_PASSES": "all", "DISABLE_FUSION": True, "DISABLE_REORDER": True}
HEADERS = ("model", "nodes imported", "nodes, passes off", "nodes", "dispatches, all off",
           "dispatches", "barriers, all off", "barriers", "generated kernels", "arena bytes",
           "lower bound", "ratio", "without aliasing", "load ms")  # fmt: skip
TEXT = """# What the compiler makes of real models

Generated: `PYTHONPATH=. python tests/support/rules/compiler_table.py --write docs/compiler.md`. A
test holds every column but the last to what the planner says today.

The first nine models are the light CNNs of the onnx wheel (224 x 224, batch 1), with random weights
in place of their constant ones. The others are exported from PyTorch
(`tests/support/models/export_models.py`), small but whole; `_script` is the older exporter, and the
numbers behind a name are the sizes of its open dimensions. `vklab plan MODEL` shows the same for
any model, `--passes` what each pass has done, `--show NUMBER` the text of a kernel, `--svg FILE`
dispatches and memory as a picture.

{table}

How to read it:

* **nodes**: first, those of the file. Then, with every graph pass off: values known before the run
  are folded, and ONNX's functions are replaced by their bodies. Last, those after the passes.
* **all off** means `DISABLE_PASSES=all`, `DISABLE_FUSION=1` and `DISABLE_REORDER=1`: a dispatch or
  more for each node that computes something. A **barrier** costs about ten dispatches on a GPU.
* **generated kernels** are kernels of different text; a dispatch that is fused uses one of them.
* **lower bound** is the largest sum of bytes alive at one step. It is computed by
  `tests/support/rules/memory_table.py` from the dispatches alone. Inputs, outputs and weights are
  not counted: on this device they lie in memory of their own. 0 bytes: all values are inputs or
  outputs.
* **without aliasing** (`DISABLE_ALIASING=1`): the arena if every value had bytes of its own.
* **load ms**: `vklab.load` from ONNX, with its sizes as `upper_bounds`, so that a run has nothing
  left to plan; the caches of SPIR-V and pipelines are warm. lavapipe, 2 cores.
"""


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    model: str
    imported: int
    unoptimised: int
    nodes: int
    dispatches_off: int
    dispatches: int
    barriers_off: int
    barriers: int
    generated: int
    arena: int
    bound: int
    ratio: str
    plain: int

    def __str__(self) -> str:
        return f"| {' | '.join(map(str, astuple(self)))} |"


assert len(HEADERS) == len(fields(Row)) + 1


def sizes_of(graph: Graph, inputs: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Return how long the axes with names are in some inputs."""
    return {
        dim: size
        for info in graph.inputs
        for dim, size in zip(info.shape, inputs[info.name].shape, strict=True)
        if isinstance(dim, str)
    }


def planned(model: onnx_import.Model, inputs: Mapping[str, np.ndarray]) -> Plan:
    """Plan a model for lavapipe."""
    graph = onnx_import.load_graph(model)
    made = build.plan_whole(graph, LAVAPIPE, sizes_of(graph, inputs), inputs)
    assert made, f"{graph} is not whole on Vulkan"
    return made


def row(name: str, model: onnx_import.Model, inputs: Mapping[str, np.ndarray]) -> Row:
    """Plan a model with passes and fusion, and without."""
    imported = len(onnx_import.load_graph(model).nodes)
    facts = planned(model, inputs).summary()
    with settings.settings(**OFF):
        before = planned(model, inputs).summary()
    memory = memory_table.row(name, model, inputs, LAVAPIPE)
    assert memory.arena == facts["arena_bytes"] and memory.dispatches == facts["dispatches"]
    return Row(
        name,
        imported,
        before["nodes"],
        facts["nodes"],
        before["dispatches"],
        facts["dispatches"],
        before["barriers"],
        facts["barriers"],
        facts["generated_kernels"],
        memory.arena,
        memory.bound,
        f"{memory.arena / max(memory.bound, 1):.3f}",
        memory.plain,
    )


def light(name: str) -> tuple[str, onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a light CNN as the table has it: name, model and inputs."""
    model = light_models.build(name)
    return name, model, {model.graph.input[0].name: np.zeros((1, 3, 224, 224), np.float32)}


def exported(name: str) -> tuple[str, onnx.ModelProto, dict[str, np.ndarray]]:
    """Return an exported model in its first sizes, as the table has it."""
    model, sizes = exported_models.load(name), exported_models.sizes_of(name)[0]
    shown = f"{name} {','.join(map(str, sizes.values()))}"
    return shown, model, exported_models.inputs_of(model, sizes)


def every() -> Iterator[tuple[str, onnx.ModelProto, dict[str, np.ndarray]]]:
    """Yield name, model and inputs of every line."""
    yield from map(light, light_models.NAMES)
    yield from map(exported, exported_models.NAMES)


def load_ms(path: Path, inputs: Mapping[str, np.ndarray], found: Row) -> float:
    """Return the milliseconds of a load, the best of two once caches are warm.

    Sizes are given as upper bounds, so that a load leaves nothing to the first run.
    """
    graph = onnx_import.load_graph(path)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        with vklab.load(path, upper_bounds=sizes_of(graph, inputs)) as session:
            times.append(time.perf_counter() - start)
            facts = session.plan.summary()
            if session.device.is_cpu:
                ours = facts["dispatches"], facts["barriers"], facts["arena_bytes"]
                assert ours == (found.dispatches, found.barriers, found.arena), found.model
    return 1000 * min(times[1:])


def main() -> None:
    """Print the table; with --write, put it with its text into a file."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--write", type=Path, metavar="FILE")
    target = options.parse_args().write
    lines = [f"| {' | '.join(HEADERS)} |", f"|---{'|--:' * (len(HEADERS) - 1)}|"]
    for name, model, inputs in every():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            onnx.save(model, path)
            found = row(name, path, inputs)
            lines.append(f"{found} {load_ms(path, inputs, found):.0f} |")
        print(lines[-1], file=sys.stderr, flush=True)
    text = TEXT.format(table="\n".join(lines))
    if target:
        target.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
