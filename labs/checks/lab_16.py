"""Exercises of lab 16: providers, where a session ran, half weights, DirectML, mixed precision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from vklab_course import words
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, exercise
from vklab_course.definition.kinds import Choice, Predict, Question
from vklab_course.definition.report import Report
from vklab_labs.lab_16 import precision, precision_rules
from vklab_labs.lab_16.providers import PROVIDERS, recorded_sessions

CPU = "CPUExecutionProvider"
VENDORS = ("NVIDIA", "AMD", "Intel", "Qualcomm", "Apple")
LIBRARIES = tuple(dict.fromkeys(name for row in PROVIDERS for name in row["libraries"]))


def working(system: str, gpus: list[str], available: list[str], libraries: list[str]) -> list[str]:
    """Return the names of the providers that can work, most specific first."""

    def works(row: Mapping[str, Any]) -> bool:
        has_gpu = not row["vendors"] or bool({*row["vendors"]} & {*gpus})
        return (
            row["name"] in available
            and system in row["systems"]
            and has_gpu
            and {*row["libraries"]} <= {*libraries}
        )

    return [row["name"] for row in PROVIDERS if works(row)]


def _machine(random: np.random.Generator) -> tuple[str, list[str], list[str], list[str]]:
    """Draw a machine: a system, up to two GPUs, a build's list, and some libraries."""
    system = str(random.choice(["Linux", "Windows", "macOS"]))
    vendors = ["Apple"] if system == "macOS" else list(VENDORS[:4])
    gpus = [str(g) for g in random.permutation(vendors)[: int(random.integers(0, 3))]]
    names = [row["name"] for row in PROVIDERS[:-1] if random.random() < 0.6]
    if random.random() < 0.4:
        names.append("AzureExecutionProvider")
    listed = [str(name) for name in random.permutation([*names, CPU])]
    libraries = [name for name in LIBRARIES if random.random() < 0.75]
    return system, gpus, listed, [str(name) for name in random.permutation(libraries)]


