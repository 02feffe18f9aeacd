"""Answers to try the checks of lab 16 with: wrong ones, and a second right one for each."""

from vklab_course.author.answers import alternative, wrong
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
