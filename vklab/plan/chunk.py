"""Chunk and Transfer: the units of a plan, as plain data.

`partition` creates a chunk, `place` cuts it if there are several devices, and `plan.lower_chunk`
adds its dispatches and its memory. Visited by labs 12 and 13.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from vklab.base.protocols import Content
from vklab.errors import PlanError
from vklab.graph.graph import Graph
from vklab.plan.barriers import Barrier, Copy, Step
from vklab.plan.lowering import Trim
from vklab.plan.memory import MemoryPlan, Slot
from vklab.types import Dispatch, TensorInfo

HOST, CONTROL = "host", "control"
# Index of a device in the plan; HOST; or CONTROL for a chunk of one If, Loop or Scan.
Place = int | str


@dataclass(frozen=True)
class Transfer:
    """A value that one chunk writes and another reads; `source` is None if the host writes it."""

    value: str
    source: int | None
    target: int
    size_bytes: int


@dataclass(frozen=True, eq=False)
class Chunk(Content):
    """Nodes that run together; on a device as one command buffer and one submission.

    Attributes:
        place: a device number, HOST or CONTROL.
        graph: the nodes; inputs come from the caller or earlier chunks, outputs go to later chunks
            or to the caller. A control node contains its bodies.
        number: the chunk's index in its plan.
        predecessors: numbers of the chunks that must finish before this one starts.
        reasons: the reason for each node that the host computes, by node name; a device chunk has
            one for each node that planning folded into an output of the model.
        known: outputs of the model whose values planning has computed; the executor adds them to
            the results.
        steps: dispatches and copies in order. `nodes` has one name for each: the node of a
            dispatch, the value of a copy.
        barriers: the pipeline barriers between steps.
        memory: the slot of every value on the device; empty before lowering.
        input_slots: slots in which the host writes inputs; `output_slots`: reads outputs.
        source: the graph before the passes, for reports; None before lowering and in a compiled
            model, whose file does not hold it.
        constants: weights that steps read, with their values.
        stored: the dtype in which the device stores each input and output.
        trims: axes of outputs whose true size the device counts during the run.
    """

    place: Place
    graph: Graph
    number: int = 0
    predecessors: tuple[int, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, np.ndarray] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    nodes: tuple[str, ...] = ()
    barriers: tuple[Barrier, ...] = ()
    memory: MemoryPlan = MemoryPlan({}, {}, (), 0)
    input_slots: Mapping[str, Slot] = field(default_factory=dict)
    output_slots: Mapping[str, Slot] = field(default_factory=dict)
    source: Graph | None = None
    constants: Mapping[str, TensorInfo] = field(default_factory=dict)
    stored: Mapping[str, str] = field(default_factory=dict)
    trims: Mapping[str, tuple[Trim, ...]] = field(default_factory=dict)

    @property
    def is_on_device(self) -> bool:
        """Tell whether the chunk runs on a device."""
        return isinstance(self.place, int)

    @property
    def device(self) -> int:
        """Return the index of the chunk's device; raise PlanError for a chunk on the host."""
        if not isinstance(self.place, int):
            raise PlanError(f"{self} has no device")
        return self.place

    @property
    def kind(self) -> str:
        """Return "vulkan", "host" or "control"."""
        return "vulkan" if isinstance(self.place, int) else self.place

    @property
    def dispatches(self) -> tuple[Dispatch, ...]:
        """Return the dispatches in the order in which they run."""
        return tuple(step for step in self.steps if isinstance(step, Dispatch))

    @property
    def copies(self) -> tuple[Copy, ...]:
        """Return the copies between host-visible and device memory."""
        return tuple(step for step in self.steps if isinstance(step, Copy))

    def __str__(self) -> str:
        place = f"device {self.place}" if isinstance(self.place, int) else "the host"
        steps = f", {len(self.steps)} steps, {len(self.barriers)} barriers" if self.steps else ""
        after = f" after {', '.join(map(str, self.predecessors))}" if self.predecessors else ""
        return f"chunk {self.number}: {len(self.graph.nodes)} nodes on {place}{steps}{after}"
