"""Arguments of `load` for several devices, converted to options of a plan. Visited by lab 13."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vklab.errors import SetupError
from vklab.plan.options import PlacementOptions
from vklab.runtime import open_devices
from vklab.runtime.open_devices import OpenDevice
from vklab.types import DeviceInfo


class NodeTimes(Protocol):
    """Interface of the measured times of a model's nodes on one device: a `Profile`."""

    def node_ns(self) -> Mapping[str, float]:
        """Return nanoseconds by node name."""


def select_all(wanted: Sequence[int | str] | str) -> tuple[DeviceInfo, ...]:
    """Return several devices: "all" usable ones, or one for each item as in `select`."""
    if isinstance(wanted, str) or not hasattr(wanted, "__iter__"):
        if wanted != "all":
            raise SetupError(f'devices={wanted!r} is neither "all" nor a list; for one, use device')
        found = tuple(info for info in open_devices.devices() if not info.refusal)
        return found or (open_devices.select(),)  # raises with the reasons
    chosen = tuple(open_devices.select(one) for one in wanted)
    if not chosen:
        raise SetupError('devices=[] names no device; use "all" for every usable one')
    for place, info in enumerate(chosen):
        if info.index in {other.index for other in chosen[:place]}:  # budgets differ between calls
            raise SetupError(
                f"devices={list(wanted)!r} names device {info.index} ({info.name}) twice"
            )
    return chosen


@dataclass(frozen=True)
class DeviceOptions:
    """Options of `loading.load` for several devices, which are named by index or name as there."""

    place: Mapping[str, int | str] = field(default_factory=dict)
    memory_caps: Mapping[int | str, int] = field(default_factory=dict)
    policy: str | None = None
    profiles: Mapping[int | str, NodeTimes] = field(default_factory=dict)
    replicate: bool = False
    devices: Sequence[int | str] | str | None = None

    def is_split(self, count: int) -> bool:
        """Tell whether a model is split over `count` devices, not replicated on them.

        Raises SetupError for `replicate` together with an option of a split model.
        """
        splits = bool(self.place or self.memory_caps or self.policy or self.profiles)
        if self.replicate and splits:
            raise SetupError(
                "place, memory_caps, policy and profiles split a model; with "
                "replicate=True each device has all of it"
            )
        return not self.replicate and (count > 1 or splits)

    def open(self, device: int | str | None) -> tuple[OpenDevice, ...]:
        """Open `devices`, or one device if they are None; SetupError if both are given."""
        if self.devices is None:
            return (open_devices.open_device(device),)
        if device is not None:
            raise SetupError(f"device={device!r} and devices={self.devices!r}: give one of them")
        return tuple(open_devices.open_device(info.index) for info in select_all(self.devices))

    def placement(self, infos: Sequence[DeviceInfo]) -> PlacementOptions:
        """Return placement options in which devices are numbers in the session's order.

        Raises SetupError for a device that the session does not use, or a profile that is none.
        """
        for device, profile in self.profiles.items():
            if not hasattr(profile, "node_ns"):
                raise SetupError(
                    f"profiles[{device!r}] is {profile!r}, not a profile; give "
                    "Session.profile of the model on that device"
                )
        return PlacementOptions(
            pins={p: _number(d, infos, "place") for p, d in self.place.items()},
            caps={_number(d, infos, "memory_caps"): n for d, n in self.memory_caps.items()},
            policy=self.policy or "",
            fastest_first=isinstance(self.devices, str),
            node_ns={_number(d, infos, "profiles"): p.node_ns() for d, p in self.profiles.items()},
        )


def _number(wanted: int | str, infos: Sequence[DeviceInfo], argument: str) -> int:
    indices = [info.index for info in infos]
    info = open_devices.select(wanted)
    if info.index not in indices:
        names = ", ".join(other.label for other in infos)
        raise SetupError(
            f"{argument} names device {info.index} ({info.name}), which is not among "
            f"this session's: {names}"
        )
    return indices.index(info.index)
