"""Exercises of lab 02: a missing GPU, packed versions, queue families, few fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations
from typing import Any

import numpy as np

from vklab_course import words
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, exercise
from vklab_course.definition.kinds import Choice, Predict, Question
from vklab_course.definition.report import Report
from vklab_labs.lab_02.devices import QUEUE_FAMILIES
from vklab_labs.shared.machines import families

CAUSES = {  # what a machine shows -> the cause
    "`libvulkan.so.1`: cannot open shared object file": "no loader",
    "The loader opens and answers 1.3.275. Every `icd.d` folder is empty.": "no manifest",
    "`nvidia_icd.json` names `libGLX_nvidia.so.0`. `ldconfig -p` does not list it.": "no library",
    "`radeon_icd.x86_64.json` and its library are there. `lspci` lists no graphics card. One "
    "device is found: llvmpipe.": "no hardware",
    "`lspci` lists an AMD card, manifest and library are there. Opening `/dev/dri/renderD128` "
    "says: permission denied. One device: llvmpipe.": "no permission",
    "`lspci` lists an Intel GPU, manifest and library are there. `VK_DRIVER_FILES` is set to "
    "`/opt/lavapipe/lvp_icd.json`. One device: llvmpipe.": "hidden",
    "A Mac with MoltenVK. `vulkaninfo` lists the GPU. In your program `vkCreateInstance` says: "
    "incompatible driver.": "not asked for",
    "The GPU is listed with Vulkan 1.1.97. The program needs Vulkan 1.3.": "too old",
}

# By cause: the fact that decides the row, and the reason of the right answer.
WHY = {
    "no loader": (
        "This library is the first thing that a Vulkan program opens.",
        "`libvulkan.so.1` is the loader. Without it, nobody reads manifests or opens drivers.",
    ),
    "no manifest": (
        "The first station has answered with its version. The files of `icd.d` are the next one.",
        "No file names a driver, so the loader opens none. A driver's package brings its manifest.",
    ),
    "no library": (
        "A manifest only names a file. `ldconfig -p` lists the files that the system can open.",
        "The manifest names a library that is not installed. A removed driver often leaves its "
        "manifest behind.",
    ),
    "no hardware": (
        "Both files of the driver are there. `lspci` lists what is plugged into the machine.",
        "The driver looks for its GPU and finds none. llvmpipe needs none: it runs on the "
        "processor.",
    ),
    "no permission": (
        "GPU and driver are there. The kernel of Linux decides who may open a file of `/dev`.",
        "The driver may not open the GPU's file as this user. On many systems the group `render` "
        "may.",
    ),
    "hidden": (
        "If `VK_DRIVER_FILES` is set, the loader reads only the manifests that it lists.",
        "The variable lists lavapipe's manifest only, so the loader never sees Intel's.",
    ),
    "not asked for": (
        "`vulkaninfo` finds the GPU, so all stations work. Its `vkCreateInstance` differs from "
        "yours.",
        "MoltenVK translates to Metal. The loader shows such a driver only to a program that asks "
        "for portability drivers.",
    ),
    "too old": (
        "The GPU is listed, so all stations work. Compare the two versions.",
        "The driver supports Vulkan 1.1, and the program needs 1.3.",
    ),
}


def _machines(*numbers: int) -> dict[str, str]:
    """Return the parameters of a variant: what machines A to E show."""
    shown = list(CAUSES)
    return {letter: shown[number] for letter, number in zip("abcde", numbers, strict=True)}


@exercise(
    "02-1",
    hints=(
        "Walk through the picture from the left. Which station is the first that did not answer?",
        "llvmpipe is a driver without hardware: if it is listed, the loader and one manifest work. "
        "So what stopped the other driver?",
        "A program on macOS has to ask for drivers that translate; vulkaninfo always asks.",
    ),
    variants=(
        _machines(4, 1, 6, 2, 3),
        _machines(5, 3, 0, 4, 7),
        _machines(2, 6, 5, 3, 1),
        _machines(7, 4, 2, 5, 6),
    ),
)
class Causes(Choice):
    parts = {"all": ("every machine", 3)}

    def questions(self) -> Mapping[str, Question]:
        options = tuple(sorted(CAUSES.values()))
        return {
            name.upper(): Question(CAUSES[shown], options, *WHY[CAUSES[shown]])
            for name, shown in self.params.items()
        }


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
        "dict.get takes a second argument: what it returns for a number that is not there.",
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
        usual, driver = _packed((0, 1, 4, 0), api), _packed((25, 2, 7), old)
        for fields in ((1, 3, 289), (1, 4, 0), (127, 1023, 4095), draw(128, 1024, 9)):
            yield self._case("api", 0x8086, _packed((0, *fields), api), driver)
        for variant in (1, 7, 0):
            number = _packed((variant, *draw(128, 1024, 4096)), api)
            yield self._case("variant", 0x1002, number, driver)
        for vendor, fields in (
            (0x8086, (25, 2, 7)),
            (0x1002, (2, 0, 4095)),
            (0x5143, (512, 801, 3)),
            (0x5143, draw(1024, 1024, 4096)),
            (NVIDIA, (580, 159, 4, 0)),
            (NVIDIA, (1023, 255, 255, 63)),
            (NVIDIA, draw(1024, 256, 256, 64)),
        ):
            widths = nvidia if vendor == NVIDIA else old
            yield self._case("driver", vendor, usual, _packed(fields, widths))
        for vendor in (*VENDORS, 0x1234, 0xFFFF, 0xAB, 0x10000, 0x10009):
            yield self._case("driver", vendor, usual, 2**32 - 1)
            yield self._case("vendor", vendor, usual, driver)
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
        return (
            VENDORS.get(vendor, f"{vendor:#x}"),
            ".".join(map(str, numbers)) + (f" (variant {variant})" if variant else ""),
            ".".join(map(str, _fields(driver, *widths))),
        )

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, tuple | list) and len(got) == 3,
            f"expected three texts (vendor, api, driver), got {words.short(got)}",
        )
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
    variants=(
        {"bits": 40, "wraps": "18 minutes"},
        {"bits": 44, "wraps": "5 hours"},
        {"bits": 48, "wraps": "3 days"},
        {"bits": 52, "wraps": "7 weeks"},
    ),
    seams=("vklab.vulkan.device.choose_queue_families",),
    builds=QUEUE_FAMILIES,
)
class PickQueueFamilies(Function):
    parts = {"desktop": ("compute stays away from graphics", 1),
             "clock": ("then a long enough clock, then more queues, then the lower index", 1),
             "copies": ("copies on a family that does nothing else", 1),
             "none": ("no compute at all is a LookupError", 1)}  # fmt: skip
    follows = {"clock": "desktop"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        bits = self.params["bits"]
        lists = {
            "desktop": "1gct/16gct 8ct/2t 1gct 1ct/3gc/1gct 4c/1gct 2ct-0/1ct 1gct",
            "clock": f"1gct 8ct-0 2ct/4gct 2ct-0/1gct 2ct 8ct/4ct 4ct/4gct-0 4gct/2ct-{bits} 2ct/"
            f"8ct-{bits - 1} 2ct-{bits}/1ct-{bits + 4} 2ct-{bits}/1gct 4ct 8cts/"
            "4ct 8ctv 2ct/1gct 2c 2ct/2ct 10ct/1gct 8ct 16ct/2cts 2ct/2ct 2cts/"
            f"1gct 1gct 1gct 1gct 1gct 2ct/2gct 4gct/1ct-{bits - 1} 2ct-36 4ct-0",
            "copies": "16gcts 2ts 8cts 1tv/1gct 1tv 2t/1gct 1tv/1gct 2gt/2t 1gct 4t/1gct 1s/"
            "1ct 2ct/1gct 2t-0 4t/1gct 2sv 1tsv/1gct 16ct 1t",
            "none": "1gt 2t/1gct/2t 1ct/1tv",
        }
        for part, text in lists.items():
            for kinds in text.split("/"):
                yield self._case(part, kinds.split())
        yield Case("none", ((),), on="no families at all")
        made = families("1gct", "2t", "4t", "1t")
        busy = tuple(
            replace(family, flags=family.flags | more)
            for family, more in zip(
                made, ({"protected"}, {"video_encode"}, {"optical_flow"}, set()), strict=True
            )
        )
        yield Case(
            "copies", (busy,), on="four families, of which 1 encodes videos and 2 has optical flow"
        )
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
        report.expect(
            isinstance(got, tuple | list) and len(got) == 2,
            f"expected two indices (compute, copies), got {words.short(got)}",
        )
        (made,), (compute, copies) = case.args, case.expected
        if report.part == "desktop":
            report.expect(got[0] in range(len(made)), f"there is no family {words.short(got[0])}")
            has, avoidable = ("graphics" in made[n].flags for n in (got[0], compute))
            report.expect("compute" in made[got[0]].flags, f"family {got[0]} does not compute")
            report.expect(
                has <= avoidable, f"family {got[0]} has graphics, and another one computes without"
            )
        elif report.part == "copies" and copies == compute:
            report.expect(
                got[1] == got[0],
                "no family only copies: expected your compute family, "
                f"{words.short(got[0])}, got {words.short(got[1])}",
            )
        elif report.part == "copies":
            report.equal(got[1], copies, "the index for copies")
        else:  # the clock
            report.equal(got[0], compute, "the index of the compute family")


# ------------------------------------------------------------------ fields that tell devices apart

# field -> bytes (0: those of its longest text), and the values that a device may have
FIELDS: Mapping[str, tuple[int, tuple[Any, ...]]] = {
    "name": (0, ("Aspen 7", "Aspen 9 Pro", "Birch", "Cedar 6", "Cedar 6 Ti", "Maple")),
    "driver": (0, ("radv", "anv", "turnip", "nvk", "panvk")), "type": (1, (0, 1, 2, 3, 4)),
    "subgroup": (1, (8, 16, 32, 64)), "families": (1, (1, 2, 3, 4)),
    "extensions": (2, (98, 131, 154, 187, 203)), "heapMiB": (3, (4096, 8188, 12282, 16368)),
    "vendorID": (4, tuple(VENDORS)), "deviceID": (4, (0x2684, 0x56A0, 0x73BF, 0x744C)),
    "apiVersion": (4, (4202496, 4206592, 4206881, 4210688)),
    "driverVersion": (4, (8388612, 100663296, 104857600, 2428243968)),
}  # fmt: skip
Sizes, Values = Mapping[str, int], Mapping[str, Sequence[Any]]


def pairs_told(values: Values) -> dict[str, int]:
    """Return by field the pairs of devices that differ in it, as bits."""
    return {
        name: sum((a != b) << place for place, (a, b) in enumerate(combinations(column, 2)))
        for name, column in values.items()
    }


def fewest_bytes(sizes: Sizes, pairs: Mapping[str, int], most: int = 99) -> dict[int, int]:
    """Return by number of fields the least bytes, up to `most`, that tell all devices apart."""
    sums: list[tuple[int, int, int]] = [(0, 0, 0)]
    for name, bits in pairs.items():
        sums += [
            (size + sizes[name], told | bits, count + 1)
            for size, told, count in sums
            if size + sizes[name] <= most
        ]
    everything = reduce(int.__or__, pairs.values())
    return {count: size for size, told, count in sorted(sums, reverse=True) if told == everything}


def natural_bytes(sizes: Sizes, pairs: Mapping[str, int]) -> dict[str, int]:
    """Return the bytes of natural answers; a thinned one leaves out what it does not need."""

    def told(names: Iterable[str]) -> int:
        return reduce(int.__or__, (pairs[name] for name in names), 0)

    answers: dict[str, list[str]] = {"all fields": list(sizes), "the UUID": ["deviceUUID"]}
    worths: Mapping[str, Callable[[int, int], float]] = {
        "cheapest first": lambda size, new: -size,
        "most pairs": lambda size, new: new,
        "most pairs per byte": lambda size, new: new / size,
    }
    for title, worth in worths.items():
        chosen = answers[title] = []
        while (seen := told(chosen)) != told(sizes):
            new = {name: (bits & ~seen).bit_count() for name, bits in pairs.items() if bits & ~seen}
            chosen.append(max(new, key=lambda name: worth(sizes[name], new[name])))
    for title, names in list(answers.items()):
        for order in (names, names[::-1]):  # of fields with equally many bytes
            thin = sorted(order, key=lambda name: sizes[name])
            for name in thin[::-1]:
                fewer = [other for other in thin if other != name]
                thin = fewer if told(fewer) == told(sizes) else thin
            answers[f"{title}, thinned" + " backwards" * (order is names)] = thin
    return {title: sum(sizes[name] for name in names) for title, names in answers.items()}


def _park(random: np.random.Generator, count: int) -> tuple[dict[str, int], dict[str, Any]]:
    """Draw `count` devices with ten fields, the UUID last."""
    values: dict[str, Any] = {}
    for name in random.permutation(list(FIELDS))[:9].tolist():
        size, pool = FIELDS[name]
        few = random.permutation(len(pool))[: random.integers(2, 4 if 0 < size < 3 else 5)]
        values[name] = [pool[n] for n in random.choice(few, count)]
    values["deviceUUID"] = [random.bytes(8).hex() for _ in range(count)]
    sizes = {
        name: FIELDS.get(name, (16,))[0] or max(map(len, column)) for name, column in values.items()
    }
    return sizes, values


def _hard(part: str, random: np.random.Generator, few: int) -> Case:
    """Draw until no natural answer is best, and no answer with at most `few` fields."""
    while True:
        sizes, values = _park(random, int(random.integers(10, 15)))
        pairs = pairs_told(values)
        natural = natural_bytes(sizes, pairs)
        plain = min(size for title, size in natural.items() if "thinned" not in title)
        least = fewest_bytes(sizes, pairs, plain - 2)
        best = min(least.values(), default=plain)
        if best < min(natural.values()) and all(least.get(n, 99) > best for n in range(few + 1)):
            return _apart(part, sizes, values, plain)


def _apart(part: str, sizes: Sizes, values: Values, natural: int = 0) -> Case:
    on = f"sizes={sizes}, " + (
        f"values={values}" if len(sizes) < 3 else f"{len(next(iter(values.values())))} devices"
    )
    return Case(part, (sizes, values), on=on, facts={"natural": natural})


@exercise(
    "02-4",
    hints=(
        "First write the question alone: given a list of fields, are two devices the same in all "
        "of them? Count how many different rows there are.",
        "Ten fields have 1024 lists, so a program can try them all. What do you keep from one try "
        "to the next?",
        "A field that tells few pairs apart may be the one that completes a cheap list. So do not "
        "decide field by field: compare whole lists by their bytes.",
    ),
    extra=True,
)
class TellApart(Function):
    parts = {
        "valid": ("the fields tell all devices apart", 1),
        **{
            name: (f"the bytes for the {name} random list of devices", 1)
            for name in ("first", "second", "third")
        },
    }

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for types, models in (([2, 2], [7, 8]), ([2, 1], [7, 7]), ([1, 1, 2], [7, 8, 8])):
            yield _apart("valid", {"type": 1, "deviceID": 4}, {"type": types, "deviceID": models})
        # As texts in a row, 1 and 11 are the same as 11 and 1.
        yield _apart(
            "valid", {"type": 1, "deviceID": 4}, {"type": [1, 11, 1], "deviceID": [11, 1, 1]}
        )
        # With commas between them, too.
        commas = {"name": ["a,b", "a", "a"], "type": ["c", "b,c", "c"]}
        yield _apart("valid", dict.fromkeys(commas, 9), commas)
        # Each device differs from the first one in a field of its own, so all six are needed.
        single = {f"f{n}": [0] * n + [0, 1] + [0] * (5 - n) for n in range(6)}
        yield _apart("valid", dict.fromkeys(single, 4), single)
        for count in (8, 8, 12):
            yield _apart("valid", *_park(random, count))
        for part, few in (("first", 2), ("second", 3), ("third", 3)):
            yield _hard(part, random, few)

    def expected(self, case: Case) -> Any:
        sizes, values = case.args
        return min(fewest_bytes(sizes, pairs_told(values)).values())

    def compare(self, case: Case, got: Any, report: Report) -> None:
        sizes, values = case.args
        report.expect(
            isinstance(got, list | tuple) and all(isinstance(n, str) for n in got),
            f"expected a list of names of fields, got {words.short(got)}",
        )
        strange = [str(name) for name in got if name not in sizes]
        report.expect(not strange, f"there is no field {strange[:1]}")
        report.expect(len(set(got)) == len(got), f"a field occurs twice in {words.short(got)}")
        rows: dict[tuple[Any, ...], int] = {}
        for number in range(len(next(iter(values.values())))):
            row = tuple(column[number] for column in map(values.get, got))
            other = rows.setdefault(row, number)
            report.expect(
                other == number,
                f"devices {other} and {number} are the same in all of {words.short(list(got))}",
            )
        if report.part != "valid":
            report.score(
                sum(sizes[name] for name in got), case.expected, case.facts["natural"], "bytes"
            )


# ------------------------------------------------------------------------------------- predictions


@exercise("02-p1", hints=("Who holds a Python reference to what?",))
class Alive(Predict):
    explains = (
        "A is there, because a Python variable holds it. C is gone: the bindings copied "
        "the bytes of B, one of a list, into an array of structures, and a pointer among "
        "bytes keeps nothing alive. With this A, vkCreateDevice reads freed "
        "memory."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"A": True, "C": False}
