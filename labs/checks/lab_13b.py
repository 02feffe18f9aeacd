"""Exercises of lab 13b: paths of values, shards of a product, a ring, an early read, claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from vklab_course import words
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, Value, exercise
from vklab_course.definition.kinds import Choice, Predict, Question
from vklab_course.definition.report import Report
from vklab_labs.lab_13.parallelism import even_parts, events_of, replay, step_times
from vklab_labs.lab_13.transfers import TRANSFER_PATHS

OFFERS = ("opaque_fd", "dma_export", "dma_import", "host_import")
Facts = dict[str, Any]


def _device(uuid: str = "a", offers: str = "", direct: bool = False, group: int | None = None,
            element_bytes: int = 4) -> Facts:  # fmt: skip
    return {
        "uuid": uuid,
        "group": group,
        "offers": tuple(offers.split()),
        "direct": direct,
        "element_bytes": element_bytes,
    }


def _told(source: Facts, target: Facts, elements: int) -> str:
    def device(facts: Facts) -> str:
        offers = ", ".join(facts["offers"]) or "nothing"
        return (
            f"{facts['uuid']} ({'direct' if facts['direct'] else 'not direct'}, group "
            f"{facts['group']}, {facts['element_bytes']} bytes, offers {offers})"
        )

    return f"{elements} elements from {device(source)} to {device(target)}"


def all_paths(source: Facts, target: Facts, elements: int) -> list[tuple[str, int]]:
    """Return every path that works, in the order of the table, with the bytes that it copies."""
    left, there = elements * source["element_bytes"], elements * target["element_bytes"]
    ends = left * (not source["direct"]) + there * (not target["direct"])
    found = []
    if left == there:
        gives, takes = set(source["offers"]), set(target["offers"])
        if source["uuid"] == target["uuid"] and "opaque_fd" in gives & takes:
            found.append(("opaque fd", 0))
        if source["group"] == target["group"] is not None:
            found.append(("device group", left))
        if "dma_export" in gives and "dma_import" in takes:
            found.append(("dma-buf", left))
        if "host_import" in gives & takes:
            name = "shared host" if source["direct"] or target["direct"] else "ring"
            found.append((name, ends))
    return [*found, ("host copy", ends + there)]


@exercise(
    "13b-1",
    hints=(
        "Collect every path whose conditions hold, in the order of the table, with its bytes. "
        "Which built-in function returns the first of the smallest?",
        "Each end without direct access costs one copy. The two ends may have elements of "
        "different sizes: which size has each of the copies?",
        "Two devices without a group have the same group, None.",
    ),
    seams=(
        "vklab.plan.place.transfer_paths.unseen",
        "vklab.plan.place.transfer_paths._moves_past",
    ),
    builds=TRANSFER_PATHS,
)
class ChoosePath(Function):
    parts = {"devices": ("opaque fd, device group and dma-buf, only where they work", 2),
             "host": ("shared host memory, ring and host copy, with their bytes", 1),
             "best": ("the fewest bytes; of equal ones the first in the table", 1),
             "sizes": ("elements of different sizes, and no elements", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for part, args in self._drawn(random):
            yield Case(part, args, on=_told(*args))

    def _drawn(self, random: np.random.Generator) -> Iterable[tuple[str, tuple[Any, ...]]]:
        for one, other in (
            (_device("a", "opaque_fd"), _device("a", "opaque_fd")),
            (_device("a", "opaque_fd"), _device("b", "opaque_fd")),
            (_device("a", "opaque_fd"), _device("a")),
            (_device("a"), _device("a", "opaque_fd")),
            (_device("a", group=3), _device("a", group=3)),
            (_device("a", "dma_export dma_import"), _device("a", "dma_export dma_import")),
            (_device("a", "dma_export"), _device("b", "dma_export")),
            (_device("a", "dma_import"), _device("b", "dma_import")),
            (_device("a", group=0), _device("b", group=0)),
            (_device("a", group=1), _device("b", group=2)),
            (_device("a", group=1), _device("b")),
            (_device("a", "dma_export"), _device("b", "dma_import")),
            (_device("a", "dma_import"), _device("b", "dma_export")),
        ):
            yield "devices", (one, other, 10)
        for direct in ((False, False), (True, False), (False, True), (True, True)):
            for offers in (("host_import",) * 2, ("host_import", ""), ("", "host_import")):
                pair = [
                    _device(uuid, text, end)
                    for uuid, text, end in zip("ab", offers, direct, strict=True)
                ]
                yield "host", (*pair, int(random.integers(2, 99)))
        yield "host", (_device("a", "host_import"), _device("a", "host_import"), 1)
        both = "dma_export dma_import host_import"
        for direct in ((False, True), (True, True), (False, False)):
            pair = [_device(u, both, d) for u, d in zip("ab", direct, strict=True)]
            yield "best", (*pair, 6)
        yield "best", (_device("a", both, group=0), _device("b", both, group=0), 6)
        yield "best", (_device("a", both, True, 0), _device("b", both, True, 0), 6)
        for _ in range(12):
            size = int(random.choice([1, 2, 4, 8]))
            pair = [
                _device(
                    str(random.choice(["a", "b"])),
                    " ".join(o for o in OFFERS if random.random() < 0.7),
                    bool(random.integers(2)),
                    [None, 0, 1][int(random.integers(3))],
                    size,
                )
                for _ in range(2)
            ]
            yield "best", (*pair, int(random.integers(1, 50)))
        for direct in ((False, False), (True, False), (False, True), (True, True)):
            for sizes in ((2, 4), (4, 2), (1, 2), (8, 4)):
                pair = [
                    _device("a", "opaque_fd " + both, d, 0, size)
                    for d, size in zip(direct, sizes, strict=True)
                ]
                yield "sizes", (*pair, int(random.integers(2, 99)))
        yield "sizes", (_device("a"), _device("b"), 0)
        yield "sizes", (_device("a", both), _device("b", both, element_bytes=2), 0)

    def expected(self, case: Case) -> Any:
        if not case.args[2]:
            return "nothing", 0
        return min(all_paths(*case.args), key=lambda path: path[1])

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, list | tuple) and len(got) == 2,
            f"expected (path, bytes), got {words.short(got)}",
        )
        report.equal(got[0], case.expected[0], "which paths work here, and what does each copy?")
        report.equal(got[1], case.expected[1], f"bytes copied by the path {case.expected[0]!r}")


@exercise(
    "13b-2",
    hints=(
        "Device 0 has the first part of both axes. `even_parts` gives the parts of one axis.",
        "All devices of one column of the grid hold partial sums of the same elements of C. How "
        "many elements are that, over all columns together?",
        "Every row of the grid gathers C for itself: count the rows, too.",
    ),
    variants=({"bytes": 4}, {"bytes": 2}, {"bytes": 8}, {"bytes": 1}, {"bytes": 16}),
)
class ShardMatmul(Function):
    parts = {"columns": ("B cut by columns: slices and all-gather", 1),
             "rows": ("B cut by rows: slices and all-reduce", 1),
             "grid": ("B cut both ways", 2),
             "edges": ("empty parts, empty products, and a grid without devices", 1)}  # fmt: skip
    follows = {"grid": "columns rows", "edges": "columns rows grid"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        def drawn(least: int = 3, most: int = 30) -> list[int]:
            return [int(n) for n in random.integers(least, most, 3)]

        def case(part: str, *args: int) -> Case:
            named = zip(("m", "k", "n", "rows", "columns"), args, strict=True)
            return Case(part, args, on=", ".join(f"{name} = {size}" for name, size in named))

        for part, grids in (
            ("columns", ((1, 2), (1, 3), (1, 1), (1, 4))),
            ("rows", ((2, 1), (3, 1), (1, 1), (5, 1))),
            ("grid", ((2, 2), (2, 3), (3, 2), (4, 2))),
        ):
            for rows, columns in grids:
                yield case(part, *drawn(rows + columns), rows, columns)
        yield case("grid", 2, 4, 6, 2, 2)
        for args in (
            (5, 2, 7, 4, 1),
            (5, 7, 2, 1, 4),
            (3, 1, 1, 2, 3),
            (0, 4, 4, 2, 2),
            (4, 0, 4, 2, 2),
            (4, 4, 0, 2, 2),
            (4, 4, 4, 0, 2),
            (4, 4, 4, 2, 0),
            (4, 4, 4, -1, -1),
            (4, 4, 4, -2, 3),
            (4, 4, 4, 3, -2),
        ):
            yield case("edges", *args)

    def expected(self, case: Case) -> Any:
        m, k, n, rows, columns = case.args
        if rows < 1 or columns < 1:
            raise ValueError("a grid needs at least one row and one column")
        shards = [(a, b) for a in even_parts(k, rows) for b in even_parts(n, columns)]
        whole = m * n * self.params["bytes"]
        return shards, 2 * (rows - 1) * whole, rows * (columns - 1) * whole

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, list | tuple)
            and len(got) == 3
            and isinstance(got[0], list | tuple | np.ndarray),
            f"expected (shards, all-reduce bytes, all-gather bytes), got {words.short(got)}",
        )
        shards, reduced, gathered = case.expected
        report.expect(
            len(got[0]) == len(shards), f"expected {len(shards)} shards, got {len(got[0])}"
        )
        for number, (mine, right) in enumerate(zip(got[0], shards, strict=True)):
            mine = mine.tolist() if isinstance(mine, np.ndarray) else mine
            report.equal(mine, right, f"the shard of device {number}")
        report.equal(got[1], reduced, "bytes of the all-reduces")
        report.equal(got[2], gathered, "bytes of the all-gathers")


@exercise(
    "13b-3",
    hints=(
        "Cut the elements into as many parts as there are devices. In each step every device sends "
        "one part to its right neighbour.",
        "In the first step device d sends part d. In the next step it sends the part that it has "
        "just received. Which number has that part?",
        "After devices - 1 steps each device has one finished part. From then on, what arrives "
        "replaces what is there.",
    ),
)
class RingAllReduce(Function):
    parts = {"sum": ("every device ends with the sum of all, each counted once", 2),
             "time": ("no slower than the ring", 2),
             "uneven": ("uneven parts, fewer elements than devices, one device", 1)}  # fmt: skip
    follows = {"time": "sum", "uneven": "sum time"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        def case(part: str, devices: int, elements: int) -> Case:
            return Case(part, (devices, elements), on=f"{devices} devices, {elements} elements")

        for devices in (2, 3, 4, 5):
            yield case("sum", devices, devices * int(random.integers(1, 4)))
        for devices in (2, 3, 4, 6, 8):
            yield case("time", devices, devices * int(random.integers(2, 5)))
        for devices, elements in ((4, 10), (3, 8), (5, 3), (4, 1), (3, 0), (1, 6), (6, 13)):
            yield case("uneven", devices, elements)

    def expected(self, case: Case) -> Any:
        devices, elements = case.args
        return 2 * (devices - 1) * -(-elements // devices)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        devices, elements = case.args
        report.expect(
            isinstance(got, list | tuple) and all(isinstance(step, list | tuple) for step in got),
            f"expected a list of steps, each a list of sends, got {words.short(got)}",
        )
        most = 4 * devices * (elements + 1)  # one element in each step is slow, and allowed
        report.expect(len(got) <= most, f"{len(got)} steps; the check reads up to {most}")
        for step in got:
            for send in step:
                report.expect(
                    isinstance(send, list | tuple)
                    and len(send) == 5
                    and all(isinstance(each, int | np.integer | np.bool_) for each in send),
                    f"expected (source, target, first, end, adds), got {words.short(send)}",
                )
        try:
            held = replay(devices, elements, got)
        except ValueError as error:
            report.expect(False, str(error))
        for device, element, origin in np.argwhere(held != 1)[:1].tolist():
            times = int(held[device, element, origin])
            report.expect(
                False,
                f"at the end, element {element} of device {device} holds the "
                f"number of device {origin} in its sum {times} times, "
                "expected once",
            )
        if report.part != "sum":
            time = sum(step_times(got))
            report.expect(
                time <= case.expected,
                f"the largest sends of all steps add up to {time} "
                f"elements; a ring needs {case.expected}",
            )


TRACES = (
    "a0 0-2, a1 2-7, out0 3-6, in0 6-9, a2 7-12, out1 7-10, b0 10-12, in1 11-14,\n"
    "a3 12-16, out2 12-15, b1 14-17, in2 16-19, out3 17-20, b2 17-19, in3 20-23, b3 23-25",
    "a0 0-2, out0 2-4, a1 3-6, in0 4-6, a2 6-11, out1 6-8, in1 6-8, b0 6-9,\n"
    "b1 10-14, a3 11-16, out2 11-13, in2 13-15, b2 15-18, out3 16-18, in3 18-20, b3 21-24",
    "a0 0-5, a1 5-9, out0 5-7, in0 7-10, a2 9-14, out1 9-11, in1 11-14, b0 11-16,\n"
    "out2 12-14, a3 14-18, in2 16-19, b1 16-21, out3 18-20, in3 20-23, b2 21-25, b3 25-30",
    "a0 1-5, a1 5-8, out0 5-7, in0 7-10, a2 8-13, out1 8-10, b0 10-13, in1 11-14,\n"
    "a3 13-17, out2 13-15, b1 13-15, in2 15-18, out3 17-19, b2 18-20, in3 19-22, b3 23-26",
    "a0 0-3, a1 3-7, out0 3-4, in0 4-6, a2 7-9, out1 7-8, b0 7-12, in1 8-10,\n"
    "a3 9-14, out2 9-10, in2 11-13, b1 12-15, in3 13-15, out3 14-15, b2 15-17, b3 18-20",
)


def early_read(trace: str) -> tuple[str, int]:
    """Return the event that reads before its value is there, and when it is there."""
    events = {event.name: event for event in events_of(trace)}
    before = {"out": "a", "in": "out", "b": "in"}
    for event in events.values():
        kind = event.name[:-1]
        if kind in before:
            writer = events[before[kind] + event.name[-1]]
            if event.start < writer.end:
                return event.name, writer.end
    raise ValueError("no event reads too early")


@exercise(
    "13b-4",
    hints=(
        "Follow one piece at a time: h, its slot, g, y. Does each event begin at or after the end "
        "of the event before it?",
        "Two pieces share each slot. Look for the event that writes the same number k.",
    ),
    variants=tuple({"trace": trace} for trace in TRACES),
)
class TooEarly(Value):
    parts = {"event": ("the event that reads too early", 2), "time": ("when it may begin", 1)}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for part in self.parts:
            yield Case(part, on="your answer")

    def expected(self, case: Case) -> Any:
        return early_read(self.params["trace"])

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, list | tuple) and len(got) == 2,
            f"expected (event, time), got {words.short(got)}",
        )
        name, time = got
        report.expect(
            isinstance(name, str) and name == case.expected[0],
            f"{words.short(name)} reads what was written before it began, or it is no event",
        )
        if report.part == "time":
            report.expect(
                isinstance(time, int | float | np.number) and time == case.expected[1],
                f"{words.short(time)} is not when {name} may begin: which event writes "
                "what it reads, and when does that one end?",
            )


CLAIMS = (
    "ExecuTorch: the first script produces a lowered MobileNet V2, `vulkan_mobilenetv2.pte`",
    "ExecuTorch: *only binary arithmetic operators* run on the GPU",
    "ExecuTorch: a tensor may change its shape while it is *smaller than the bounds*",
    "ExecuTorch: in its shell, `pp cmake . -D...` configures the build",
    "ExecuTorch: Vulkan is no *GPU Math Library*: it brings no kernels",
    "ExecuTorch: values whose lifetimes do not overlap share memory",
    "ExecuTorch: only supported parts of a graph go to the GPU",
    "ExecuTorch: for the model of this script, most operators run on the CPU (*Portable*)",
    "VKML: *zero-copy throughout*, also from GPU to GPU",
)
# Only `questions` may use these: a release ships what the variants use.
REFUTED = ("its script", "its link", "at most", "no such command", "holds", "holds", "holds",
           "its script", "its own notes")  # fmt: skip
OPTIONS = ("holds", "its script", "its link", "its own notes", "at most", "no such command")

# By sentence: the fact that decides it, and the reason of the right answer.
WHY = (
    (
        "The code below this sentence defines `class Add`, and writes `vk_add.pte`.",
        "The script exports an addition, not MobileNet V2, and its file has another name.",
    ),
    (
        "In October 2024 the list of operators had 61 entries, convolution and matrix product "
        "among them.",
        "The page links a list with operators that are no binary arithmetic, such as convolution.",
    ),
    (
        "The plan reserves memory for the bounds themselves.",
        "A shape that equals the bound fits, too. 'Smaller than' should be 'at most'.",
    ),
    (
        "The page neither explains `pp` nor lists it among the tools to install.",
        "Nothing on the page brings a command `pp`, so a reader cannot run this line.",
    ),
    (
        "ExecuTorch has its kernels in `runtime/graph/ops/glsl`, in its own repository.",
        "Vulkan is an API without finished kernels, and ExecuTorch brings its own. Nothing here "
        "speaks against the sentence.",
    ),
    (
        "Two values that are never live at the same time never need their bytes at the same time.",
        "This is the memory planning of lab 11, and nothing here speaks against it.",
    ),
    (
        "The partitioner cuts a model at what the GPU can do.",
        "What the GPU cannot do stays on the CPU. Nothing here speaks against the sentence.",
    ),
    (
        "The page runs `vk_add.pte`. Its only operator is a binary arithmetic one.",
        "The model of the script is `x + y`, and the GPU can run an addition. No majority is left "
        "for the CPU.",
    ),
    (
        "Two sentences of one page speak of transfers between GPUs.",
        "The development notes say that GPU-to-GPU movement routes through the CPU, so bytes are "
        "copied on the way.",
    ),
)


def _claims(*numbers: int) -> dict[str, str]:
    return {letter: CLAIMS[number] for letter, number in zip("abcdef", numbers, strict=True)}


@exercise(
    "13b-5",
    hints=(
        "Read the script line by line: which model does it export, and which file does it write?",
        "The plan reserves memory for the bound itself. May a shape be as large as the bound?",
        "Look for two sentences of one page about the same thing.",
    ),
    variants=(
        _claims(0, 4, 2, 1, 8, 3),
        _claims(2, 7, 5, 8, 1, 6),
        _claims(1, 3, 5, 4, 0, 2),
        _claims(6, 2, 7, 3, 0, 8),
        _claims(8, 0, 3, 2, 5, 1),
    ),
    extra=True,
)
class PageErrors(Choice):
    parts = {"all": ("every claim", 3)}

    def questions(self) -> Mapping[str, Question]:
        rows = {
            claim: Question(right, OPTIONS, *why)
            for claim, right, why in zip(CLAIMS, REFUTED, WHY, strict=True)
        }
        return {letter.upper(): rows[claim] for letter, claim in self.params.items()}


@exercise("13b-p1", hints=("Count what each copy writes: how many copies are there?",))
class StagedCopies(Predict):
    explains = (
        "GPU 0 copies 8 MiB out to memory that the host sees, the host copies them to "
        "memory that GPU 1 sees, GPU 1 copies them in: 24 MiB. With one allocation that "
        "both GPUs see, the middle copy is gone: 16 MiB."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"through_cpu_mib": 24, "shared_mib": 16}


@exercise("13b-p2", hints=("What does one device lack: some elements of C, or part of each sum?",))
class GatherOrSum(Predict):
    options = dict.fromkeys(("columns", "rows"), ("gather", "add"))
    explains = (
        "Cut by columns, each device has whole elements of C, but not all of them: gather. "
        "Cut by rows, each device has every element of C, but only part of its sum: add."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"columns": "gather", "rows": "add"}


@exercise("13b-p3", hints=("When does the last device begin, and how long does it work?",))
class Bubble(Predict):
    explains = (
        "The last micro-batch enters at time 11 and needs 4 units: 15 in all. Each device "
        "works for 12 of them and is idle for 3: 20 percent, (p - 1) / (m + p - 1)."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"units": 15, "idle_percent": 20}
