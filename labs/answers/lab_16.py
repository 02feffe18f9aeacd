"""Answers to try the checks of lab 16 with: wrong ones, and a second right one for each."""

import numpy as np

from vklab_course.author.answers import alternative, wrong
from vklab_labs.lab_16 import precision_rules
from vklab_labs.lab_16.providers import PROVIDERS

CPU = "CPUExecutionProvider"
FIRST = {"NVIDIA": "CUDA", "AMD": "MIGraphX", "Intel": "OpenVINO", "Apple": "CoreML",
         "Qualcomm": "QNN"}  # fmt: skip
PAGE = [name + "ExecutionProvider" for name in (
    "CPU", "CUDA", "Dml", "ROCM", "CoreML", "Tensorrt", "OpenVINO")]  # fmt: skip


def _chooser(listed=True, systems=True, libraries=all, gpus=lambda found: found,
             none=lambda row: not row["vendors"], order=PROVIDERS):  # fmt: skip
    """Return an answer to 16-1 in which one decision may be wrong."""

    def choose_providers(system, found, available, there):
        names = []
        for row in order:
            able = none(row) or any(vendor in row["vendors"] for vendor in gpus(found))
            able = able and (not systems or system in row["systems"])
            able = able and (not listed or row["name"] in available)
            if able and libraries(name in there for name in row["libraries"]):
                names.append(row["name"])
        return names

    return choose_providers


def _by_vendor(system, gpus, available, libraries):
    return [*(FIRST[gpu] + "ExecutionProvider" for gpu in gpus), CPU]


def _by_vendor_if_available(system, gpus, available, libraries):
    return [name for name in _by_vendor(system, gpus, available, libraries) if name in available]


alternative("16-1")(_chooser())
for words, answer in (
    ("cannot work here", lambda system, gpus, available, libraries: available),
    ("cannot work here", _by_vendor),
    ("cannot work here", _by_vendor_if_available),
    ("can work here, and is missing", lambda *machine: [CPU]),
    ("cannot work here", lambda system, gpus, available, libraries: [
        name for name in PAGE if name in available]),
    ("cannot work here", _chooser(libraries=lambda found: True)),
    ("can work here, and is missing", _chooser(gpus=lambda found: found[:1])),
    ("cannot work here", _chooser(listed=False)),
    ("cannot work here", _chooser(systems=False)),
    ("cannot work here", _chooser(none=lambda row: not row["vendors"] or not row["libraries"])),
    ("can work here, and is missing", _chooser(none=lambda row: row["name"] == CPU)),
    ("expected", _chooser(order=PROVIDERS[::-1])),
    ("expected a list of names", lambda *machine: CPU),
):  # fmt: skip
    wrong("16-1", says=words)(answer)


def _ran(mine=lambda asked, session, nodes: nodes.get(asked, 0),
         every=lambda session, nodes: sum(nodes.values()),
         enough=lambda share: share >= 1, idle=lambda share: share == 0):  # fmt: skip
    """Return an answer to 16-2 in which one decision may be wrong."""

    def ran_on(asked, session, assignment):
        whole = every(session, assignment)
        share = mine(asked, session, assignment) / whole if whole else 0.0
        return "fell back" if idle(share) else "ran" if enough(share) else "partly", share

    return ran_on


alternative("16-2")(_ran())
for words, answer in (
    ("expected 'fell back', got 'ran'", lambda asked, session, nodes: (
        ("ran", 1.0) if session[:1] == [asked] else ("fell back", 0.0))),
    ("expected 'fell back', got 'ran'", lambda asked, session, nodes: (
        ("ran", 1.0) if asked in session else ("fell back", 0.0))),
    ("expected", _ran(every=lambda session, nodes: 9)),
    ("expected", _ran(every=lambda session, nodes: nodes.get(CPU, 0))),
    ("expected 'fell back', got 'partly'", _ran(idle=lambda share: False)),
    ("expected 'partly', got 'ran'", _ran(enough=lambda share: share > 0)),
    ("expected", _ran(mine=lambda asked, session, nodes: asked in nodes)),
    ("nodes of it over all assigned nodes", lambda *args: (_ran()(*args)[0], 1.0)),
    ("expected (verdict, share)", lambda *args: "ran"),
):  # fmt: skip
    wrong("16-2", says=words)(answer)


