"""What placement predicts, beside what runs take.

    python tests/support/rules/placement_table.py [--write FILE]

Every model is given less memory on the first device than it needs there, so that it must be split.
tests/nogpu/test_placement_table.py holds docs/devices.md to this script; numbers are a machine's.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests/, for a run of this file

import vklab
from support.models import exported_models, light_models
from vklab import settings
from vklab.apps.compare.models import graphs as bench_models
from vklab.base import draw
from vklab.plan.place import placement
from vklab.plan.plan import Plan
from vklab.runtime import open_devices

DOCUMENT = Path(__file__).resolve().parents[3] / "docs/devices.md"
MODELS = ("conv_many", "squeezenet", "mobilenet_v3", "vit", "bert", "gpt2")
CONV_MANY_CAP = 128 << 20  # of VKML's published split
CAP_SHARE = 0.6  # of what the others need on the first device
PATIENCE_NS = 2e9  # by then a GPU has left the clocks that it idles at
HEADERS = ("model", "policy", "stages", "transfers", "bytes moved", "predicted ms", "measured ms",
           "predicted / measured", "one device: predicted ms", "measured ms")  # fmt: skip
TEXT = """# One model on several devices

Generated: `PYTHONPATH=. python tests/support/rules/placement_table.py --write docs/devices.md`,
which replaces the section of the devices that it finds, and leaves the others. Each device is
measured first (`vklab devices --measure`, or `vklab.measure(0)` in Python): placement weighs what
was measured, and guesses from the type of a device where nothing was.

How to read it:

* **policy**: `cost` is the least predicted time under the memory that there is, with liveness;
  `greedy` gives each node to the first device that has room, as VKML does. `vklab.load(...,
  devices="all", policy="greedy")`; `vklab plan MODEL --devices all --policy greedy` says why.
* **stages**: nodes at device, in the order of the stages: `8@0 1@1 6@0`.
* The first device has {share:.0%} of the memory that the whole model takes there, other devices are
  not capped. For conv_many it has 128 MiB, and fusion is off: the split `8 1 6` of `greedy` is the
  one that VKML publishes.
* **transfers**: what crosses, once for each reader. Values over 1 MiB between devices with memory
  of their own go by dma-buf, or in pieces through a ring of two slots, while the first one goes on;
  others lie in host memory that both see, or are copied by the host. `session.plan`
  names the path of each (`summary()["moves"]`), with the reason that there is no better; traces
  name it too, and `python tests/support/runs/try_transfers.py` times every one on your machine. Two
  H100 (driver 580) offer no dma-buf; in one run of that script 64 MiB moved at 27.8 GB/s through
  the ring (33.8 with slots of 16 MiB), 9.7 where its slots were copied by the host, 24.0 as a whole
  in shared host memory and 9.5 as a whole copied by the host.
* Each way can be left out: `DISABLE_DMA_BUF`, `DISABLE_STAGING_RING`, `DISABLE_SHARED_MEMORY`;
  `STAGING_SLOT_BYTES` sizes the ring, `DISABLE_EARLY_MOVES` lets large values wait for their stage.
  `DISABLE_DEVICE_ORDER` sends stages of one device through the host, `DISABLE_OVERLAP` runs host
  parts in turn, `DISABLE_MEASURED` guesses speeds. `vklab settings` lists all switches.
* **predicted**: by the measured speed of each device, not of the model; **measured**: the median of
  whole runs, host arrays in and out, one by one, once a GPU has left its idle clocks.
* **one device**: the first device alone, without a cap. lavapipe and SwiftShader are the same CPU
  cores: two of them are never faster than one, they show what moves and what is predicted.