@exercise(
    "16-1",
    hints=(
        'Go through `PROVIDERS` in order. Three conditions beside "the build lists it" decide '
        "each row.",
        "A machine may have several GPUs: is the vendor of *one* of them among the row's vendors?",
        "An empty tuple of vendors asks for no GPU. An empty tuple of libraries asks for none.",
    ),
)
class ChooseProviders(Function):
    parts = {"machines": ("drawn machines", 2),
             "refused": ("a provider is listed and cannot work", 2),
             "more": ("machines where the CPU alone is wrong", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        def names(*short: str) -> list[str]:
            return [name + "ExecutionProvider" for name in short]

        def case(part: str, *args: Any) -> Case:
            gpus, libraries = (", ".join(each) or "none" for each in (args[1], args[3]))
            listed = ", ".join(name.removesuffix("ExecutionProvider") for name in args[2])
            told = f"{args[0]}; GPUs: {gpus}; listed: {listed or 'none'}; libraries: {libraries}"
            return Case(part, args, on=told)

        nvidia, every = ["CUDA", "cuDNN", "TensorRT"], names("Tensorrt", "CUDA", "CPU")
        yield case("machines", "Linux", [], [], [])
        yield case("machines", "Linux", ["NVIDIA"], names("Azure", "CPU"), nvidia)
        yield case("machines", "Windows", ["Intel"], names("CPU", "OpenVINO"), ["OpenVINO"])
        yield case("refused", "Linux", ["NVIDIA"], every, ["CUDA"])
        yield case("refused", "Linux", [], every, nvidia)
        yield case("refused", "Linux", ["AMD"], names("Dml", "WebGpu", "CPU"), ["DirectML"])
        yield case("refused", "Windows", ["AMD"], names("MIGraphX", "CPU"), ["ROCm", "MIGraphX"])
        yield case("more", "Windows", ["Intel", "NVIDIA"], names("CPU", "Dml"), ["DirectML"])
        yield case("more", "Linux", ["Intel", "NVIDIA"], every, ["cuDNN", "CUDA"])
        yield case("more", "macOS", [], names("CPU", "Azure", "CoreML"), [])
        yield case("more", "Linux", [], names("OpenVINO", "CPU"), ["OpenVINO"])
        wanted = {"machines": 12, "refused": 8, "more": 8}
        while any(wanted.values()):
            machine = _machine(random)
            found = working(*machine)
            known = [row["name"] for row in PROVIDERS if row["name"] in machine[2]]
            part = "refused" if len(known) > len(found) + 1 else "machines"
            if len(found) > 1 and wanted["more"]:
                part = "more"
            if wanted[part]:
                wanted[part] -= 1
                yield case(part, *machine)

    def expected(self, case: Case) -> Any:
        return working(*case.args)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.kind(got, list | tuple, "a list of names")
        missing = [name for name in case.expected if name not in got]
        wrong = [name for name in got if name not in case.expected]
        report.expect(not wrong, f"{words.short(next(iter(wrong), None))} cannot work here")
        report.expect(not missing, f"{next(iter(missing), None)} can work here, and is missing")
        report.equal(list(got), case.expected, "the order of PROVIDERS, each name once")


def _sessions(random: np.random.Generator, least: float) -> Iterable[tuple[str, str, Any]]:
    """Yield drawn sessions: part, provider asked for, (list of the session, nodes by provider)."""
    names = [row["name"] for row in PROVIDERS[:-1]]
    for number in range(6):
        asked, other = (str(name) for name in random.choice(names, 2, replace=False))
        nodes = int(random.integers(5, 90))
        yield "silent", asked, ([CPU], {CPU: nodes})
        yield "silent", asked, ([asked, CPU], {asked: nodes})
        yield "idle", asked, ([asked, CPU], {CPU: nodes})
        yield "idle", asked, ([asked, other, CPU], {other: nodes, CPU: 2, asked: 0})
        yield "idle", asked, ([asked, CPU], {asked: 1, CPU: 8 * nodes})
        share = (1, 0.95, 0.9, 0.8, 0.75, 0.6, 0.5, 0.25)[number % 8]
        yield "graphs", asked, ([asked, other, CPU], {
            CPU: 40 - round(40 * share) - (share < 0.9), asked: round(40 * share),
            other: int(share < 0.9)})  # fmt: skip
    asked = str(random.choice(names))
    for share in (1, 0.95, 0.9, 0.85, 0.75, 0.7, 0.55, 0.5, 0.45, 0.05):
        whole = 20 * int(random.integers(1, 6))
        mine = round(whole * share)
        nodes_by = {asked: mine, CPU: whole - mine} if mine < whole else {asked: mine}
        yield "graphs", asked, ([asked, CPU], nodes_by)
    yield "graphs", asked, ([asked, CPU], {asked: 1})
    yield "graphs", asked, ([asked, CPU], {asked: 28})
    yield "idle", asked, ([asked, CPU], {})
    yield "silent", asked, ([], {})


@exercise(
    "16-2",
    hints=(
        "Which of the three arguments says where nodes were put, and which only what was offered?",
        "The divisor counts all nodes of the dictionary. ONNX Runtime fuses and adds nodes, so the "
        "file has another number.",
        "What is the share if the dictionary is empty?",
    ),
    variants=tuple({"least": least} for least in (1, 0.9, 0.75, 0.5)),
)
class RanOn(Function):
    parts = {"silent": ("a fallback without a word", 2),
             "idle": ("a provider that is listed and idle", 1),
             "graphs": ("graphs that are fused or split", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        def case(part: str, asked: str, session: list[str], nodes: dict[str, int]) -> Case:
            told = ", ".join(f"{name} {count}" for name, count in nodes.items()) or "none"
            return Case(part, (asked, session, nodes), on=f"{asked}, with nodes: {told}")

        for row in recorded_sessions():
            nodes = row["assignment"]
            part = "silent" if row["asked"] not in row["session"] else "idle"
            part = "graphs" if row["asked"] in nodes else part
            yield case(part, row["asked"], row["session"], nodes)
        for part, asked, (session, nodes) in _sessions(random, self.params["least"]):
            yield case(part, asked, session, nodes)

    def expected(self, case: Case) -> Any:
        asked, _, nodes = case.args
        count, every = nodes.get(asked, 0), sum(nodes.values())
        if not count:
            return "fell back", 0.0
        return "ran" if count >= self.params["least"] * every else "partly", count / every

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, list | tuple) and len(got) == 2,
            f"expected (verdict, share), got {words.short(got)}",
        )
        report.equal(got[0], case.expected[0], "which share of the nodes has it?")
        report.close(got[1], case.expected[1], 1e-9, 1e-12, "nodes of it over all assigned nodes")


def _numbers(random: np.random.Generator, low: float, high: float, count: int) -> np.ndarray:
    """Draw float32 numbers of both signs, whose sizes lie between two limits."""
    sizes = np.exp(random.uniform(np.log(low), np.log(high), count))
    return np.asarray(sizes * random.choice([-1, 1], count), np.float32)


@exercise(
    "16-3",
    hints=(
        "Find the small and the large values by two masks, from the sizes of the values. Which "
        "values must neither mask hold?",
        "A replaced value keeps its sign. NumPy has a function that copies a sign.",
        "Infinity is larger than every limit, and it is not finite. Zero is smaller, and it stays.",
    ),
    extra=True,
)
class HalfWeights(Function):
    parts = {"values": ("values within the limits", 1), "small": ("small values", 1),
             "large": ("large values", 1), "special": ("zeros, infinities, NaN", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        tools = ((1e-7, 1e4), (5.96e-8, 65504.0), (2.0**-10, 96.0))
        special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1], np.float32)
        for smallest, largest in tools:
            low, high = 1.02 * smallest, 0.98 * largest
            inside = _numbers(random, low, high, 20)
            ties = np.float32([1, 1 + 2**-11, 1 + 3 * 2**-11, -2 - 2**-10, 1.5, largest, -largest])
            small = _numbers(random, smallest / 1e3, 0.98 * smallest, 6)
            large = _numbers(random, 1.02 * largest, 100 * largest, 6)
            drawn = {
                "values": [inside, ties],
                "small": [np.concatenate([small, inside[:9]]), small[:1], inside[9:]],
                "large": [np.concatenate([inside[:9], large]), np.float32([7e4, -2e5]), inside[9:]],
                "special": [special, np.concatenate([special[::-1], small, large]), special[:0]],
            }
            if smallest == 2.0**-10:  # a limit that float32 has
                drawn["small"].append(np.float32([smallest, -smallest, smallest / 2]))
            for part, arrays in drawn.items():
                for values in arrays:
                    on = f"{words.short(values.tolist())}, limits {smallest:g} and {largest:g}"
                    yield Case(part, (values, smallest, largest), on=on)

    def expected(self, case: Case) -> Any:
        values, smallest, largest = case.args
        exact, raised, clipped = [], 0, 0
        for value in values.astype(np.float64):
            if np.isfinite(value) and abs(value) > largest:
                clipped, value = clipped + 1, np.copysign(largest, value)
            elif 0 < abs(value) < smallest:
                raised, value = raised + 1, np.copysign(smallest, value)
            exact.append(value)
        return np.array(exact, np.float32).astype(np.float16), raised, clipped

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, list | tuple) and len(got) == 3 and isinstance(got[0], np.ndarray),
            f"expected (an array, raised, clipped), got {words.short(got)}",
        )
        halves, raised, clipped = case.expected
        report.expect(
            got[0].dtype == np.float16 and got[0].shape == halves.shape,
            f"expected float16 of shape {halves.shape}, got {got[0].dtype} of {got[0].shape}",
        )
        same = (got[0].view(np.uint16) == halves.view(np.uint16)) | (
            np.isnan(got[0]) & np.isnan(halves)
        )
        for index in np.flatnonzero(~same)[:1]:
            report.expect(
                False,
                f"{case.args[0][index]!s} became {got[0][index]!s}, expected {halves[index]!s}",
            )
        report.equal(got[1], raised, "how many were raised")
        report.equal(got[2], clipped, "how many were clipped")


