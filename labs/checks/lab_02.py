"""Visible checks of lab 02."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from vklab.course.definition.exercise import exercise
from vklab.course.definition.report import Report
from vklab.course.figures.machines import Needs, families, machine
from vklab.types import DeviceInfo

__all__ = [
    "check_find_drivers",
    "check_first_missing",
    "check_identify",
    "check_pick_queue_families",
    "check_rank_devices",
]


# ------------------------------------------------------------------------------------------- 02-1


@exercise(
    "02-1",
    points=4,
    hints=(
        "Path(folder, 'vulkan', 'icd.d').glob('*.json') is empty where the folder is missing.",
        "Three things may go wrong in one manifest: json.loads (ValueError), a key that is not "
        "there (KeyError), and something else instead of a dictionary (TypeError).",
        "A library with a slash belongs to the manifest's folder: "
        "os.path.normpath(path.parent / library). An absolute path stays what it is.",
    ),
    seams=("vklab.doctor.detect.find_manifests", "vklab.doctor.detect.read_manifest",
           "vklab.bootstrap.system.all_manifests"),
)  # fmt: skip
def check_find_drivers(answer: Any, report: Report) -> None:
    """Search a tree of folders that contains one manifest of every kind."""
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        _plant(tree)
        folders = [str(tree / part) for part in ("etc", "missing", "usr", "opt")]
        with report.part("every driver, in the loader's order", 1):
            got = report.call(answer, folders, on="four folders: one is missing, and list.json "
                              "(a list), broken.json, layer.json, empty.json name no driver")
            report.equal([pair[0] for pair in _pairs(report, got)],
                         [f"{name}.json" for name in ("beta", "wood", "alpha", "zeta", "alpha",
                                                      "delta", "gamma", "kappa", "omega")])
        with report.part("a relative library starts from its manifest's folder", 2):
            got = report.call(answer, folders[2:3], on="library_path ../lib/libone.so")
            got = _pairs(report, got)
            library = str(next((pair[1] for pair in got if "libone" in str(pair[1])), ""))
            report.expect(os.path.isabs(library), f"expected a full path, got {library!r}")
            report.expect(os.path.realpath(library) == os.path.realpath(tree / ONE),
                          f"expected the path to {ONE}: it starts from the folder of the manifest")
            report.expect(".." not in library, "take the .. out: os.path.normpath does it")
        with report.part("bare names and full paths stay as they are", 1):
            got = _pairs(report, report.call(answer, folders[:1:-1], on="a bare name, a full path"))
            libraries = [str(pair[1]) for pair in got]
            report.equal([*libraries[:1], *libraries[-1:]], ["libalpha.so", "/lib/libzeta.so"])


ONE = "usr/vulkan/lib/libone.so"


def _plant(tree: Path) -> None:
    files = {
        "etc/vulkan/icd.d/beta.json": {"ICD": {"library_path": "libbeta.so.1"}},
        "etc/vulkan/icd.d/read.me": {"ICD": {"library_path": "libnotes.so"}},
        "etc/vulkan/icd.d/broken.json": "{ half a file",
        "etc/vulkan/icd.d/layer.json": {"layer": {"library_path": "liblayer.so"}},
        "etc/vulkan/icd.d/list.json": ["ICD"],
        "etc/vulkan/icd.d/empty.json": {"ICD": {"api_version": "1.3.0"}},
        "etc/vulkan/implicit_layer.d/other.json": {"ICD": {"library_path": "libother.so"}},
        "etc/vulkan/icd.d/wood.json": {"ICD": {"library_path": "libwood.so"}},
        **{f"opt/vulkan/icd.d/{name}.json": {"ICD": {"library_path": f"lib{name}.so"}}
           for name in ("omega", "delta", "kappa", "gamma", "alpha")},
        "usr/vulkan/icd.d/zeta.json": {"ICD": {"library_path": "/lib/libzeta.so"}},
        "usr/vulkan/icd.d/alpha.json": {"ICD": {"library_path": "../lib/libone.so"}},
    }  # fmt: skip
    for name, content in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")


def _pairs(report: Report, got: Any) -> list[tuple[Any, Any]]:
    good = isinstance(got, list | tuple) and all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in got
    )
    report.expect(good, f"expected a list of (file name, library) pairs, got {_short(got)}")
    return [tuple(pair) for pair in got]


def _short(value: Any) -> str:
    if value is None:
        return "None (is a return missing?)"
    if isinstance(value, tuple | list):
        return f"{len(value)} items"
    return f"a {type(value).__name__}"


# ------------------------------------------------------------------------------------------- 02-2


@exercise(
    "02-2",
    points=4,
    hints=(
        "Shift the field to the right end, then mask: (packed >> 12) & 0x3FF is the minor version.",
        "A mask of n bits is (1 << n) - 1. The variant is all that is left after >> 29.",
        "NVIDIA: >> 22 for ten bits, >> 14 for eight, >> 6 for eight, and the last six.",
        "Unknown ids: f'PCI 0x{vendor_id:04x}' where the id fits 16 bits, else f'Khronos 0x...'.",
    ),
    seams=("vklab.vulkan.api.version_tuple",),
)
def check_identify(answer: Any, report: Report) -> None:
    """Compare three texts on packed numbers whose fields are all different."""
    cases = (
        (0x8086, (1, 3, 289), (25, 2, 7)),
        (0x10005, (1, 4, 0), (0, 0, 1)),
        (0x1002, (1, 1023, 4095), (2, 0, 4095)),
        (0x5143, (127, 0, 1), (512, 801, 3)),
    )
    with report.part("the API version", 1):
        for vendor, api, driver in cases:
            got = _three(report, answer, vendor, _pack(*api), _pack(*driver))
            report.equal(got[1], ".".join(map(str, api)))
    with report.part("a variant is not lost", 1):
        for variant in (1, 7):
            got = _three(report, answer, 0x1002, (variant << 29) | _pack(1, 0, 12), _pack(1, 2, 3))
            report.equal(got[1], f"1.0.12 (variant {variant})")
    with report.part("the driver version, in the vendor's own packing", 1):
        for vendor, api, driver in cases:
            got = _three(report, answer, vendor, _pack(*api), _pack(*driver))
            report.equal(got[2], ".".join(map(str, driver)))
        for fields in ((580, 159, 4, 0), (1023, 255, 255, 63), (470, 1, 129, 33)):
            packed = fields[0] << 22 | fields[1] << 14 | fields[2] << 6 | fields[3]
            got = _three(report, answer, 0x10DE, _pack(1, 4, 312), packed)
            report.equal(got[2], ".".join(map(str, fields)), hint="NVIDIA packs 10, 8, 8, 6 bits")
    with report.part("the vendor, also one that is not in the table", 1):
        for vendor, expected in ((0x10DE, "NVIDIA"), (0x10005, "Mesa"), (0x13B5, "ARM"),
                                 (0x1234, "PCI 0x1234"), (0xFFFF, "PCI 0xffff"),
                                 (0xAB, "PCI 0x00ab"), (0x10000, "Khronos 0x10000"),
                                 (0x10009, "Khronos 0x10009")):  # fmt: skip
            got = _three(report, answer, vendor, _pack(1, 3, 0), _pack(1, 0, 0))
            report.equal(got[0], expected)


def _pack(major: int, minor: int, patch: int) -> int:
    return major << 22 | minor << 12 | patch


def _three(report: Report, answer: Any, vendor: int, api: int, driver: int) -> tuple[Any, ...]:
    words = f"vendor_id=0x{vendor:04x}, api_version={api}, driver_version={driver}"
    got = report.call(answer, vendor, api, driver, on=words)
    report.expect(isinstance(got, tuple | list) and len(got) == 3,
                  f"expected three texts (vendor, api, driver), got {_short(got)}")  # fmt: skip
    return tuple(got)


# ------------------------------------------------------------------------------------------- 02-3


@exercise(
    "02-3",
    points=4,
    hints=(
        "Write the compute candidates first; LookupError if there are none. Then min(...) with a "
        "key that is a tuple: Python compares tuples from left to right, and False < True.",
        "For 'more queues first' put -queue_count into the key.",
        "A family only copies if it has transfer, and none of graphics, compute, and no flag that "
        "starts with 'video'. sparse_binding does no harm.",
    ),
    seams=("vklab.vulkan.device.choose_queue_families",),
)
def check_pick_queue_families(answer: Any, report: Report) -> None:
    """Compare pairs of indices on made-up families."""
    with report.part("compute that leaves the desktop alone", 1):
        _picks(report, answer, [(("1gct",), (0, 0)), (("16gct", "8ct"), (1, 1)),
                                (("2t", "1gct", "1ct"), (2, 0)), (("3gc",), (0, 0)),
                                (("1gct", "4c"), (1, 1))])  # fmt: skip
    with report.part("then timestamps, then more queues, then the lower index", 1):
        _picks(report, answer, [(("1gct", "8ct-", "2ct"), (2, 2)), (("4gct", "2ct-"), (1, 1)),
                                (("1gct", "2ct", "8ct"), (2, 2)), (("4ct", "4ct"), (0, 0)),
                                (("4gct-", "4gct"), (1, 1))])  # fmt: skip
        first, second, third = families("1gct", "2ct", "2ct")
        clocks = (first, replace(second, timestamp_valid_bits=36), third)
        got = report.call(answer, clocks, on="families 1gct 2ct 2ct, clocks of 64, 36 and 64 bits")
        report.equal(got, (1, 1), hint="a clock is a clock: equal families keep their order")
    with report.part("copies on a family that does nothing else", 1):
        _picks(report, answer, [(("16gcts", "2ts", "8cts", "1tv"), (2, 1)),
                                (("1gct", "1tv", "2t"), (0, 2)), (("1gct", "1tv"), (0, 0)),
                                (("1gct", "2gt"), (0, 0)), (("2t", "1gct", "4t"), (1, 0)),
                                (("1gct", "1s"), (0, 0))])  # fmt: skip
    with report.part("no compute at all is a LookupError", 1):
        report.raises(LookupError, answer, families("1gt", "2t"), on="families 1gt 2t")
        report.raises(LookupError, answer, (), on="no families")


def _picks(report: Report, answer: Any, cases: list[tuple[tuple[str, ...], Any]]) -> None:
    for kinds, expected in cases:
        hides = any("c" in kind and "t" not in kind for kind in kinds)
        words = " (a family with compute may hide transfer)" if hides else ""
        got = report.call(answer, families(*kinds), on=f"families {' '.join(kinds)}{words}")
        report.equal(got, expected)


# ------------------------------------------------------------------------------------------- 02-4


@exercise(
    "02-4",
    points=4,
    hints=(
        "Return as soon as something is missing: the order of your lines is that of the codes.",
        "Python compares tuples number by number: (1, 2, 154) < (1, 3), and (1, 3, 0) is not.",
        "at_most is for limits such as minStorageBufferOffsetAlignment: the smaller, the better.",
        "The largest device-local heap: max(h.size_bytes for h in device.heaps if h.device_local); "
        "1 MiB is 2**20 bytes.",
    ),
    seams=("vklab.vulkan.physical_device.refusal",),
)
def check_first_missing(answer: Any, report: Report) -> None:
    """Compare codes on made-up devices, one requirement at a time, then in order."""
    (phone,) = machine("phone")
    station, video = machine("workstation")
    old = machine("server")[2]
    fp16, int8 = ("shaderFloat16",), ("shaderInt8",)
    inv, align = "maxComputeWorkGroupInvocations", "minStorageBufferOffsetAlignment"
    with report.part("version and queue", 1):
        _codes(report, answer, [
            (old, Needs(), "version"), (old, Needs((1, 2)), ""), (phone, Needs((1, 3)), ""),
            (phone, Needs((1, 10)), "version"), (video, Needs(), "queue:compute"),
            (phone, Needs(queue="graphics"), ""), (phone, Needs(queue="video_decode"),
                                                   "queue:video_decode"),
            (station, Needs(queue="video_decode"), "")])  # fmt: skip
    with report.part("features", 1):
        _codes(report, answer, [
            (phone, Needs(features=int8), ""),
            (phone, Needs(features=fp16), "feature:shaderFloat16"),
            (phone, Needs(features=(*int8, "shaderInt64", *fp16)), "feature:shaderInt64"),
            (station, Needs(features=int8 + fp16), "")])  # fmt: skip
    with report.part("limits: at least, and at most", 1):
        _codes(report, answer, [
            (phone, Needs(at_least={inv: 256}), ""), (phone, Needs(at_least={inv: 257}),
                                                      f"limit:{inv}"),
            (phone, Needs(at_most={align: 64}), ""), (phone, Needs(at_most={align: 63}),
                                                      f"limit:{align}"),
            (phone, Needs(at_least={"maxPushConstantsSize": 128, inv: 512}, at_most={align: 16}),
             f"limit:{inv}")])  # fmt: skip
    with report.part("the largest device-local heap, and the order", 1):
        _codes(report, answer, [
            (phone, Needs(heap_mib=5600), ""), (phone, Needs(heap_mib=5601), "heap"),
            (station, Needs(heap_mib=16112), ""), (station, Needs(heap_mib=16200), "heap"),
            (old, Needs(features=("nothing",), heap_mib=10**6), "version"),
            (video, Needs(features=("nothing",)), "queue:compute"),
            (phone, Needs(features=fp16, at_least={inv: 512}), "feature:shaderFloat16"),
            (phone, Needs(at_most={align: 1}, heap_mib=10**6), f"limit:{align}")])  # fmt: skip


def _codes(report: Report, answer: Any, cases: list[tuple[DeviceInfo, Needs, str]]) -> None:
    plain = Needs()
    for device, needs, expected in cases:
        asked = [f"{key}={value!r}" for key, value in vars(needs).items()
                 if value != getattr(plain, key)]  # fmt: skip
        words = f"{device.name!r}, Needs({', '.join(asked)})"
        report.equal(report.call(answer, device, needs, on=words), expected)


# ------------------------------------------------------------------------------------------- 02-5


@exercise(
    "02-5",
    points=5,
    hints=(
        "Two steps: a list of the devices that fit, then sorted(fitting, key=...).",
        "The key is a tuple: (is it a CPU, bytes of its largest device-local heap, uuid).",
        "memory_bytes adds up all device-local heaps, but one buffer lies in one heap: take the "
        "largest, with max(...).",
    ),
)
def check_rank_devices(answer: Any, report: Report) -> None:
    """Compare the order of names on made-up machines, in two orders of enumeration."""
    laptop, server, station = (machine(name) for name in ("laptop", "server", "workstation"))
    everything = (*laptop, *server, *machine("phone"), *station)
    with report.part("what does not fit is not in the list", 2):
        _ranks(report, answer, "server and phone", (*server, *machine("phone")), (10000, 1),
               ["Server card d5", "Server card f4"], ordered=False)  # fmt: skip
        _ranks(report, answer, "the workstation", station, (16112, 1), ["Workstation 88"])
        _ranks(report, answer, "the workstation", station, (16113, 1), [])
        _ranks(report, answer, "the laptop", laptop, (64, 9),
               ["Laptop integrated 1a", "Laptop discrete 2b"], ordered=False)  # fmt: skip
        _ranks(report, answer, "the laptop", laptop, (8188, 32), ["Laptop discrete 2b"])
    with report.part("the smallest that fits first, a CPU last", 1):
        _ranks(report, answer, "the laptop", laptop, (100, 8),
               ["Laptop integrated 1a", "Laptop discrete 2b", "Laptop software 3c"])  # fmt: skip
        _ranks(report, answer, "laptop and workstation", (*laptop, *station), (8000, 1),
               ["Laptop discrete 2b", "Workstation 88", "Laptop software 3c"])  # fmt: skip
        _ranks(report, answer, "the laptop", laptop, (9000, 1), ["Laptop software 3c"])
    with report.part("the same order, however the devices are listed", 2):
        expected = ["Phone 77", "Laptop integrated 1a", "Laptop discrete 2b", "Workstation 88",
                    "Server card d5", "Server card f4", "Laptop software 3c"]  # fmt: skip
        _ranks(report, answer, "all machines", everything, (1, 1), expected)
        _ranks(report, answer, "all machines, listed backwards", everything[::-1], (1, 1), expected)


def _ranks(report: Report, answer: Any, words: str, devices: tuple[DeviceInfo, ...],
           needs: tuple[int, int], expected: list[str], ordered: bool = True) -> None:  # fmt: skip
    on = f"{words}, heap_mib={needs[0]}, subgroup_at_least={needs[1]}"
    got = report.call(answer, devices, *needs, on=on)
    good = isinstance(got, list | tuple) and all(isinstance(d, DeviceInfo) for d in got)
    kind = "other things" if isinstance(got, list | tuple) else _short(got)
    report.expect(good, f"expected a list of devices, best first, got {kind}")
    names = [f"{device.name} {device.uuid[:2]}" for device in got]
    report.equal(names if ordered else sorted(names), expected if ordered else sorted(expected))
