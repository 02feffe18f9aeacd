"""Exercises of lab 02: a missing GPU, packed versions, queue families, refusals, rented devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from vklab.course import words
from vklab.course.definition.case import Case
from vklab.course.definition.exercise import Function, exercise
from vklab.course.definition.kinds import Choice, Predict
from vklab.course.definition.report import Report
from vklab.course.figures.machines import Needs, families, machine
from vklab.types import DeviceInfo, MemoryHeap

CAUSES = ("no loader", "no manifest", "no library", "no hardware", "no permission", "hidden",
          "not asked for", "too old")  # fmt: skip
SHOWN = (
    "`libvulkan.so.1`: cannot open shared object file",
    "The loader opens and answers 1.3.275. Every `icd.d` folder is empty.",
    "`nvidia_icd.json` names `libGLX_nvidia.so.0`. `ldconfig -p` does not list it.",
    "`radeon_icd.x86_64.json` and its library are there. `lspci` lists no graphics card. One "
    "device is found: llvmpipe.",
    "`lspci` lists an AMD card, manifest and library are there. Opening `/dev/dri/renderD128` "
    "says: permission denied. One device: llvmpipe.",
    "`lspci` lists an Intel GPU, manifest and library are there. `VK_DRIVER_FILES` is set to "
    "`/opt/lavapipe/lvp_icd.json`. One device: llvmpipe.",
    "A Mac with MoltenVK. `vulkaninfo` lists the GPU. In your program `vkCreateInstance` says: "
    "incompatible driver.",
    "The GPU is listed with Vulkan 1.1.97. The program needs Vulkan 1.3.",
)


def _machines(*numbers: int) -> dict[str, str]:
    """Return the parameters of a variant: what machines A to E show."""
    return {letter: SHOWN[number] for letter, number in zip("abcde", numbers, strict=True)}


@exercise(
    "02-1",
    hints=(
        "Walk through the picture from the left. Which station is the first that did not answer?",
        "llvmpipe is a driver without hardware: if it is listed, the loader and one manifest work. "
        "So what stopped the other driver?",
        "A program on macOS has to ask for drivers that translate; vulkaninfo always asks.",
    ),
    variants=(
        _machines(4, 1, 6, 2, 3), _machines(5, 3, 0, 4, 7), _machines(2, 6, 5, 3, 1),
        _machines(7, 4, 2, 5, 6),
    ),
)
class Causes(Choice):
    parts = {"all": ("every machine", 3)}

    def questions(self) -> Mapping[str, tuple[str, tuple[str, ...]]]:
        right = dict(zip(SHOWN, CAUSES, strict=True))
        return {letter.upper(): (right[shown], tuple(sorted(CAUSES)))
                for letter, shown in self.params.items()}  # fmt: skip


# ---------------------------------------------------------------------------------------- versions

VENDORS = {0x1002: "AMD", 0x10DE: "NVIDIA", 0x13B5: "ARM", 0x5143: "Qualcomm", 0x8086: "Intel",
           0x10005: "Mesa"}  # fmt: skip
NVIDIA = 0x10DE


def _packed(fields: Iterable[int], widths: Iterable[int]) -> int:
    number = 0
    for value, width in zip(fields, widths, strict=True):
        number = number << width | int(value)
    return number


def _fields(packed: int, *widths: int) -> list[int]:
    fields = []
    for width in reversed(widths):
        fields.append(packed % 2**width)
        packed //= 2**width
    return fields[::-1]


@exercise(
    "02-2",
    hints=(
        "Write the number in binary, or look at the picture: which bits belong to the minor "
        "version, and how far are they from the right end?",
        "Two steps for each field: shift it to the right end, then mask the bits to its left away. "
        "Which mask keeps ten bits?",
        "hex(...) writes a number the way the exercise asks; dict.get takes a second argument.",
    ),
    seams=("vklab.vulkan.api.version_tuple",),
)
class Identify(Function):
    parts = {"api": ("the API version", 1), "variant": ("a variant is not lost", 1),
             "driver": ("the driver version, in the vendor's own packing", 1),
             "vendor": ("the vendor, also one that is not in the table", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        def draw(*most: int) -> list[int]:
            return [int(random.integers(0, n)) for n in most]

        old, api, nvidia = (10, 10, 12), (3, 7, 10, 12), (10, 8, 8, 6)
        for fields in ((0, 1, 3, 289), (0, 1, 4, 0), (0, 127, 1023, 4095),
                       (0, *draw(128, 1024, 9))):  # fmt: skip
            yield self._case("api", 0x8086, _packed(fields, api), _packed((25, 2, 7), old))
        for variant in (1, 7, 0):
            number = _packed((variant, *draw(128, 1024, 4096)), api)
            yield self._case("variant", 0x1002, number, _packed((1, 2, 3), old))
        for vendor, fields, widths in (
            (0x8086, (25, 2, 7), old), (0x1002, (2, 0, 4095), old),
            (0x5143, (512, 801, 3), old), (0x5143, draw(1024, 1024, 4096), old),
            (NVIDIA, (580, 159, 4, 0), nvidia),
            (NVIDIA, (1023, 255, 255, 63), nvidia), (NVIDIA, draw(1024, 256, 256, 64), nvidia),
        ):  # fmt: skip
            yield self._case("driver", vendor, _packed((0, 1, 4, 0), api), _packed(fields, widths))
        for vendor in (*VENDORS, 0x1234, 0xFFFF, 0xAB, 0x10000, 0x10009):
            yield self._case("vendor", vendor, _packed((0, 1, 3, 0), api), _packed((1, 0, 0), old))
        for vendor in (NVIDIA, 0x10005, 0x13B5, 0x1234, 0x106B, 0x1AE0):
            for part in self.parts:
                variant = int(random.integers(2, 7)) if part == "variant" else 0
                number = _packed((variant, *draw(128, 1024, 4096)), api)
                yield self._case(part, vendor, number, *draw(2**32))

    def _case(self, part: str, vendor: int, api: int, driver: int) -> Case:
        on = f"identify({vendor:#06x}, {api:#010x}, {driver:#010x})"
        return Case(part, (vendor, api, driver), on=on)

    def expected(self, case: Case) -> Any:
        vendor, api, driver = case.args
        variant, *numbers = _fields(api, 3, 7, 10, 12)
        widths = (10, 8, 8, 6) if vendor == NVIDIA else (10, 10, 12)
        return (VENDORS.get(vendor, f"{vendor:#x}"),
                ".".join(map(str, numbers)) + (f" (variant {variant})" if variant else ""),
                ".".join(map(str, _fields(driver, *widths))))  # fmt: skip

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(isinstance(got, tuple | list) and len(got) == 3,
                      f"expected three texts (vendor, api, driver), got {words.short(got)}")
        place = {"vendor": 0, "driver": 2}.get(report.part, 1)
        hint = "NVIDIA packs 10, 8, 8 and 6 bits" if place == 2 and case.args[0] == NVIDIA else ""
        report.equal(got[place], case.expected[place], hint)


# ---------------------------------------------------------------------------------- queue families


@exercise(
    "02-3",
    hints=(
        "First a list of the families that compute. Is it empty? Then raise. Else find its best.",
        "min(...) takes a key that may be a tuple. Python compares tuples from left to right, and "
        "False comes before True: which three questions, in which order?",
        "min prefers small numbers. How do you make the larger number of queues the smaller key?",
        "Copies: look at the flags of families that have transfer. Which flags rule one out?",
    ),
    variants=({"bits": 40, "wraps": "18 minutes"}, {"bits": 44, "wraps": "5 hours"},
              {"bits": 48, "wraps": "3 days"}, {"bits": 52, "wraps": "52 days"}),
    seams=("vklab.vulkan.device.choose_queue_families",),
)  # fmt: skip
class PickQueueFamilies(Function):
    parts = {"desktop": ("compute stays away from graphics", 1),
             "clock": ("then a long enough clock, then more queues, then the lower index", 1),
             "copies": ("copies on a family that does nothing else", 1),
             "none": ("no compute at all is a LookupError", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        bits = self.params["bits"]
        lists = {
            "desktop": "1gct/16gct 8ct/2t 1gct 1ct/3gc/1gct 4c/1gct 2ct-0/1ct 1gct",
            "clock": f"1gct 8ct-0 2ct/4gct 2ct-0/1gct 2ct 8ct/4ct 4ct/4gct-0 4gct/2ct-{bits} 2ct/"
                     f"8ct-{bits - 1} 2ct-{bits}/1ct-{bits + 4} 2ct-{bits}/1gct 4ct 8cts/"
                     "4ct 8ctv 2ct/1gct 2c 2ct/2ct 10ct/1gct 8ct 16ct/2cts 2ct/2ct 2cts/"
                     "1gct 1gct 1gct 1gct 1gct 2ct",
            "copies": "16gcts 2ts 8cts 1tv/1gct 1tv 2t/1gct 1tv/1gct 2gt/2t 1gct 4t/1gct 1s/"
                      "1ct 2ct/1gct 2t-0 4t/1gct 2sv 1tsv/1gct 16ct 1t",
            "none": "1gt 2t/1gct/2t 1ct/1tv",
        }  # fmt: skip
        for part, text in lists.items():
            for kinds in text.split("/"):
                yield self._case(part, kinds.split())
        yield Case("none", ((),), on="no families at all")
        made = families("1gct", "2t", "4t", "1t")
        busy = tuple(replace(family, flags=family.flags | more) for family, more in zip(
            made, ({"protected"}, {"video_encode"}, {"optical_flow"}, set()), strict=True))
        yield Case("copies", (busy,), on="four families, of which 1 encodes videos and 2 has "
                                         "optical flow")
        clocks = [0, 36, *(each["bits"] for each in self.variants), 64]
        for _ in range(5):
            flags = ["ct", *random.choice(["gct", "ct", "c", "t", "gt", "tv", "gcts"], 4)]
            random.shuffle(flags)
            self_made = [f"{random.integers(1, 4)}{f}-{random.choice(clocks)}" for f in flags]
            for part in ("desktop", "clock", "copies"):
                yield self._case(part, self_made)

    def _case(self, part: str, kinds: list[str]) -> Case:
        hides = any("c" in kind and "t" not in kind for kind in kinds)
        note = "  (a family with compute copies, too, and need not say so)" if hides else ""
        return Case(part, (families(*kinds),), on=f"families{tuple(map(str, kinds))}{note}")

    def expected(self, case: Case) -> Any:
        def rank(family: Any) -> tuple[bool, bool, int, int]:
            short = family.timestamp_valid_bits < self.params["bits"]
            return "graphics" in family.flags, short, -family.queue_count, family.index

        computing = sorted((f for f in case.args[0] if "compute" in f.flags), key=rank)
        if not computing:
            raise LookupError
        busy = {"graphics", "compute", "video_decode", "video_encode"}
        copies = [f for f in case.args[0] if "transfer" in f.flags and not f.flags & busy]
        return computing[0].index, (copies or computing)[0].index

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(isinstance(got, tuple | list) and len(got) == 2,
                      f"expected two indices (compute, copies), got {words.short(got)}")
        (made,), (compute, copies) = case.args, case.expected
        if report.part == "desktop":
            report.expect(got[0] in range(len(made)), f"there is no family {words.short(got[0])}")
            has, avoidable = ("graphics" in made[n].flags for n in (got[0], compute))
            report.expect("compute" in made[got[0]].flags, f"family {got[0]} does not compute")
            report.expect(has <= avoidable,
                          f"family {got[0]} has graphics, and another one computes without")
        elif report.part == "clock":
            report.equal(got[0], compute, "the index of the compute family")
        elif report.part == "copies" and copies == compute:
            report.expect(got[1] == got[0], "no family only copies: expected your compute family, "
                          f"{words.short(got[0])}, got {words.short(got[1])}")  # fmt: skip
        elif report.part == "copies":
            report.equal(got[1], copies, "the index for copies")
        else:
            report.equal(got, case.expected)


# -------------------------------------------------------------------------------------- refusals

INVOCATIONS, ALIGNMENT = "maxComputeWorkGroupInvocations", "minStorageBufferOffsetAlignment"


@exercise(
    "02-4",
    hints=(
        "Return as soon as something is missing: your lines have the order of the codes.",
        "Python compares tuples number by number. What is (1, 2, 154) < (1, 3)? And (1, 3, 0)?",
        "For limits in at_most a smaller value is the better one.",
        "Only device-local heaps count, and of these only the largest. A heap has .device_local "
        "and .size_bytes; 1 MiB is 2**20 bytes.",
    ),
    seams=("vklab.vulkan.physical_device.refusal",),
)
class FirstMissing(Function):
    parts = {"version": ("version and queue", 1), "features": ("features", 1),
             "limits": ("limits: at least, and at most", 1),
             "heap": ("the largest device-local heap, and the order of the questions", 1)}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        (phone,), (station, video), old = (machine("phone"), machine("workstation"),
                                           machine("server")[2])  # fmt: skip
        fp16, both = ("shaderFloat16",), ("shaderInt8", "shaderInt64", "shaderFloat16")
        pairs = [((1, 2, 154), (1, 3)), ((1, 2, 154), (1, 2)), ((1, 3, 0), (1, 3)),
                 ((1, 4, 0), (1, 3)), ((2, 0, 0), (1, 3)), ((1, 3, 128), (1, 10)),
                 ((1, 10, 0), (1, 9)), ((1, 10, 0), (2, 0)), ((1, 5, 3), (2, 4))]  # fmt: skip
        pairs += [((major, minor, 0), (other, least))
                  for major, minor, other, least in random.integers(1, 13, (6, 4)).tolist()]
        for version, wanted in pairs:
            yield self._case("version", replace(station, api_version=version), Needs(wanted))
        for device, queue in ((video, "compute"), (phone, "graphics"), (phone, "video_decode"),
                              (station, "video_decode"), (phone, "transfer"),
                              (machine("laptop")[1], "sparse_binding"), (station, "video")):
            yield self._case("version", device, Needs(queue=queue))
        yield self._case("version", replace(video, api_version=(1, 2, 0)), Needs())
        for version, wanted in (((1, 30, 0), (2, 4)), ((1, 200, 0), (2, 0))):
            yield self._case("version", replace(station, api_version=version), Needs(wanted))
        for device, features in ((phone, both[:1]), (phone, fp16), (phone, both), (station, both)):
            yield self._case("features", device, Needs(features=features))
        most = int(random.integers(300, 1000))
        some = replace(phone, limits={**phone.limits, INVOCATIONS: most})
        for device, least, largest in (
            (phone, {INVOCATIONS: 256}, {}), (phone, {INVOCATIONS: 257}, {}),
            (phone, {}, {ALIGNMENT: 64}), (phone, {}, {ALIGNMENT: 63}),
            (some, {INVOCATIONS: most}, {}), (some, {INVOCATIONS: most + 1}, {}),
            (phone, {"maxPushConstantsSize": 128, INVOCATIONS: 512}, {ALIGNMENT: 16}),
        ):  # fmt: skip
            yield self._case("limits", device, Needs(at_least=least, at_most=largest))
        shared, constants = "maxComputeSharedMemorySize", "maxPushConstantsSize"
        for least, largest in (
            ({constants: 200, INVOCATIONS: 512, shared: 10**6}, {}), ({constants: 129}, {}),
            ({shared: 10**6, constants: 200}, {}), ({ALIGNMENT: 65}, {}),
            ({}, {INVOCATIONS: 100, ALIGNMENT: 16}), ({}, {INVOCATIONS: 256, ALIGNMENT: 16}),
            ({}, {INVOCATIONS: 255}), ({}, {ALIGNMENT: 16, INVOCATIONS: 100}),
        ):  # fmt: skip
            yield self._case("limits", phone, Needs(at_least=least, at_most=largest))
        mib = int(random.integers(900, 9000))
        split = (MemoryHeap(700 << 20, True, 0, 0), MemoryHeap(mib << 20, True, 0, 0),
                 MemoryHeap(40000 << 20, False, 0, 0))  # fmt: skip
        for heap in (mib, mib + 1, mib + 700):
            yield self._case("heap", replace(station, heaps=split), Needs(heap_mib=heap))
        full = MemoryHeap(mib << 20, True, 0, (mib << 20) // 2)  # usage is not the question
        for heaps in ((split[1], split[2], split[0]), (full,)):
            yield self._case("heap", replace(station, heaps=heaps), Needs(heap_mib=mib))
        yield self._case("heap", machine("laptop")[0], Needs(heap_mib=10**5))
        for device, needs in (
            (station, Needs(heap_mib=16112)), (station, Needs(heap_mib=16200)),
            (old, Needs(features=("nothing",), heap_mib=10**6)),
            (video, Needs(features=("nothing",))),
            (phone, Needs(features=fp16, at_least={INVOCATIONS: 512})),
            (phone, Needs(at_most={ALIGNMENT: 1}, heap_mib=10**6)),
        ):  # fmt: skip
            yield self._case("heap", device, needs)

    def _case(self, part: str, device: DeviceInfo, needs: Needs) -> Case:
        """Name what is asked, and what the device has of it."""
        plain = Needs()
        asked = {key: value for key, value in vars(needs).items() if value != getattr(plain, key)}
        told = ["Vulkan " + ".".join(map(str, device.api_version))]
        if "queue" in asked or not any("compute" in f.flags for f in device.queue_families):
            told.append(f"families {[sorted(f.flags) for f in device.queue_families]}")
        if needs.features:
            told.append(f"features {sorted(device.features & set(needs.features))}")
        told += [f"{n} {device.limits[n]}" for n in (*needs.at_least, *needs.at_most)]
        if needs.heap_mib:
            sizes = (f"{heap.size_bytes >> 20}{'' if heap.device_local else ' (host)'}"
                     for heap in device.heaps)
            told.append(f"heaps of {', '.join(sizes)} MiB")
        needed = ", ".join(f"{key}={value!r}" for key, value in asked.items())
        return Case(part, (device, needs), on=f"a device with {', '.join(told)}; Needs({needed})")

    def expected(self, case: Case) -> Any:
        device, needs = case.args
        local = [heap.size_bytes for heap in device.heaps if heap.device_local]
        met = {"version": device.api_version[:2] >= needs.api_version,
               f"queue:{needs.queue}": any(needs.queue in f.flags for f in device.queue_families)}
        met |= {f"feature:{name}": name in device.features for name in needs.features}
        met |= {f"limit:{n}": device.limits[n] >= value for n, value in needs.at_least.items()}
        met |= {f"limit:{n}": device.limits[n] <= value for n, value in needs.at_most.items()}
        met["heap"] = max(local) >= needs.heap_mib * 2**20
        return next((code for code, right in met.items() if not right), "")


# ---------------------------------------------------------------------------------- rented devices

Devices = Mapping[str, tuple[int, int]]
Programs = Mapping[str, tuple[int, tuple[str, ...]]]


def cheapest(devices: Devices, programs: Programs) -> int | None:
    """Return the price of the cheapest set of devices that runs all programs, found exactly."""
    sizes = [mib for mib, _ in programs.values()]
    everything = (1 << len(sizes)) - 1
    prices = {0: 0}  # which programs have a place -> cheapest so far
    for name, (price, room) in devices.items():
        able = [i for i, (_, suited) in enumerate(programs.values()) if name in suited]
        loads = [sum(1 << i for i in some) for n in range(1, len(able) + 1)
                 for some in combinations(able, n) if sum(sizes[i] for i in some) <= room]
        for done, paid in list(prices.items()):
            for load in loads:
                if not done & load:
                    prices[done | load] = min(prices.get(done | load, paid + price), paid + price)
    return prices.get(everything)


def obvious(devices: Devices, programs: Programs) -> dict[str, int]:
    """Return the prices of the obvious answers by name; those that find no place are left out."""
    by_size = sorted(programs, key=lambda name: -programs[name][0])
    every = [n for n, (_, room) in devices.items() if room >= sum(p[0] for p in programs.values())
             and all(n in suited for _, suited in programs.values())]  # fmt: skip
    prices = {"one device for all": min((devices[n][0] for n in every), default=None),
              "in the given order": _one_by_one(devices, programs, list(programs)),
              "largest first": _one_by_one(devices, programs, by_size)}  # fmt: skip
    return {name: price for name, price in prices.items() if price is not None}


def _one_by_one(devices: Devices, programs: Programs, order: list[str]) -> int | None:
    """Place each program on a device in use, else on the cheapest one that fits."""
    left: dict[str, int] = {}
    for name in order:
        mib, suited = programs[name]
        places = [(d not in left, devices[d][0], d) for d in suited
                  if left.get(d, devices[d][1]) >= mib]  # fmt: skip
        if not places:
            return None
        place = min(places)[2]
        left[place] = left.get(place, devices[place][1]) - mib
    return sum(devices[name][0] for name in left)


def _hard(part: str, random: np.random.Generator, few: int = 2) -> Case:
    """Draw until neither an obvious answer nor one with `few` devices is cheapest."""
    while True:
        rooms = random.choice([4, 6, 8, 12, 16, 24], int(random.integers(4, 6)))
        names = "ABCDE"[:len(rooms)]
        devices = {n: (int(room * random.integers(6, 13)), int(room) * 1000)
                   for n, room in zip(names, rooms, strict=True)}  # fmt: skip
        programs = {}
        for program in "pqrstuv"[:random.integers(5, 8)]:
            suited = tuple(n for n in names if random.random() < 0.7) or (names[0],)
            programs[program] = (int(random.integers(10, 75)) * 100, suited)
        price, natural = cheapest(devices, programs), obvious(devices, programs)
        if price is None or not natural or price > 0.9 * min(natural.values()):
            continue
        with_few = (cheapest({name: devices[name] for name in some}, programs)
                    for some in combinations(devices, few))  # fmt: skip
        if all(paid is None or paid > price for paid in with_few):
            return _renting(part, devices, programs)


def _renting(part: str, devices: Devices, programs: Programs) -> Case:
    natural = min(obvious(devices, programs).values(), default=0)
    on = f"devices={devices}, programs={programs}" if part != "picture" else ""
    return Case(part, (devices, programs), facts={"natural": natural},
                on=on or "the devices and programs of the picture")  # fmt: skip


@exercise(
    "02-5",
    hints=(
        "Two questions, one after the other: which set of devices do I try next, and does "
        "everything fit on that set?",
        "Five devices have 31 sets, the cheapest comes first: stop at the first that works.",
        "Does everything fit? Try a device for the first program, and ask the same question about "
        "the rest of the programs and of the memory. If the answer is no, try the next device.",
        "With less work: place the largest program first, on the fullest device that still has "
        "room. It fits less often, and earns a part of the points.",
    ),
)
class RentDevices(Function):
    parts = {"valid": ("every program has a device that suits it and has room", 1),
             "picture": ("the price of the picture's six programs", 1),
             "first": ("the price of a drawn list", 1),
             "second": ("the price of another drawn list", 1),
             "third": ("the price of a third drawn list", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        yield _renting("valid", {"A": (7, 900)}, {"p": (900, ("A",))})
        yield _renting("valid", {"A": (7, 900)}, {})
        yield _renting("valid", {"A": (9, 900), "B": (2, 1000)},
                         {"p": (400, ("A", "B")), "q": (500, ("A",)), "r": (1, ("A", "B"))})
        both = ("A", "B", "C")  # the largest first leaves gaps of 1000 MiB
        yield _renting("picture", {"A": (50, 10000), "B": (52, 10000), "C": (30, 4000)},
                         {"p": (5000, both), "q": (4000, both), "r": (4000, both),
                          "s": (3000, both), "t": (2000, both), "u": (2000, both)})  # fmt: skip
        for part in ("first", "second", "third"):
            hard = _hard(part, random, 3 if part == "second" else 2)
            yield from (hard, replace(hard, part="valid"))

    def expected(self, case: Case) -> Any:
        return cheapest(*case.args)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        devices, programs = case.args
        report.expect(isinstance(got, dict) and all(isinstance(d, str) for d in got.values()),
                      f"expected a dictionary from program to device, got {words.short(got)}")
        report.equal(sorted(map(str, got)), sorted(programs), "the programs that have a device")
        for name, device in got.items():
            report.expect(device in programs[name][1], f"program {name} does not run on {device!r}")
        used: dict[str, int] = {}
        for name, device in got.items():
            used[device] = used.get(device, 0) + programs[name][0]
        for device, mib in used.items():
            room = devices[device][1]
            report.expect(mib <= room, f"{device} has {room} MiB, your programs on it need {mib}")
        if report.part != "valid":
            report.score(sum(devices[device][0] for device in used), case.expected,
                         case.facts["natural"], "cents an hour")  # fmt: skip


# ------------------------------------------------------------------------------------- predictions


@exercise("02-p1", hints=("Which field is the first that differs?",))
class Comparisons(Predict):
    explains = ("Packed numbers compare like versions, as long as the variants are equal: a higher "
                "field outweighs all fields to its right. Tuples compare number by number. Text "
                "compares character by character: '1.10' and '1.3' differ first at '1' against "
                "'3', so version 1.10 counts as the older one.")  # fmt: skip

    def answers(self) -> Mapping[str, Any]:
        return {"packed": True, "tuples": True, "text": False}


@exercise("02-p2", hints=("Who holds a Python reference to what?",))
class Alive(Predict):
    explains = ("The structure is there, because Python holds it. The array is gone: the bindings "
                "copied the inner structure into a C array, and a pointer in C keeps nothing "
                "alive. Passing this structure to vkCreateDevice reads freed memory.")  # fmt: skip

    def answers(self) -> Mapping[str, Any]:
        return {"structure": True, "array": False}


@exercise("02-p3", hints=("Which names occur in the runtime's function?",))
class RulesOfTheRuntime(Predict):
    explains = ("The runtime keeps compute away from graphics and copies on a family of their own, "
                "as you do. It never looks at timestamp_valid_bits or queue_count: it uses one "
                "queue of each family, and does not measure inside a run.")  # fmt: skip

    def answers(self) -> Mapping[str, Any]:
        return {"graphics": True, "clock": False, "queue_count": False, "copies": True}


@exercise("02-p4", hints=("Whose limit is asked, and for whom?",))
class FirstDevice(Predict):
    explains = ("The limit of devices[0] is used for all. With the laptop first the phone is told "
                "to run 1024 invocations and allows 256: Vulkan forbids that, and the kernel may "
                "not be created. With the phone first nothing fails, and the laptop's GPUs get a "
                "quarter of their workgroup without a word. Ask each device for its own limit.")

    def answers(self) -> Mapping[str, Any]:
        return {"laptop": True, "phone_first": False, "laptop_first": False}


@exercise("02-p5", hints=("Which character is the first that differs?",))
class NewEnough(Predict):
    explains = ("Version 1.10.0 will be turned away: '1' comes before '2' at the third character. "
                "Keep versions as tuples of numbers, and make text of them only to print them.")

    def answers(self) -> Mapping[str, Any]:
        return {"v1_1_0": False, "v1_3_289": True, "v1_10_0": False}