OPTIONS = ("fine", "corrected", "an error at once", "runs on the CPU", "wrong sentence or number",
           "package has ended")  # fmt: skip
FINE, CORRECTED, ERROR, CPU, SENTENCE, ENDED = OPTIONS

# Checked for onnxruntime-directml 1.24.4 on 2026-12-01: documentation, issues, and what its wheel
# holds. Nothing was run on Windows. Only `questions` may use these: a release ships what the
# variants use. By key: the line, the option, the fact that decides it, the reason with its source.
LINES = {
    "sequential": (
        "`options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL`", FINE,
        "ONNX Runtime's page on DirectML says which execution mode it needs.",
        "DirectML needs sequential execution (ONNX Runtime's page on DirectML)."),
    "no pattern": (
        "`options.enable_mem_pattern = False`", FINE,
        "ONNX Runtime's page on DirectML says whether memory patterns may be on.",
        "DirectML has no memory patterns, so they are off (ONNX Runtime's page on DirectML)."),
    "device 0": (
        '`providers=[("DmlExecutionProvider", {"device_id": 0})]`', FINE,
        "The option is a number in the order in which Windows lists its adapters.",
        "Number 0 is the default adapter (ONNX Runtime's page on DirectML)."),
    "driver": (
        "Sentence: *DirectML calls DirectX 12, and DirectX 12 calls the driver of the GPU's "
        "vendor.*", FINE,
        "The page of the lab itself draws a DirectX 12 driver below DirectML.",
        "That driver comes from the vendor (DirectML's introduction by Microsoft)."),
    "two sessions": (
        "Sentence: *two threads may call `run` at the same time, each on a session of its own.*",
        FINE,
        "ONNX Runtime's page on DirectML forbids two threads on one thing. Which one?",
        "Only calls of one session exclude each other (ONNX Runtime's page on DirectML)."),
    "pattern": (
        "`options.enable_mem_pattern = True`", CORRECTED,
        "The message of issue 6970 ends: *So disabling it for this session*.",
        "A session with DirectML switches it off and goes on (ONNX Runtime issue 6970, "
        "2021-03-10; the wheel of 2026-03-17 has the message, too)."),
    "parallel": (
        "`options.execution_mode = ort.ExecutionMode.ORT_PARALLEL`", CORRECTED,
        "The wheel holds the message *So making the execution mode sequential for this session*.",
        "A session with DirectML becomes sequential and goes on (message in the wheel of "
        "2026-03-17)."),
    "name": (
        '`ort.InferenceSession(path, options, providers=[("DmlExecutionProvider", {"device_id": '
        '"RTX 4070"})])`', CPU,
        "A text is no number. `InferenceSession` catches errors of a provider, unless "
        "`enable_fallback=0`.",
        "It prints *EP Error* and takes the CPU (ONNX Runtime pull request 7964, 2021-06-05, and "
        "the Python file in the wheel of 2026-03-17)."),
    "strict name": (
        '`ort.InferenceSession(path, options, providers=[("DmlExecutionProvider", {"device_id": '
        '"RTX 4070"})], enable_fallback=0)`', ERROR,
        "A text is no number. `InferenceSession` catches errors of a provider, unless "
        "`enable_fallback=0`.",
        "The text cannot be read as a number, and nothing catches that (pull request 7964, "
        "2021-06-05, and the Python file in the wheel of 2026-03-17)."),
    "two builds": (
        "`pip install onnxruntime`, after onnxruntime-directml, and then a session that asks for "
        "DirectML", CPU,
        "Both packages own the module `onnxruntime`, and the later one overwrites its files.",
        "The CPU's build has no DirectML, so it warns and takes the CPU (ONNX Runtime issue "
        "14687, 2023-02-15; Olive issue 1619, 2025-02-14)."),
    "torch": (
        "`pip install torch-directml`", ENDED,
        "Its last release is of September 2024, and asks for torch 2.4.1.",
        "It is *no longer in active development* (DirectML issue 712, 2025-08-11)."),
    "windows dll": (
        "Sentence: *onnxruntime-directml computes with the DirectML.dll that ships with Windows.*",
        SENTENCE,
        "Look into the wheel: it holds a DirectML.dll of 18.5 MB, of version 1.15.4.",
        "It brings its own DirectML.dll, and Windows has an older one (wheel of 2026-03-17; ONNX "
        "Runtime issue 18831, 2023-12-14)."),
    "simulation": (
        '`print("DirectML, simulated:", ms)`, with `ms` from a session on the CPU', SENTENCE,
        "Which device made this number?",
        "The time of a CPU says nothing about a GPU (lab 07 of the sources, 2.4; read on "
        "2026-11-24 for docs/backends.md)."),
    "undefined": (
        "`options = ort.SessionOptions()`, after `try: import onnxruntime as ort` and `except "
        "ImportError: onnx_available = False`, where the import failed", ERROR,
        "Which name did the failed import define?",
        "`ort` is not defined, a NameError (lab 07 of the sources, 2.3; read on 2026-11-24 for "
        "docs/backends.md)."),
    "no driver": (
        "Sentence: *DirectML skips the driver of the GPU's vendor.*", SENTENCE,
        "What does DirectX 12 call?",
        "DirectX 12 needs the vendor's driver (lab 07 of the sources, last section; read on "
        "2026-11-24 for docs/backends.md)."),
    "one session": (
        "Sentence: *two threads may call `run` of one DirectML session at the same time.*",
        SENTENCE,
        "ONNX Runtime's page on DirectML forbids two threads on one thing. Which one?",
        "Only one thread may call `run` of such a session (the page's sentence in ONNX Runtime "
        "issue 22147, 2024-09-19)."),
}  # fmt: skip

