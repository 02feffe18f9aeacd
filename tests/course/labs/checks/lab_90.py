"""The visible checks of the fixture lab."""

import numpy as np

from vklab.course import Run
from vklab.course.children.kernel_check import dispatch
from vklab.course.definition.exercise import exercise

ROUND_UP = "vklab.plan.memory.round_up"


@exercise(
    "90-1",
    points=4,
    hints=("Which multiple comes after 257?", "How often does it fit, rounded up?", "Use //."),
    seams=(ROUND_UP,),
    seconds=2,
)
def check_round_up(answer, report):
    """Compare with the runtime's function on a table."""
    with report.part("multiples stay as they are", 1):
        for count in (0, 64, 128, 192):
            report.equal(report.call(answer, count, 64), report.real(ROUND_UP)(count, 64))
    with report.part("everything else grows", 2):
        for count, multiple in ((1, 64), (65, 64), (257, 256), (7, 3), (5, 1)):
            got = report.call(answer, count, multiple)
            report.equal(got, report.real(ROUND_UP)(count, multiple))
        report.equal(report.call(answer, 1, on="count=1 and no multiple"), 256)
    with report.part("a multiple that makes no sense is refused", 1):
        report.raises(ValueError, answer, 5, 0, on="multiple=0")
        report.raises(ValueError, answer, 5, -1, on="multiple=-1")


@exercise(
    "90-2",
    points=3,
    hints=("Which invocation writes which element?", "What if i is 1000 and count is 999?"),
    takes="kernel",
    seconds=60,
)
def check_scale(answer, report):
    """Dispatch at two sizes, one of which is no multiple of the workgroup."""
    runs = []
    for count in (64, 67):
        x = np.arange(count, dtype=np.float32)
        runs.append(Run({"X": x, "Y": np.zeros(count, np.float32)}, (2,),
                        {"count": count, "factor": 2.5}))  # fmt: skip
    done = dispatch(report, answer, runs, seconds=5)
    with report.part("every element is scaled", 2):
        for run, result in zip(runs, done, strict=True):
            report.on(f"count={run.push['count']}")
            report.close(result.buffers["Y"], run.buffers["X"] * np.float32(2.5))
    with report.part("nothing is written behind the end", 1):
        for run, result in zip(runs, done, strict=True):
            report.on(f"count={run.push['count']}")
            report.inside(result)


@exercise("90-3", points=1, hints=("15 workgroups cover 960.",), takes="value")
def check_workgroups(answer, report):
    """Compare with the one right number."""
    with report.part("enough, and not one too many", 1):
        report.on("1000 elements, 64 a workgroup")
        report.equal(answer, 16)
