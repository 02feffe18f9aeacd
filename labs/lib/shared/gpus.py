"""Spec sheets of GPUs: the units, clocks and memory that their vendors publish, each with a source.

The values were read in November 2026. Visited by lab 01b.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vklab_course.definition.codec import register

__all__ = ["MATRIX_PEAKS", "SHEETS", "Sheet"]


@register
@dataclass(frozen=True)
class Sheet:
    """Spec sheet of one GPU; units and bus are those of one die.

    Attributes:
        vendor: the company.
        units: compute units (AMD), multiprocessors (NVIDIA), engines (Intel) or cores (Apple).
        lanes: fp32 values that one unit computes at once.
        clock_mhz: clock in MHz.
        bus_bits: width of the path to memory.
        gbit_per_pin: gigabits that one bit of the bus carries in a second.
        issue: multiply-adds that a lane can start in one clock; 2 on MI210 and MI250X by packed
            fp32 (gitlab.com/gromacs/gromacs, merge request 3838).
        dies: dies in the package.
        memory_gb: memory of the package.
        watts: the vendor's figure for the power of the board, 0 if there is none.
        source: where the values stand.
    """

    vendor: str
    units: int
    lanes: int
    clock_mhz: float
    bus_bits: int
    gbit_per_pin: float
    issue: int = 1
    dies: int = 1
    memory_gb: int = 0
    watts: int = 0
    source: str = ""


_ANANDTECH = "anandtech.com/show/17326, March 2022"
_M1, _M2 = "clock: hmc-tech.com, Apple 8-Core M1", "clock: hmc-tech.com, Apple 38-Core M2 Max"

SHEETS: Mapping[str, Sheet] = {
    "MI100": Sheet("AMD", 120, 64, 1502, 4096, 2.4, 1, 1, 32, 300, _ANANDTECH),
    "MI210": Sheet("AMD", 104, 64, 1700, 4096, 3.2, 2, 1, 64, 300, _ANANDTECH),
    "MI250X": Sheet("AMD", 110, 64, 1700, 4096, 3.2, 2, 2, 128, 560,
                    "AMD's table of November 2021, in zexron.com, amd-mi250-x-aldebaran"),
    "MI300X": Sheet("AMD", 304, 64, 2100, 8192, 5.2, 2, 1, 192, 750,
                    "memory and power: codesota.com/hardware/mi300x, April 2026"),
    "RX 6900 XT": Sheet("AMD", 80, 64, 2250, 256, 16, 1, 1, 16, 300,
                        "gizmoseries.com, AMD's Radeon 6900 XT, November 2020"),
    "RX 7900 XTX": Sheet("AMD", 96, 64, 2500, 384, 20, 2, 1, 24, 355,
                         "guru3d.com, review of the XFX Radeon RX 7900 XTX"),
    "Arc A770": Sheet("Intel", 512, 8, 2100, 256, 17.5, 1, 1, 16, 225,
                      "units, clock and power: cputronic.com, intel-arc-a770"),
    "Max 1550": Sheet("Intel", 64, 128, 1600, 4096, 3.2, 1, 2, 128, 600,
                      "glennklockwood.com/garden/processors/pvc"),
    "M1": Sheet("Apple", 8, 128, 1278, 128, 4.266, 1, 1, 16, 0, _M1),
    "M1 Pro": Sheet("Apple", 16, 128, 1278, 256, 6.4, 1, 1, 32, 0, _M1),
    "M1 Max": Sheet("Apple", 32, 128, 1278, 512, 6.4, 1, 1, 64, 0, _M1),
    "M1 Ultra": Sheet("Apple", 64, 128, 1278, 1024, 6.4, 1, 1, 128, 0, _M1),
    "M2": Sheet("Apple", 10, 128, 1398, 128, 6.4, 1, 1, 24, 0, _M2),
    "M2 Pro": Sheet("Apple", 19, 128, 1398, 256, 6.4, 1, 1, 32, 0, _M2),
    "M2 Max": Sheet("Apple", 38, 128, 1398, 512, 6.4, 1, 1, 96, 0, _M2),
    "M2 Ultra": Sheet("Apple", 76, 128, 1398, 1024, 6.4, 1, 1, 192, 0, _M2),
    "M3 Max": Sheet("Apple", 40, 128, 1398, 512, 6.4, 1, 1, 128, 0,
                    "clock: hmc-tech.com, Apple 9-Core M3"),
    "A100": Sheet("NVIDIA", 108, 64, 1410, 5120, 3.186, 1, 1, 80, 400,
                  "glennklockwood.com/garden/processors/A100"),
    "RTX 4090": Sheet("NVIDIA", 128, 128, 2520, 384, 21, 1, 1, 24, 450,
                      "waredb.com, nvidia-geforce-rtx-4090"),
}  # fmt: skip

# Peaks of the matrix units of the whole package in TFLOP/s (int8: TOP/s), dense, by kind of number.
MATRIX_PEAKS: Mapping[str, Mapping[str, float]] = {
    "MI100": {"fp32": 46.1, "fp16": 184.6, "int8": 184.6},
    "MI210": {"fp32": 45.3, "fp16": 181.0, "int8": 181.0},
    "MI250X": {"fp32": 95.7, "fp16": 383.0, "int8": 383.0},
    "A100": {"fp16": 312.0, "int8": 624.0},
    "RTX 4090": {"fp16": 330.3, "int8": 660.6},
}