RIGHT = {"H": "fine", "G": "fine", "F": "wrong sentence or number", "E": "package has ended",
         "D": "an error at once", "C": "fine", "B": "corrected", "A": "fine"}  # fmt: skip
alternative("16-4")(RIGHT)
wrong("16-4", says="not all right")(dict.fromkeys("ABCDEFGH", "fine"))
wrong("16-4", says="not all right")(dict.fromkeys("ABCDEFGH", "an error at once"))
wrong("16-4", says="not all right")({**RIGHT, "B": "an error at once"})


def _halves(clips=np.isfinite, raises=lambda size: size > 0, sign=np.sign,
            limits=lambda small, large: (small, large)):  # fmt: skip
    """Return an answer to 16-3 in which one decision may be wrong."""

    def half_weights(values, smallest, largest):
        smallest, largest = limits(smallest, largest)
        exact = values.astype(np.float64)
        size = np.abs(exact)
        small = raises(size) & (size < smallest)
        large = clips(exact) & ~(size <= largest)
        exact[small], exact[large] = (sign(exact[each]) * limit for each, limit in (
            (small, smallest), (large, largest)))  # fmt: skip
        with np.errstate(over="ignore", invalid="ignore"):
            halves = exact.astype(np.float32).astype(np.float16)
        return halves, int(small.sum()), int(large.sum())

    return half_weights


def _sign(exact):
    return np.copysign(1, exact)


def _as_type(values, smallest, largest):
    with np.errstate(over="ignore"):
        return values.astype(np.float16), 0, 0


alternative("16-3")(_halves())
for words, answer in (
    ("expected", _as_type),
    ("expected", _halves(limits=lambda small, large: (1e-7, 1e4))),
    ("expected", _halves(limits=lambda small, large: (5.96e-8, 65504.0))),
    ("0.0 became", _halves(raises=lambda size: size >= 0, sign=_sign)),
    ("nan became", _halves(clips=lambda exact: ~np.isinf(exact), sign=_sign)),
    ("inf became", _halves(clips=lambda exact: ~np.isnan(exact))),
    ("became", _halves(sign=np.ones_like)),
    ("how many were raised", lambda *args: (_halves()(*args)[0], 0, _halves()(*args)[2])),
    ("how many were clipped", lambda *args: (*_halves()(*args)[:2], 0)),
    ("expected (an array, raised, clipped)", lambda *args: _halves()(*args)[0]),
    ("expected float16", lambda values, *limits: (values, 0, 0)),
):  # fmt: skip
    wrong("16-3", says=words)(answer)


def _search(nodes, most_noise):
    """Decide node by node, and leave a branch that cannot win."""
    number = {node["name"]: n for n, node in enumerate(nodes)}
    elements = [node["weights"] + node["result"] + sum(
        nodes[number[read]]["result"] for read in node["reads"]) for node in nodes]  # fmt: skip
    rest = [2 * sum(elements[n:]) for n in range(len(nodes) + 1)]
    best = [float("inf"), []]

    def go(n, wide, cast, noise, moved):
        if noise > most_noise or moved + rest[n] >= best[0]:
            return
        if n == len(nodes):
            moved += 0 if wide[-1] or n - 1 in cast else 6 * nodes[-1]["result"]
            if moved < best[0]:
                best[:] = moved, wide
            return
        for keeps in (False, True):
            new = {number[r] for r in nodes[n]["reads"] if wide[number[r]] != keeps} - cast
            go(n + 1, [*wide, keeps], cast | new, noise + (0 if keeps else nodes[n]["noise"]),
               moved + (4 if keeps else 2) * elements[n] + 6 * sum(
                   nodes[r]["result"] for r in new))  # fmt: skip

    go(1, [True], set(), 0, 0)
    return [node["name"] for node, keeps in zip(nodes, best[1], strict=True) if keeps]


alternative("16-5")(_search)
for rule in precision_rules.RULES.values():
    wrong("16-5", says="the obvious answer needs")(rule)
wrong("16-5", says="the obvious answer needs")(precision_rules.plain)
wrong("16-5", says="the noise is")(lambda nodes, most_noise: [])
wrong("16-5", says="there is no node")(lambda nodes, most_noise: ["n99"])
wrong("16-5", says="expected a list of names")(lambda nodes, most_noise: 0)
