"""Command `vklab devices`: the Vulkan devices of this machine, their limits and speeds.

Visited by lab 02.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from vklab.apps.cli import console
from vklab.apps.cli.options import Json
from vklab.base import draw
from vklab.errors import SetupError
from vklab.runtime import open_devices
from vklab.runtime.many import speeds
from vklab.runtime.observe import calibration
from vklab.types import DeviceInfo

WIDE = 100
SHOWN_LIMITS = (
    "maxComputeSharedMemorySize", "maxComputeWorkGroupInvocations", "maxComputeWorkGroupCount",
    "maxComputeWorkGroupSize", "maxPushConstantsSize", "maxStorageBufferRange",
    "maxMemoryAllocationSize", "maxBufferSize", "maxMemoryAllocationCount",
    "minStorageBufferOffsetAlignment", "nonCoherentAtomSize", "minSubgroupSize",
    "maxSubgroupSize", "timestampPeriod",
)  # fmt: skip


def devices(
    device: Annotated[
        str | None, typer.Argument(help="Index or part of a name: show this device in full.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show every device in full.")
    ] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure each device's speed, in a few seconds, and "
                           "store it for placement.")
    ] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """List the Vulkan devices of this machine."""
    listed = (open_devices.select(device),) if device is not None else open_devices.devices()
    for info in listed if measure else ():
        if not info.refusal:
            console.warn(f"measuring {info.name}")
            try:
                calibration.measure(info.index)
            except SetupError as error:  # no timestamps here; other devices may have them
                console.warn(str(error))
    if as_json:
        console.emit({"devices": [facts(info) for info in listed]})
        return
    if device is None:
        _show_all(listed)
    if measure or verbose or device is not None:
        _show_speeds(listed)
    for info in listed if verbose or (device is not None and not measure) else ():
        _show_one(info)


def facts(info: DeviceInfo) -> dict[str, Any]:
    """Return everything about a device, ready for JSON."""
    names = (
        "queue_families",
        "heaps",
        "memory_types",
        "subgroup_operations",
        "limits",
        "features",
        "extensions",
        "cooperative_matrices",
    )
    everything = asdict(info)
    return {
        **info.summary(),
        **{name: everything[name] for name in names},
        "speed": asdict(speeds.known(info)),
    }


def _show_speeds(infos: Sequence[DeviceInfo]) -> None:
    """Show the speeds that placement computes with."""
    headers = (
        "#",
        "memory GB/s",
        "GFLOP/s",
        "thin GFLOP/s",
        "launch",
        "host GB/s",
        "submission",
        "speed",
    )
    rows = [
        (
            info.index,
            f"{speed.bytes_per_ns:.3g}",
            f"{speed.flops_per_ns:.3g}",
            f"{speed.thin_flops_per_ns:.3g}",
            draw.time_text(speed.launch_ns),
            f"{speed.link_bytes_per_ns:.3g}",
            draw.time_text(speed.submit_ns),
            speed.source,
        )
        for info, speed in ((info, speeds.known(info)) for info in infos)
    ]
    console.say()
    console.table("speeds for placement", headers, rows, right=" ".join(headers[:-1]))


def _show_all(infos: tuple[DeviceInfo, ...]) -> None:
    headers = ["#", "name", "type", "vendor", "driver", "Vulkan", "memory", "subgroup", "usable"]
    rows: list[list[object]] = [
        [
            info.index,
            info.name,
            info.type,
            info.vendor,
            info.driver,
            ".".join(map(str, info.api_version)),
            draw.bytes_text(info.memory_bytes),
            info.subgroup_size,
            "no" if info.refusal else "yes",
        ]
        for info in infos
    ]
    if console.width() < WIDE:
        # The driver's name nearly always contains the vendor's.
        del headers[3]
        for row in rows:
            del row[3]
    whole = "type vendor Vulkan usable"
    console.table("", headers, rows, right="# memory subgroup", whole=whole)
    for info in infos:
        if info.refusal:
            console.say(f"{info.index} {info.refusal}")


def _show_one(info: DeviceInfo) -> None:
    console.say()
    console.table(f"device {info.index}", ("property", "value"), info.rows())
    console.say()
    console.table(
        "memory heaps",
        ("heap", "size", "free", "budget", "device-local"),
        [
            (
                number,
                draw.bytes_text(heap.size_bytes),
                draw.bytes_text(max(heap.budget_bytes - heap.usage_bytes, 0)),
                draw.bytes_text(heap.budget_bytes),
                "yes" if heap.device_local else "no",
            )
            for number, heap in enumerate(info.heaps)
        ],
        right="heap size free budget",
    )
    console.say()
    console.table(
        "memory types",
        ("type", "heap", "flags"),
        [
            (number, kind.heap, " ".join(sorted(kind.flags)) or "none")
            for number, kind in enumerate(info.memory_types)
        ],
        right="type heap",
    )
    console.say()
    console.table(
        "limits",
        ("limit", "value"),
        [(name, info.limits[name]) for name in SHOWN_LIMITS if name in info.limits],
    )
    console.say()
    console.table(
        "subgroup operations, features, extensions",
        ("", ""),
        [
            ("subgroup", " ".join(sorted(info.subgroup_operations))),
            ("features", " ".join(sorted(info.features))),
            ("extensions", " ".join(sorted(info.extensions))),
        ],
    )
    if info.cooperative_matrices:
        console.say()
        console.table(
            "cooperative matrices",
            ("M x N x K", "A", "B", "C", "result"),
            [
                (
                    f"{matrix.m} x {matrix.n} x {matrix.k}",
                    matrix.a,
                    matrix.b,
                    matrix.c,
                    matrix.result,
                )
                for matrix in info.cooperative_matrices
            ],
        )
