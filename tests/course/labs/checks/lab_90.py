"""The exercises of the fixture lab."""

import numpy as np

from vklab_course.children.kernel_answers import Kernel
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, Value, exercise

SEAM = "vklab.plan.memory.round_up"


@exercise(
    "90-1",
    hints=("Which multiple comes after 257?", "How often does it fit, rounded up?", "Use //."),
    variants=({"usual": 256}, {"usual": 128}, {"usual": 64}, {"usual": 32}),
    seams=(SEAM,),
    seconds=2,
)
class RoundUp(Function):
    parts = {"stay": ("multiples stay as they are", 1), "grow": ("everything else grows", 2),
             "refuse": ("a multiple that makes no sense is refused", 1)}  # fmt: skip

    def cases(self, random):
        for count in (0, 64, 128, 64 * int(random.integers(3, 99))):
            yield Case("stay", (count, 64))
        yield Case("stay", (129, 64))  # or the first argument would be an answer
        for count, multiple in ((1, 64), (65, 64), (257, 256), (7, 3), (5, 1),
                                *random.integers(1, 1000, (3, 2)).tolist()):
            yield Case("grow", (count, multiple))
        yield Case("grow", (1,), on="count=1 and no multiple")
        for multiple in (0, -1):
            yield Case("refuse", (5, multiple), on=f"multiple={multiple}")
        yield Case("refuse", (5, 3), on="multiple=3")

    def expected(self, case):
        count, multiple = (*case.args, self.params["usual"])[:2]
        if multiple <= 0:
            raise ValueError
        return count + -count % multiple


@exercise("90-2", hints=("Which invocation writes which element?", "What if i is 1000?"))
class Scale(Kernel):
    parts = {"values": ("every element is scaled", 2),
             "inside": ("nothing is written behind the end", 1)}
    start = 0.0

    def cases(self, random):
        for count in (64, 67):
            x = np.arange(count, dtype=np.float32) + np.float32(random.uniform())
            push = {"count": count, "factor": 2.5}
            yield self.dispatch_case({"x": x}, count, (2,), push, f"count={count}")

    def expected(self, case):
        return case.args[0]["x"] * np.float32(2.5)


@exercise("90-3", hints=("15 workgroups cover 960.",))
class Workgroups(Value):
    parts = {"count": ("enough, and not one too many", 1)}

    def expected(self, case):
        return 16