"""


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    model: str
    policy: str
    stages: str
    transfers: int
    moved: str
    predicted: str
    measured: str
    ratio: str
    single_predicted: str
    single_measured: str

    def __str__(self) -> str:
        return f"| {' | '.join(map(str, astuple(self)))} |"


assert len(HEADERS) == len(fields(Row))


def case(name: str) -> tuple[Any, dict[str, np.ndarray]]:
    """Return a model and inputs for it."""
    if name in exported_models.NAMES:
        model = exported_models.load(name)
        return model, exported_models.inputs_of(model, exported_models.sizes_of(name)[0])
    model = light_models.build(name) if name in light_models.NAMES else bench_models.build(name)
    dims = model.graph.input[0].type.tensor_type.shape.dim
    shape = [dim.dim_value for dim in dims]
    return model, {model.graph.input[0].name: np.ones(shape, np.float32)}


def timed(session: vklab.Session, inputs: Mapping[str, np.ndarray]) -> tuple[Plan, float]:
    """Run a model for a while; return its plan and the median of the later half, in nanoseconds."""
    session.run(inputs)
    assert all(c.is_on_device for c in session.plan.chunks), "the host has a chunk of it"
    times: list[int] = []
    while sum(times) < PATIENCE_NS:
        start = time.perf_counter_ns()
        session.run(inputs)
        times.append(time.perf_counter_ns() - start)
    return session.plan, median(times[len(times) // 2 :])


def rows(name: str, devices: list[int]) -> Iterator[Row]:
    """Place and run a model by each policy."""
    model, inputs = case(name)
    with vklab.load(model, devices=devices[:1], policy="cost") as session:
        plan, single_ns = timed(session, inputs)
        load = plan.placement.loads[0]
        single = f"{plan.placement.predicted_ns / 1e6:.2f}", f"{single_ns / 1e6:.2f}"
    cap = int(CAP_SHARE * (load.weights_bytes + load.peak_bytes))
    caps = {devices[0]: CONV_MANY_CAP if name == "conv_many" else cap}
    for policy in placement.POLICIES:
        with vklab.load(model, devices=devices, memory_caps=caps, policy=policy) as session:
            plan, time_ns = timed(session, inputs)
        placed = plan.placement
        yield Row(
            name,
            policy,
            " ".join(f"{len(c.graph.nodes)}@{c.device}" for c in plan.chunks),
            len(placed.transfers),
            draw.bytes_text(sum(m.size_bytes for m in placed.transfers)),
            f"{placed.predicted_ns / 1e6:.2f}",
            f"{time_ns / 1e6:.2f}",
            f"{placed.predicted_ns / time_ns:.2f}",
            *single,
        )


def section(names: list[str]) -> str:
    """Measure the devices of this machine and run everything; return it as text."""
    first = open_devices.select().index
    infos = [info for info in vklab.devices() if not info.refusal]
    devices = [first, *(info.index for info in infos if info.index != first)]
    if len(devices) < 2:
        sys.exit("one device only: nothing to place")
    lines = [f"## {' and '.join(vklab.devices()[index].name for index in devices)}", ""]
    lines += [f"| {' | '.join(HEADERS)} |", f"|---|---|---{'|--:' * (len(HEADERS) - 3)}|"]
    for name in names:
        for index in devices:  # each time anew: other work on the machine comes and goes
            vklab.measure(index)
        with settings.settings(DISABLE_FUSION=name == "conv_many", TIMEOUT=600):
            for row in rows(name, devices):
                lines.append(str(row))
                print(row, file=sys.stderr, flush=True)
    return "\n".join(lines) + "\n"


def replaced(document: str, made: str) -> str:
    """Return a document with a section in the place of the one of the same title, or at its end."""
    title = made.partition("\n")[0]
    kept = [
        part for part in re.split(r"(?m)^(?=## )", document)[1:] if part.partition("\n")[0] != title
    ]
    sections = (part.strip() + "\n" for part in [*kept, made])
    return "\n".join([TEXT.format(share=CAP_SHARE), *sections])


def main() -> None:
    """Print the section of this machine; with --write, put it into a file."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--write", type=Path, metavar="FILE")
    options.add_argument("--only", nargs="+", default=list(MODELS), metavar="MODEL")
    chosen = options.parse_args()
    made = section(chosen.only)
    if not chosen.write:
        print(made)
        return
    document = chosen.write.read_text("utf-8") if chosen.write.is_file() else ""
    chosen.write.write_text(replaced(document, made), encoding="utf-8")


if __name__ == "__main__":
    main()