SETUPS = (
    ("sequential", "pattern", "device 0", "undefined", "torch", "windows dll", "driver",
     "two sessions"),
    ("name", "no pattern", "simulation", "driver", "parallel", "two sessions", "two builds",
     "device 0"),
    ("two builds", "sequential", "torch", "strict name", "no pattern", "no driver", "device 0",
     "simulation"),
    ("no pattern", "windows dll", "device 0", "one session", "sequential", "driver", "undefined",
     "two sessions"),
)  # fmt: skip


def _setup(*keys: str) -> dict[str, str]:
    return {letter: LINES[key][0] for letter, key in zip("abcdefgh", keys, strict=True)}


@exercise(
    "16-4",
    hints=(
        "Ask of each line: does Python raise here? If not, does the session have DirectML? If so, "
        "does ONNX Runtime keep the option as you wrote it?",
        "Three lines of the text above are about `device_id`. Which of them catches errors?",
        "For a sentence, look for the fact in the list above that is about the same thing.",
    ),
    variants=tuple(_setup(*keys) for keys in SETUPS),
)
class DirectMLSetup(Choice):
    parts = {"all": ("every line", 4)}

    def questions(self) -> Mapping[str, Question]:
        rows = {words: (right, fact, reason) for words, right, fact, reason in LINES.values()}
        return {
            letter.upper(): Question(rows[line][0], OPTIONS, *rows[line][1:])
            for letter, line in self.params.items()
        }


