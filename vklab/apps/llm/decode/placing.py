"""Place the layers of a language model: all on one device, or some on each of several.

A CPU's Vulkan driver is the host. Decides how many layers each device gets; `stages` cuts the
graph, `staged_model` runs it. Visited by lab 13.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vklab.apps.llm.decode import stages
from vklab.apps.llm.decode.cached_model import CachedModel
from vklab.apps.llm.decode.load_progress import Loaded
from vklab.apps.llm.decode.memory import Sizes
from vklab.apps.llm.decode.staged_model import StagedModel
from vklab.errors import PlanError, SetupError
from vklab.graph.graph import Graph
from vklab.runtime import kernels, open_devices
from vklab.runtime.many import device_options
from vklab.types import DeviceInfo

Layers = int | Sequence[int] | None


@dataclass(frozen=True)
class Placement:
    """Devices for a model, in the order of their layers, and how many each of them gets.

    Attributes:
        devices: the devices.
        layers: the layers of all devices but one; None for as many as they have room for.
        is_from_end: whether `layers` counts from the last device, else from the first one.
    """

    devices: tuple[DeviceInfo, ...]
    layers: tuple[int, ...] | None = None
    is_from_end: bool = False

    def counts(self, total: int) -> list[int] | None:
        """Return the layers of each device, of `total`; None if their room decides."""
        if self.layers is None:
            return [total] if len(self.devices) == 1 else None
        left, made = total, list[int]()
        for count in self.layers:
            made.append(min(count, left))
            left -= made[-1]
        made.append(left)
        return made[::-1] if self.is_from_end else made

    @property
    def room_bytes(self) -> int:
        """Return the free bytes of all devices."""
        return sum(
            open_devices.open_device(info.index).allocator.room_bytes() for info in self.devices
        )


def placement(
    device: int | str | None, devices: Sequence[int | str] | str | None, layers: Layers
) -> Placement:
    """Return the devices that are asked for, and their layers.

    Args:
        device: as `vklab.load` takes it.
        devices: as `vklab.load` takes it: the first layers are on the first device.
        layers: the layers on each device but the last; with `device`, those on the device, the
            last ones, and the other layers are on the CPU.

    Raises SetupError for a device that is not there, and PlanError for impossible layers.
    """
    given = None if layers is None else tuple(layers) if isinstance(layers, Sequence) else (layers,)
    if given is not None and any(not isinstance(n, int) or n < 0 for n in given):
        raise PlanError(f"layers={layers!r}: choose 0 or more for each device but the last")
    if devices is not None:
        if device is not None:
            raise SetupError(f"device={device!r} and devices={devices!r}: give one of them")
        chosen = device_options.select_all(devices)
        if given is not None and len(given) != max(len(chosen) - 1, 1):
            raise PlanError(
                f"layers={layers!r} for {len(chosen)} devices; give one number for "
                "each device but the last, which gets the other layers"
            )
        if len(chosen) > 1 or given is None:
            return Placement(chosen, given)
        device = chosen[0].index
    info = open_devices.select(device)
    if given is None:
        return Placement((info,))
    if len(given) != 1:
        raise PlanError(f"layers={layers!r} for one device and the CPU; give one number")
    host = open_devices.select("cpu")
    if host.index == info.index:
        raise PlanError(
            f"layers={layers!r} leaves the other layers to the CPU, and {info.label} "
            "is the CPU: name two devices"
        )
    return Placement((host, info), given, is_from_end=True)


def load(
    graph: Graph, wanted: Placement, width: int, report: Callable[[Sizes], None] | None,
    progress: kernels.Progress | None, step_bytes: int, loaded: Loaded | None = None,
) -> CachedModel | StagedModel:  # fmt: skip
    """Return a model with its weights on its devices.

    Args:
        graph: the model's graph.
        wanted: the devices, and perhaps the layers of each.
        width: the elements of the hidden state.
        report: called with the sizes before weights are loaded.
        progress: as `vklab.load` takes it.
        step_bytes: the bytes of the model's outputs for each step.
        loaded: called with the bytes of weights that are on their devices, and with all.

    Raises PlanError with the sizes for a model that does not fit.
    """

    def planned(counts: Sequence[int]) -> StagedModel:
        used = [info for info, count in zip(wanted.devices, counts, strict=True) if count]
        parts = stages.split(graph, counts, width)
        return StagedModel(graph, parts, used, progress, step_bytes)

    counts = wanted.counts(stages.layer_count(graph))
    staged = planned(counts) if counts else _fitted(graph, wanted, width, planned)
    model = staged.models[0] if len(staged.models) == 1 else staged
    try:
        if report:
            report(model.sizes)
        model.load(loaded)
    except BaseException:
        staged.close()
        raise
    return model


def _fitted(
    graph: Graph, wanted: Placement, width: int, planned: Callable[[Sequence[int]], StagedModel]
) -> StagedModel:
    """Return the model with as many layers on each device as fit, the first device first.

    Args:
        graph: the model's graph.
        wanted: the devices.
        width: the elements of the hidden state.
        planned: returns the model for the layers of each device, without its weights.
    """
    layers = stages.layer_bytes(graph, width)
    counts = [len(layers)] + [0] * (len(wanted.devices) - 1)
    while True:
        model = planned(counts)
        used = [number for number, count in enumerate(counts) if count]
        over = {
            number: part.sizes.total_bytes - part.sizes.free_bytes
            for number, part in zip(used, model.models, strict=True)
        }
        full = next((n for n in used[:-1] or used if over[n] > 0), None)
        if full is None and over[used[-1]] > 0:
            full = used[-1]
        if full is None or full == len(counts) - 1:
            return model  # it fits, or `load` refuses it
        model.close()
        first = sum(counts[:full])
        moved = 0
        while counts[full] and over[full] > 0:
            counts[full] -= 1
            moved += 1
            over[full] -= layers[first + counts[full]]
        counts[full + 1] += moved
