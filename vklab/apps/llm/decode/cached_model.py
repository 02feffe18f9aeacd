"""CachedModel: a model on a device with one cache, and a recording for each number of steps.

Decides which recordings a prompt runs through. All of them read and write the same cache.
Nothing but the plan is made before `load`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from vklab.apps.llm.decode import load_progress, memory
from vklab.apps.llm.decode.load_progress import Loaded
from vklab.apps.llm.decode.memory import Sizes
from vklab.apps.llm.sampling import SamplingOptions
from vklab.errors import ModelError
from vklab.graph.graph import Graph, Node
from vklab.plan.tuning.attention import cache_groups
from vklab.runtime import kernels, loading, open_devices
from vklab.runtime.bound import planning
from vklab.runtime.bound.binding import DeviceBinding
from vklab.types import TensorInfo

# The output of one run that is an input of the next, besides the caches.
STATES: Mapping[str, str] = {"tokens": "token", "lengths": "next_lengths",
                             "recent": "next_recent"}  # fmt: skip
# The chosen token once more, in memory that the host reads.
CHOSEN = "chosen"
OPTIONS = 12
# Recent tokens that the sampler remembers, unless penalties ask for more.
RECENT = 64
# The numbers of steps that are recorded. A prompt goes through in chunks of these sizes.
STEPS = (1, 8, 32, 128, 512)
# Up to this many steps, products read each weight once and take about the same time.
FEW = 8
# Logits of every step of a chunk take no more than this.
MOST_OUTPUT_BYTES = 64 << 20


def generation_graph(graph: Graph, batch: int) -> Graph:
    """Return the graph of a model with a bounded cache, and with a sampler after its logits.

    Further inputs are `options` and `recent`, as `SampleToken` takes them; the states' outputs and
    `chosen` are further outputs.

    Args:
        graph: the model's graph, with logits after the last step alone.
        batch: the number of sequences.
    """
    inputs = (
        TensorInfo("options", "uint32", (1, OPTIONS)),
        TensorInfo("recent", "int32", (batch, "recent")),
    )
    nodes = (
        Node("next_lengths", "Add", ("lengths", "counts"), ("next_lengths",)),
        Node(
            "sample",
            "SampleToken",
            ("logits", "recent", "next_lengths", "options"),
            ("token", "next_recent"),
            {},
            "vklab",
            1,
        ),
        Node(CHOSEN, "Identity", ("token",), (CHOSEN,)),
    )
    return replace(
        graph,
        nodes=(*graph.nodes, *nodes),
        inputs=(*graph.inputs, *inputs),
        outputs=(*graph.outputs, *STATES.values(), CHOSEN),
        infos={**graph.infos, **{info.name: info for info in inputs}},
    )


def can_count_parts(device: int | str | None) -> bool:
    """Return whether the last workgroup of an attention may add up what others have written."""
    return cache_groups.can_share(open_devices.select(device))


def chunk_of(left: int, pads: bool = False) -> int:
    """Return the steps of the next chunk when `left` tokens remain; more of them are padding.

    Args:
        left: the tokens.
        pads: whether padding costs less than several chunks, and than recording them.
    """
    if left <= 1:
        return 1
    above = next((steps for steps in STEPS if steps >= left), STEPS[-1])
    below = max(steps for steps in STEPS if steps <= left)
    return above if pads or above <= FEW or 2 * left > above else below


class CachedModel:
    """A graph with a bounded cache on a device, as bindings that share the cache.

    Attributes:
        session: the session.
        sizes: the bytes that the model takes on the device.
        batch: the number of sequences.
        most_steps: the most steps of a chunk.
        pads: whether the device computes rows of padding in little time, as GPUs do.

    Args:
        graph: the model's graph, or some layers of it; if it chooses tokens, it can generate.
        device: as `vklab.load` takes it.
        weights_bytes: the bytes of the weights.
        progress: as `vklab.load` takes it.
        step_bytes: the bytes of outputs for each step; 0 if only the last step has some.
    """

    def __init__(
        self, graph: Graph, device: int | str | None, weights_bytes: int,
        progress: kernels.Progress | None, step_bytes: int = 0,
    ) -> None:  # fmt: skip
        self.graph = graph
        infos = {info.name: info for info in graph.inputs}
        self.batch = int(infos["counts"].shape[0])
        self.context = int(infos[memory.cache_names(graph)[0]].shape[2])
        most = min(self.context, MOST_OUTPUT_BYTES // max(step_bytes, 1))
        self.most_steps = max(steps for steps in STEPS if steps <= max(most, 1))
        self.can_choose = CHOSEN in graph.outputs
        self._caches = {name: name.removeprefix("past_") for name in memory.cache_names(graph)}
        self._bindings: dict[int, DeviceBinding] = {}
        self._loops: dict[int, DeviceBinding] = {}
        self.session = loading.load(graph, device, progress)
        try:
            opened = self.session.states[0].opened
            self.pads = not opened.info.is_cpu
            self.sizes = Sizes(
                self.context,
                weights_bytes,
                memory.cache_bytes(graph),
                self._scratch_bytes(),
                opened.allocator.room_bytes(),
                opened.info.label,
            )
        except BaseException:
            self.close()
            raise

    def load(self, loaded: Loaded | None = None) -> None:
        """Load the weights, and allocate the cache; PlanError if the device has no room.

        `loaded` is called with the bytes of weights that are on the device, and with all of them.
        """
        memory.require_room(self.graph, self.sizes, self.session.device)
        weights = self.session.states[0].weights
        with load_progress.watched(weights, loaded, self.sizes.weights_bytes):
            self.binding(1)

    def _scratch_bytes(self) -> int:
        """Return the bytes of activations and outputs of one step and of the largest chunk."""
        memory.require_bindable(self.graph, self.session.states[0].opened.info)
        total = 0
        for steps in {1, self.most_steps}:
            values = self.session.arrays((self._first_values(steps),))
            entry = planning.planned(self.session.roots[0], values)
            reason = planning.refusal(self.session.roots[0], entry, self._caches)
            if reason:
                because = "; ".join(
                    dict.fromkeys(why for each in entry.chunks for why in each.reasons.values())
                )
                raise ModelError(
                    f"{self.graph.name} cannot run on one device alone: {reason}"
                    f"{because and f' ({because})'}"
                )
            [chunk] = entry.chunks
            total += chunk.memory.arena_bytes
        return total

    def _first_values(self, steps: int, recent: int = 1) -> dict[str, Any]:
        """Return zeros for all inputs; caches have no memory of their own."""
        sizes = {"steps": steps, "recent": recent}
        shapes = {
            info.name: tuple(d if isinstance(d, int) else sizes[d] for d in info.shape)
            for info in self.graph.inputs
        }
        values = {
            info.name: np.broadcast_to(np.zeros((), info.dtype), shapes[info.name])
            for info in self.graph.inputs
        }
        values |= {name: values[name].copy() for name in values if name not in self._caches}
        values["counts"][...] = 1
        if self.can_choose:
            values["options"] = SamplingOptions(temperature=0).words()
        return values

    def binding(self, steps: int) -> DeviceBinding:
        """Return the binding for some steps, made at its first use; that for one owns the cache."""
        if steps not in self._bindings:
            self._bindings[steps] = self._bound(self._first_values(steps), dict(self._caches))
        return self._bindings[steps]

    def prepare(self, is_wanted: Callable[[], bool]) -> None:
        """Make the bindings that are made at their first use otherwise.

        Args:
            is_wanted: asked before each; False ends the preparation.
        """
        for steps in STEPS:
            if steps <= self.most_steps and is_wanted():
                self.binding(steps)
        if self.can_choose and is_wanted():
            self.loop(RECENT)

    def loop(self, recent: int) -> DeviceBinding:
        """Return the binding whose results are its next inputs, made at its first use.

        Args:
            recent: the number of recent tokens that the sampler remembers.
        """
        if recent not in self._loops:
            values = self._first_values(1, recent)
            states = {name: now for name, now in STATES.items() if name in values}
            self._loops[recent] = self._bound(
                values, {**self._caches, **states}, ahead=True, resident=("logits",)
            )
        return self._loops[recent]

    def _bound(self, values: dict[str, Any], state: dict[str, str], **more: Any) -> DeviceBinding:
        for name in self._caches:  # of the first binding, which has memory for them
            if 1 in self._bindings:
                values[name] = self._bindings[1].inputs[name]
            else:
                del values[name]
        return self.session.bind(values, state=state, **more)

    def run(self, tokens: np.ndarray, lengths: np.ndarray, counts: np.ndarray) -> DeviceBinding:
        """Append some steps to the cache, and return the binding that holds the logits.

        Args:
            tokens: int32 [batch, steps]; steps is one of STEPS.
            lengths: the rows of each sequence so far.
            counts: the steps of each sequence that are no padding.
        """
        binding = self.binding(tokens.shape[1])
        try:
            binding.run({"tokens": tokens, "lengths": lengths, "counts": counts})
        except BaseException:
            binding.settle()
            raise
        return binding

    def settle(self) -> None:
        """Wait until no run is in flight, for example after a wait was interrupted."""
        for binding in (*self._bindings.values(), *self._loops.values()):
            binding.settle()

    def close(self) -> None:
        """Free all resources; a second call does nothing."""
        for binding in (*self._loops.values(), *reversed(self._bindings.values())):
            binding.close()
        self._loops.clear()
        self._bindings.clear()
        self.session.close()
