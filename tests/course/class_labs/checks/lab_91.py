"""The exercises of a lab that a class hands in."""

import math

from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, Value, exercise
from vklab_course.definition.kinds import Text

SIZES = (4, 7, 64)  # only the oracle's side uses this


def draw_sizes(random):
    """Draw sizes around every multiple."""
    return [(int(random.integers(1, 500)), size) for size in SIZES for _ in range(3)]


def whole(value):
    """Tell whether a value is a whole number."""
    return type(value) is int


@exercise("91-1", hints=("How many blocks of 4 hold 5?", "Round up."),
          variants=({"usual": 256}, {"usual": 64}, {"usual": 32}))  # fmt: skip
class Padded(Function):
    parts = {"exact": ("multiples stay", 1), "up": ("everything else grows", 3)}

    def cases(self, random):
        for count, size in draw_sizes(random):
            yield Case("exact", (count * size, size))
            yield Case("up", (count * size + 1, size))
        yield Case("", (1,), on="count=1 and no multiple")

    def expected(self, case):
        count, multiple = (*case.args, self.params["usual"])[:2]
        return math.ceil(count / multiple) * multiple

    def compare(self, case, got, report):
        report.expect(whole(got), f"expected an int, got {got!r}")  # a comment that goes
        report.equal(got, case.expected)


@exercise("91-2", hints=("15 workgroups of 64 cover 960 elements.",))
class Workgroups(Value):
    parts = {"count": ("enough, and not one too many", 1)}

    def expected(self, case):
        return 16


@exercise("91-3", hints=("Think of the alignment.",))
class Why(Text):
    rubric = {"names the alignment": 2, "one sentence": 1}
