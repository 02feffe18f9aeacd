"""StagedModel: a language model whose layers are on several devices, run one after another.

Each device has its layers' weights and their part of the cache. Only the hidden state of the steps
passes from device to device, through the host. Visited by lab 13.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vklab.apps.llm.decode import cached_model, load_progress
from vklab.apps.llm.decode.cached_model import CachedModel
from vklab.apps.llm.decode.load_progress import Loaded
from vklab.apps.llm.decode.memory import Sizes
from vklab.apps.llm.decode.stages import Stage
from vklab.errors import DeviceLostError, PlanError
from vklab.graph.graph import Graph
from vklab.runtime import kernels
from vklab.runtime.bound.binding import DeviceBinding
from vklab.runtime.bound.tensors import Tensors
from vklab.types import DeviceInfo


@dataclass(frozen=True)
class StagedSizes(Sizes):
    """Sizes of a model on several devices: their sums, and those of each device."""

    stages: tuple[Sizes, ...] = ()

    @property
    def parts(self) -> tuple[Sizes, ...]:
        """Return the sizes of each device."""
        return self.stages

    def __str__(self) -> str:
        return "; ".join(f"{part.layers} on {part.device}: {part}" for part in self.stages)


class StagedModel:
    """A model as stages on several devices, with the methods of `CachedModel`.

    Attributes:
        graph: the graph of the whole model.
        models: the stages' models.
        batch: the number of sequences.
        context: the positions of the cache.
        most_steps: the most steps of a chunk.
        pads: whether all devices compute rows of padding in little time.
        can_choose: whether the graph chooses tokens.
        sizes: the bytes of the model on each device.

    Args:
        graph: the graph of the whole model.
        parts: its stages.
        devices: the device of each.
        progress: as `vklab.load` takes it.
        step_bytes: the bytes of the model's outputs for each step.
    """

    def __init__(
        self, graph: Graph, parts: Sequence[Stage], devices: Sequence[DeviceInfo],
        progress: kernels.Progress | None, step_bytes: int,
    ) -> None:  # fmt: skip
        self.graph = graph
        self.models: list[CachedModel] = []
        # What a stage hands over: the name of the hidden state after it.
        self._hidden = [part.graph.outputs[0] for part in parts[:-1]]
        self._layers = [str(part) for part in parts]
        try:
            for part, info in zip(parts, devices, strict=True):
                is_last = len(self.models) == len(parts) - 1
                self.models.append(
                    CachedModel(
                        part.graph, info.index, part.weights_bytes, progress, step_bytes * is_last
                    )
                )
        except BaseException:
            self.close()
            raise
        first, last = self.models[0], self.models[-1]
        self.batch, self.context = first.batch, first.context
        self.most_steps = min(model.most_steps for model in self.models)
        self.pads = all(model.pads for model in self.models)
        self.can_choose = last.can_choose
        self.sizes = self._sizes()

    def _sizes(self) -> StagedSizes:
        parts = tuple(
            replace(model.sizes, layers=text)
            for text, model in zip(self._layers, self.models, strict=True)
        )

        def total(field: str) -> int:
            return sum(getattr(part, field) for part in parts)

        return StagedSizes(
            self.context,
            total("weights_bytes"),
            total("cache_bytes"),
            total("scratch_bytes"),
            total("free_bytes"),
            ", ".join(part.device for part in parts),
            stages=parts,
        )

    def load(self, loaded: Loaded | None = None) -> None:
        """Load all weights; PlanError, before any is loaded, if a device has no room for its.

        `loaded` is called with the bytes of weights that are on their devices, and with all.
        """
        if any(part.total_bytes > part.free_bytes for part in self.sizes.parts):
            raise PlanError(
                f"{self.graph.name} does not fit its devices: {self.sizes}. Choose "
                "other layers for each device, a smaller context or batch, or weights "
                "with fewer bits"
            )
        before = 0
        for model in self.models:
            model.load(load_progress.after(loaded, before, self.sizes.weights_bytes))
            before += model.sizes.weights_bytes

    def prepare(self, is_wanted: Callable[[], bool]) -> None:
        """Make the bindings that are made at their first use otherwise.

        Args:
            is_wanted: asked before each; False ends the preparation.
        """
        for model in self.models:
            model.prepare(is_wanted)

    def run(self, tokens: np.ndarray, lengths: np.ndarray, counts: np.ndarray) -> DeviceBinding:
        """Append some steps to the cache, and return the binding that holds the logits.

        Args:
            tokens: int32 [batch, steps]; steps is one of STEPS.
            lengths: the rows of each sequence so far.
            counts: the steps of each sequence that are no padding.
        """
        given = {"lengths": lengths, "counts": counts}
        hidden = self.forward({"tokens": tokens, **given})
        return self._run(self.models[-1].binding(tokens.shape[1]), {**hidden, **given})

    def forward(self, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run all stages but the last, and return the hidden state by its name.

        Args:
            values: tokens, lengths and counts.
        """
        steps = values["tokens"].shape[1]
        given = {name: values[name] for name in ("lengths", "counts")}
        hidden = {"tokens": values["tokens"]}
        for model, name in zip(self.models[:-1], self._hidden, strict=True):
            made = self._run(model.binding(steps), {**hidden, **given})
            hidden = {name: made.outputs[name].numpy()}
        return hidden

    def _run(self, binding: DeviceBinding, values: dict[str, Any]) -> DeviceBinding:
        """Run a stage, and return its binding; an error leaves nothing in flight."""
        try:
            binding.run(values)
        except DeviceLostError as error:
            label = binding.state.opened.info.label
            detail = f"{error.detail}; the layers on {label} are lost with it: close this model"
            raise DeviceLostError(error.command, error.result, detail) from error
        except BaseException:
            self.settle()
            raise
        return binding

    def settle(self) -> None:
        """Wait until no device works on this model, apart from devices that are lost."""
        for model in self.models:
            if not model.session.states[0].opened.lost:
                model.settle()

    def loop(self, recent: int) -> StagedLoop:
        """Return a loop whose results are its next inputs.

        Args:
            recent: the number of recent tokens that the sampler remembers.
        """
        return StagedLoop(self, recent)

    def close(self) -> None:
        """Free all resources; a second call does nothing."""
        while self.models:
            self.models.pop().close()