def cheapest(
    nodes: list[dict[str, Any]], most_noise: int, half_bytes: int = 2, wide_bytes: int = 4,
    cast_bytes: int = 6, output: bool = True,
) -> list[str]:  # fmt: skip
    """Return the names in float32 of the choice with the fewest bytes within the noise.

    Args:
        nodes: the graph.
        most_noise: the limit.
        half_bytes: of an element in float16.
        wide_bytes: of an element in float32.
        cast_bytes: of an element that is cast.
        output: whether a last node in float16 needs a cast.
    """
    count = len(nodes)
    number = {node["name"]: n for n, node in enumerate(nodes)}
    half = np.zeros((count, 2 ** (count - 1)), bool)
    half[1:] = np.arange(2 ** (count - 1)) >> np.arange(count - 1)[:, None] & 1
    total, cast = np.zeros(half.shape[1]), np.zeros_like(half)
    for n, node in enumerate(nodes[1:], 1):
        reads = [number[read] for read in node["reads"]]
        elements = node["weights"] + node["result"] + sum(nodes[r]["result"] for r in reads)
        total += elements * np.where(half[n], half_bytes, wide_bytes)
        for r in reads:
            cast[r] |= half[n] != half[r]
    cast[-1] |= half[-1] & output
    total += cast_bytes * np.array([node["result"] for node in nodes]) @ cast
    total[np.array([node["noise"] for node in nodes]) @ half > most_noise] = np.inf
    best = int(total.argmin())
    return [node["name"] for n, node in enumerate(nodes) if n and not half[n, best]]


