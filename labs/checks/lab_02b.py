"""Exercises of lab 02b: refusals, rented devices, and two mistakes of other people's machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from vklab.types import DeviceInfo, MemoryHeap
from vklab_course import words
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, exercise
from vklab_course.definition.kinds import Predict
from vklab_course.definition.report import Report
from vklab_labs.shared.machines import Needs, machine

# -------------------------------------------------------------------------------------- refusals

INVOCATIONS, ALIGNMENT = "maxComputeWorkGroupInvocations", "minStorageBufferOffsetAlignment"


@exercise(
    "02b-1",
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
    parts = {
        "version": ("version and queue", 1),
        "features": ("features", 1),
        "limits": ("limits: at least, and at most", 1),
        "heap": ("the largest device-local heap, and the order of the questions", 1),
    }
    follows = {"heap": "limits"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        (phone,), (station, video), old = (
            machine("phone"),
            machine("workstation"),
            machine("server")[2],
        )
        fp16, both = ("shaderFloat16",), ("shaderInt8", "shaderInt64", "shaderFloat16")
        pairs = [
            ((1, 2, 154), (1, 3)),
            ((1, 2, 154), (1, 2)),
            ((1, 3, 0), (1, 3)),
            ((1, 4, 0), (1, 3)),
            ((2, 0, 0), (1, 3)),
            ((1, 3, 128), (1, 10)),
            ((1, 10, 0), (1, 9)),
            ((1, 10, 0), (2, 0)),
            ((1, 5, 3), (2, 4)),
        ]
        pairs += [
            ((major, minor, 0), (other, least))
            for major, minor, other, least in random.integers(1, 13, (6, 4)).tolist()
        ]
        for version, wanted in pairs:
            yield self._case("version", replace(station, api_version=version), Needs(wanted))
        for device, queue in (
            (video, "compute"),
            (phone, "graphics"),
            (phone, "video_decode"),
            (station, "video_decode"),
            (station, "video"),
            (machine("laptop")[1], "sparse_binding"),
        ):
            yield self._case("version", device, Needs(queue=queue))
        yield self._case("version", replace(video, api_version=(1, 2, 0)), Needs())
        for version, wanted in (((1, 30, 0), (2, 4)), ((1, 1023, 0), (2, 0))):
            yield self._case("version", replace(station, api_version=version), Needs(wanted))
        late, part = ("shaderInt8", "timelineSemaphore", *fp16), ("synchronization",)
        for device, features in (
            (phone, both[:1]),
            (phone, fp16),
            (phone, both),
            (station, both),
            (phone, late),
            (station, part),
        ):
            yield self._case("features", device, Needs(features=features))
        most = int(random.integers(300, 1000))
        some = replace(phone, limits={**phone.limits, INVOCATIONS: most})
        for device, least, largest in (
            (phone, {INVOCATIONS: 256}, {}),
            (phone, {INVOCATIONS: 257}, {}),
            (phone, {}, {ALIGNMENT: 64}),
            (phone, {}, {ALIGNMENT: 63}),
            (some, {INVOCATIONS: most}, {}),
            (some, {INVOCATIONS: most + 1}, {}),
            (phone, {"maxPushConstantsSize": 128, INVOCATIONS: 512}, {ALIGNMENT: 16}),
        ):
            yield self._case("limits", device, Needs(at_least=least, at_most=largest))
        shared, constants = "maxComputeSharedMemorySize", "maxPushConstantsSize"
        for least, largest in (
            ({constants: 200, INVOCATIONS: 512, shared: 10**6}, {}),
            ({constants: 129}, {}),
            ({shared: 10**6, constants: 200}, {}),
            ({ALIGNMENT: 65}, {}),
            ({constants: 128, INVOCATIONS: 256, shared: 10**6}, {}),
            ({}, {INVOCATIONS: 100, ALIGNMENT: 16}),
            ({}, {INVOCATIONS: 256, ALIGNMENT: 16}),
            ({}, {INVOCATIONS: 255}),
            ({}, {ALIGNMENT: 16, INVOCATIONS: 100}),
        ):
            yield self._case("limits", phone, Needs(at_least=least, at_most=largest))
        mib = int(random.integers(900, 9000))
        split = (
            MemoryHeap(700 << 20, True, 0, 0),
            MemoryHeap(mib << 20, True, 0, 0),
            MemoryHeap(40000 << 20, False, 0, 0),
        )
        for heap in (mib, mib + 1, mib + 700):
            yield self._case("heap", replace(station, heaps=split), Needs(heap_mib=heap))
        full = MemoryHeap(mib << 20, True, 0, (mib << 20) // 2)  # usage is not the question
        less = MemoryHeap((mib << 20) - 1, True, 0, 0)
        for heaps in ((split[1], split[2], split[0]), (full,), (less,)):
            yield self._case("heap", replace(station, heaps=heaps), Needs(heap_mib=mib))
        yield self._case("heap", machine("laptop")[0], Needs(heap_mib=10**5))
        for device, needs in (
            (station, Needs(heap_mib=16112)),
            (station, Needs(heap_mib=16200)),
            (old, Needs(features=("nothing",), heap_mib=10**6)),
            (video, Needs(features=("nothing",))),
            (phone, Needs(features=fp16, at_least={INVOCATIONS: 512})),
            (phone, Needs(at_most={ALIGNMENT: 1}, heap_mib=10**6)),
        ):
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
            sizes = (
                f"{heap.size_bytes >> 20}{'' if heap.device_local else ' (host)'}"
                for heap in device.heaps
            )
            told.append(f"heaps of {', '.join(sizes)} MiB")
        needed = ", ".join(f"{key}={value!r}" for key, value in asked.items())
        return Case(part, (device, needs), on=f"a device with {', '.join(told)}; Needs({needed})")

    def expected(self, case: Case) -> Any:
        device, needs = case.args
        local = [heap.size_bytes for heap in device.heaps if heap.device_local]
        met = {
            "version": device.api_version[:2] >= needs.api_version,
            f"queue:{needs.queue}": any(needs.queue in f.flags for f in device.queue_families),
        }
        met |= {f"feature:{name}": name in device.features for name in needs.features}
        met |= {f"limit:{n}": device.limits[n] >= value for n, value in needs.at_least.items()}
        met |= {f"limit:{n}": device.limits[n] <= value for n, value in needs.at_most.items()}
        met["heap"] = max(local) >= needs.heap_mib * 2**20
        return next((code for code, right in met.items() if not right), "")


# ---------------------------------------------------------------------------------- rented devices

Devices = Mapping[str, tuple[int, int]]
Programs = Mapping[str, tuple[int, tuple[str, ...]]]


def sets_of(devices: Devices, programs: Programs) -> list[tuple[int, tuple[str, ...]]]:
    """Return (price, names) of the sets of devices with enough memory in all, cheapest first."""
    total = sum(mib for mib, _ in programs.values())
    return sorted(
        (sum(devices[name][0] for name in some), some)
        for count in range(6)
        for some in combinations(devices, count)
        if sum(devices[name][1] for name in some) >= total
    )


def cheapest(devices: Devices, programs: Programs, most: int = 5) -> int | None:
    """Return the price of the cheapest set of at most `most` devices for all programs, exactly."""
    everything = (1 << len(programs)) - 1
    loads: dict[str, list[int]] = {}  # programs that fit together, with no room for one more
    for name, (_, room) in devices.items():
        able = [
            (number, mib)
            for number, (mib, suited) in enumerate(programs.values())
            if name in suited
        ]
        fit = [(0, room)]
        for number, mib in able:
            fit += [(load | 1 << number, left - mib) for load, left in fit if left >= mib]
        loads[name] = [
            load
            for load, left in fit
            if all(load >> number & 1 or left < mib for number, mib in able)
        ]
    for price, some in sets_of(devices, programs):
        placed = {0}
        for name in some if len(some) <= most else ():
            placed = {done | load for done in placed for load in loads[name]}
        if everything in placed and len(some) <= most:
            return price
    return None


def obvious(devices: Devices, programs: Programs) -> dict[str, int]:
    """Return the prices of the obvious answers by name; those that find no place are left out."""
    by_size = sorted(programs, key=lambda name: -programs[name][0])
    every = [
        n
        for n, (_, room) in devices.items()
        if room >= sum(p[0] for p in programs.values())
        and all(n in suited for _, suited in programs.values())
    ]
    prices = {
        "one device for all": min((devices[n][0] for n in every), default=None),
        "in the given order": _one_by_one(devices, programs, list(programs)),
        "largest first": _one_by_one(devices, programs, by_size),
    }
    return {name: price for name, price in prices.items() if price is not None}


def _one_by_one(devices: Devices, programs: Programs, order: list[str]) -> int | None:
    """Place each program on a device in use, else on the cheapest one that fits."""
    left: dict[str, int] = {}
    for name in order:
        mib, suited = programs[name]
        places = [
            (d not in left, devices[d][0], d) for d in suited if left.get(d, devices[d][1]) >= mib
        ]
        if not places:
            return None
        place = min(places)[2]
        left[place] = left.get(place, devices[place][1]) - mib
    return sum(devices[name][0] for name in left)


def in_passes(devices: Devices, programs: Programs, orders: Iterable[Sequence[str]]) -> int:
    """Return the price of the first set that one greedy pass fills: a strong answer.

    For each set and order it tries three rules: the first device with room, the fullest one, the
    emptiest one.
    """
    tried = list(orders)
    for price, some in sets_of(devices, programs):
        for order in tried:
            for sign in (0, 1, -1):
                left = {name: devices[name][1] for name in some}
                for program in order:
                    mib, suited = programs[program]
                    fits = [(sign * left[d], d) for d in suited if left.get(d, -1) >= mib]
                    if not fits:
                        break
                    left[min(fits)[1]] -= mib
                else:
                    return price
    raise LookupError("no pass places all programs")


def orders_of(programs: Programs) -> list[list[str]]:
    """Return four orders: as given, by size from either end, and the pickiest program first."""
    by_size = sorted(programs, key=lambda name: -programs[name][0])
    pickiest = sorted(by_size, key=lambda name: len(programs[name][1]))
    return [list(programs), by_size, by_size[::-1], pickiest]


def _hard(part: str, random: np.random.Generator, cuts: Sequence[int], passes: int) -> Case:
    """Draw until no obvious answer is cheapest, nor the best of some greedy passes near it.

    Each number of `cuts` is a device that programs of that number fill to the last MiB. `passes`
    orders are drawn, beside four fixed ones.
    """
    while True:
        rooms = random.choice([6, 8, 10, 12, 16, 20], 5).tolist()
        devices = {
            n: (int(room * random.integers(7, 12)), room * 1000)
            for n, room in zip("ABCDE", rooms, strict=True)
        }
        hosts, drawn = random.permutation(5)[: len(cuts)].tolist(), []
        for host, count in zip(hosts, cuts, strict=True):
            ends = random.choice(np.arange(6, 10 * rooms[host] - 5), count - 1, replace=False)
            for mib in np.diff([0, *sorted(ends), 10 * rooms[host]]).tolist():
                able = [n for i, n in enumerate(devices) if i == host or random.random() < 0.75]
                drawn.append((mib * 100, tuple(able)))
        programs = dict(
            zip("pqrstuvwxy", (drawn[i] for i in random.permutation(len(drawn))), strict=False)
        )
        planted = sum(list(devices.values())[host][0] for host in hosts)
        natural = min(obvious(devices, programs).values(), default=0)
        if planted > 0.9 * natural:
            continue
        orders = orders_of(programs)
        orders += [random.permutation(list(programs)).tolist() for _ in range(passes)]
        strong = planted + 0.4 * (natural - planted)  # earns 60 % of the points
        if in_passes(devices, programs, orders) < strong:
            continue
        few, price = (cheapest(devices, programs, len(cuts) - less) for less in (1, 0))
        if price is not None and (few is None or few > price):
            return _renting(part, devices, programs)


def _renting(part: str, devices: Devices, programs: Programs) -> Case:
    natural = min(obvious(devices, programs).values(), default=0)
    on = {"valid": f"devices={devices}, programs={programs}", "picture": "the picture's lists"}
    return Case(
        part,
        (devices, programs),
        facts={"natural": natural},
        on=on.get(part, f"the {part} random list"),
    )


@exercise(
    "02b-2",
    hints=(
        "Two questions, one after the other: which set of devices do I try next, and does "
        "everything fit on that set?",
        "Five devices have 31 sets, the cheapest comes first: stop at the first that works.",
        "Does everything fit? Try a device for the first program, and ask the same question about "
        "the rest of the programs and of the memory. If the answer is no, try the next device.",
        "Without recursion: place the largest program first, on the fullest device that still has "
        "room. On many a set with room for all it finds no place, so it earns little.",
    ),
    extra=True,
)
class RentDevices(Function):
    parts = {"valid": ("every program has a device that suits it and has room", 1),
             "picture": ("the price of the picture's seven programs", 1),
             **{name: (f"the price of the {name} random list", 1)
                for name in ("first", "second", "third")}}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        yield _renting("valid", {"A": (7, 900)}, {"p": (900, ("A",))})
        yield _renting("valid", {"A": (7, 900)}, {})
        yield _renting(
            "valid",
            {"A": (9, 900), "B": (2, 1000)},
            {"p": (400, ("A", "B")), "q": (500, ("A",)), "r": (1, ("A", "B"))},
        )
        for least in (900, 200):  # five devices have room for any five programs, however placed
            sizes = random.integers(least, 901, 5).tolist()
            yield _renting(
                "valid",
                dict.fromkeys("ABCDE", (5, 900)),
                {n: (mib, tuple("ABCDE")) for n, mib in zip("pqrst", sizes, strict=True)},
            )
        both, sizes = ("A", "B", "C"), (2000, 2000, 2000, 3000, 5000, 2000, 4000)
        yield _renting(
            "picture",
            {"A": (50, 10000), "B": (52, 10000), "C": (30, 4000)},
            {name: (mib, both) for name, mib in zip("pqrstuv", sizes, strict=True)},
        )
        for part, cuts, passes in (
            ("first", (4, 4), 5),
            ("second", (3, 3, 3), 5),
            ("third", (3, 3, 2, 2), 40),
        ):
            yield _hard(part, random, cuts, passes)

    def expected(self, case: Case) -> Any:
        return cheapest(*case.args)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        devices, programs = case.args
        report.expect(
            isinstance(got, dict) and all(isinstance(d, str) for d in got.values()),
            f"expected a dictionary from program to device, got {words.short(got)}",
        )
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
            price = sum(devices[device][0] for device in used)
            report.score(price, case.expected, case.facts["natural"], "cents an hour")
            if price > case.expected and report.part != "picture":
                report.note(f"{case.on}: devices={devices}, programs={programs}")


# --------------------------------------------------------------------- two mistakes, mended in one


@exercise(
    "02b-3",
    hints=(
        "Which device does each line ask? Put your finger on the 0.",
        "A version has three numbers on the device, and is a text in `oldest`. Which of the two do "
        "you turn into the other, so that 10 counts more than 3?",
        'text.split(".") gives a list of texts; int(...) turns one of them into a number. Tuples '
        "of numbers compare number by number, even if one is longer.",
    ),
)
class MendedSizes(Function):
    parts = {
        "own": ("each device has its own limit", 1),
        "version": ("versions are compared as numbers", 1),
    }
    follows = {"version": "own"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        (phone,), (station, _) = machine("phone"), machine("workstation")
        for limits in (
            (256, 1024),
            (1024, 256),
            (512, 128, 1024),
            (128,),
            (1024, 1024, 384),
            (),
            random.integers(128, 1025, 4).tolist(),
        ):
            for wanted in (64, 300, 1024):
                made = [replace(phone, limits={**phone.limits, INVOCATIONS: n}) for n in limits]
                yield self._case("own", made, wanted, "1.1")
        lists = [
            ("1.1.0 1.3.289 1.10.0", "1.2"),
            ("1.2.154 1.2.0 1.1.300", "1.2"),
            ("1.3.289 1.10.0 2.0.0", "1.10"),
            ("1.10.0 1.9.9 2.1.0", "1.9"),
            ("1.2.154 1.2.99 1.3.0", "1.2.100"),
            ("1.2.100", "1.2.100"),
            ("1.30.0 2.0.5 2.4.1", "2.0"),
            ("1.4.0 1.2.200", "1.3.128"),
            ("1.0.4095 1.2.0", "1.1"),
            ("1.999.0 1.1023.7", "1.1000"),
        ]
        drawn = random.integers(0, 13, (6, 4)).tolist()
        lists += [(f"1.{a}.7 2.{b}.0 1.{c}.12", f"1.{d}") for a, b, c, d in drawn]
        for versions, oldest in lists:
            made = [
                replace(station, api_version=tuple(map(int, version.split("."))))
                for version in versions.split()
            ]
            yield self._case("version", made, 512, oldest)

    def _case(self, part: str, made: list[DeviceInfo], wanted: int, oldest: str) -> Case:
        told = ", ".join(
            f"Vulkan {'.'.join(map(str, d.api_version))} and {d.limits[INVOCATIONS]}" for d in made
        )
        return Case(
            part,
            (tuple(made), wanted, oldest),
            on=f"devices with {told or 'nothing'}; wanted={wanted}, oldest={oldest!r}",
        )

    def expected(self, case: Case) -> Any:
        devices, wanted, oldest = case.args
        numbers = [int(part) for part in oldest.split(".")]
        return [
            min(wanted, device.limits[INVOCATIONS])
            if list(device.api_version[: len(numbers)]) >= numbers
            else 0
            for device in devices
        ]


# ------------------------------------------------------------------------------------- predictions


@exercise("02b-p1", hints=("Whose limit is asked, and for whom?",))
class FirstDevice(Predict):
    explains = (
        "The limit of devices[0] is used for all. With the laptop first the phone is told "
        "to run 1024 invocations and allows 256: Vulkan forbids that, and the kernel may "
        "not be created. With the phone first nothing fails, and each device of the "
        "laptop gets a quarter of its workgroup. Ask each device for its own limit."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"laptop": True, "phone_first": False, "laptop_first": False}


@exercise("02b-p2", hints=("Which field is the first that differs?",))
class Comparisons(Predict):
    explains = (
        "Packed numbers compare like versions, as long as the variants are equal: a higher "
        "field outweighs all fields to its right. Tuples compare number by number. Text "
        "compares character by character: '1.10' and '1.3' differ first at '1' against "
        "'3', so version 1.10 counts as the older one."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"packed": True, "tuples": True, "text": False}