class StagedLoop:
    """Generation on several devices: the last one chooses tokens, the first gets them by the host.

    It has the methods of a `DeviceBinding` that `generating.Loop` uses. A submitted run waits for
    `collect`, since its token is the result of the run before it.

    Attributes:
        inputs: the inputs of the next run, by name.

    Args:
        model: the model.
        recent: the number of recent tokens that the sampler remembers.
    """

    def __init__(self, model: StagedModel, recent: int) -> None:
        self._model = model
        self._last = model.models[-1].loop(recent)
        self._submitted = 0
        numbers = {
            "lengths": (model.batch,),
            "counts": (model.batch,),
            "tokens": (model.batch, 1),
            "recent": (model.batch, recent),
        }
        self.inputs = {name: np.zeros(shape, np.int32) for name, shape in numbers.items()}
        self.inputs["options"] = np.zeros((1, cached_model.OPTIONS), np.uint32)
        self._has_begun = False

    @property
    def outputs(self) -> Tensors:
        """Return the outputs of the last stage."""
        return self._last.outputs

    def submit(self) -> None:
        """Ask for a run."""
        self._submitted += 1

    def collect(self) -> Tensors:
        """Run once, and return the outputs of the last stage."""
        hidden = self._model.forward(self.inputs)
        if not self._has_begun:  # later, the last device has these itself
            hidden |= {
                name: self.inputs[name] for name in ("lengths", "counts", "recent", "options")
            }
        self._model._run(self._last, hidden)
        self._has_begun = True
        self._submitted -= 1
        self.inputs["tokens"][...] = self.outputs[cached_model.CHOSEN].numpy()
        self.inputs["lengths"] += self.inputs["counts"]
        return self.outputs

    def settle(self) -> None:
        """Drop what was asked for, and wait until no device works on it."""
        self._submitted = 0
        self._model.settle()