# A case of 16-5 decides against each of these mistakes in counting.
MISTAKES: tuple[tuple[dict[str, Any], ...], ...] = (
    ({"output": False},),
    ({"cast_bytes": 7}, {"wide_bytes": 5}),
    ({"cast_bytes": 5}, {"half_bytes": 1}),
)


def _graph(random: np.random.Generator, mistakes: Iterable[dict[str, Any]]) -> Any:
    """Draw a graph, the most noise, and what its answers cost, until no natural one is good."""
    while True:
        nodes, most = precision.draw_nodes(random)
        best = cheapest(nodes, most)
        most = precision.noise_of(nodes, best)  # the best answer has exactly this noise
        least = precision.bytes_moved(nodes, best)
        cost = {
            name: precision.bytes_moved(nodes, rule(nodes, most))
            for name, rule in precision_rules.RULES.items()
        }
        plain, strong = min(cost["noisiest out"], cost["noise by byte"]), min(cost.values())
        saved = (cost["all float32"] - strong) / max(cost["all float32"] - least, 1)
        wrong = (cheapest(nodes, most, **mistake) for mistake in mistakes)
        if (
            saved < 0.95
            and 1.01 * least <= strong
            and 1.01 * strong <= plain
            and all(precision.bytes_moved(nodes, each) > least for each in wrong)
        ):
            return nodes, most, {"plain": plain, "strong": strong, "least": least}


@exercise(
    "16-5",
    hints=(
        "Fourteen nodes have 2 ** 14 choices. NumPy can hold one row for each of them.",
        "Let column n of a table of booleans say whether node n is float16. The bytes of a node "
        "are then an array over all rows, and so are those of a cast.",
        "Rows with too much noise get infinite bytes. Which function names the best row?",
    ),
    extra=True,
)
class StayWide(Function):
    parts = {"better": ("fewer bytes than the plain answer", 2), "best": ("the fewest bytes", 3)}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        nodes, _ = precision.draw_nodes(random)
        yield Case("better", (nodes, 0), on="this graph, without noise")
        for mistakes in ((), (), *MISTAKES):
            nodes, most, facts = _graph(random, mistakes)
            yield Case(
                "best" if mistakes else "better", (nodes, most), on="this graph", facts=facts
            )

    def expected(self, case: Case) -> Any:
        return case.facts.get("least") or precision.bytes_moved(
            case.args[0], [node["name"] for node in case.args[0]]
        )

    def compare(self, case: Case, got: Any, report: Report) -> None:
        nodes, most = case.args
        names = [node["name"] for node in nodes]
        report.kind(got, list | tuple, "a list of names")
        other = [name for name in got if type(name) is not str or name not in names]
        report.expect(not other, f"there is no node {words.short(next(iter(other), None))}")
        noise = precision.noise_of(nodes, got)
        report.expect(noise <= most, f"the noise is {noise}, the most is {most}")
        mine = precision.bytes_moved(nodes, got)
        if not case.facts:
            return
        plain, strong, least = (case.facts[key] for key in ("plain", "strong", "least"))
        if case.part == "better":
            report.score(mine, least, plain, "bytes moved", strong)
        else:
            report.score(mine, least, strong, "bytes moved")


@exercise("16-p1", hints=("Which of the two is measured while the clock is high?",))
class WhoWins(Predict):
    options = dict.fromkeys(("a_first", "b_first", "in_turns"), ("A", "B"))
    explains = (
        "In blocks, the first one meets the faster clock, and wins in both orders: 20 % of clock "
        "are more than 5 % of work. In turns, both meet the same clocks, and A wins."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"a_first": "A", "b_first": "B", "in_turns": "A"}
