"""Vulkan objects of the seven steps of a dispatch: a stack that owns them, and its picture.

The stack destroys the objects of a step before the step runs again. Visited by lab 04c.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar, TypeVar

from vklab_course.check import check
from vklab_course.picture import Picture
from vklab_labs.shared.diagram import Diagram

__all__ = ["ObjectStack", "TooEarly", "draw_objects"]

T = TypeVar("T", bound=Callable[..., Any])

STEPS = (
    ("1 instance, device", "instance:the loader", "physical device:instance",
     "device:physical device", "queue:device"),
    ("2 compile", "SPIR-V:vector_add"),
    ("3 shader module", "shader module:device, SPIR-V"),
    ("4 pipeline", "set layout:device", "pipeline layout:set layout", "pipeline:module, layout"),
    ("5 buffers", "buffers:device", "memory:device", "descriptor pool:device",
     "descriptor set:pool, set layout"),
    ("6 record", "command pool:device, family", "command buffer:pool, pipeline, set"),
    ("7 submit and wait", "fence:device"),
)  # fmt: skip


def draw_objects(existing: Collection[str], step: int, alt: str, caption: str) -> Picture:
    """Draw the objects after a step: new ones in orange, older ones in blue, later ones dashed.

    Args:
        existing: names of the objects that exist.
        step: the step, from 1 to 7; only its row is drawn, and all rows at 0 and 7.
        alt: the content in words.
        caption: the line below.
    """
    rows = [n for n in range(len(STEPS)) if step in (0, 7, n + 1)]
    drawing = Diagram(818, 44 * len(rows) + 4)
    for place, row in enumerate(rows):
        label, *boxes = STEPS[row]
        y = place * 44 + 4
        drawing.note((6, y + 22), label, bold=row + 1 == step)
        for column, (box, source) in enumerate(item.split(":") for item in boxes):
            there = box in existing
            drawing.box(
                (152 + column * 166, y, 156, 36),
                f"{box}\nfrom {source}",
                "orange" if there and row + 1 == step else "blue" if there else "grey",
                dashed=not there,
                filled=there,
            )
    return drawing.picture(alt, caption)


class TooEarly(NotImplementedError):
    """A step before its turn; a notebook shows the message, without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class ObjectStack:
    """Vulkan objects of the seven steps so far, each with the call that destroys it."""

    _last: ClassVar[ObjectStack | None] = None

    def __init__(self) -> None:
        # A second stack in the same notebook would forget what the first one has created.
        if ObjectStack._last is not None:
            ObjectStack._last.end()
        ObjectStack._last = self
        self.now = 0
        self.kept: list[tuple[int, str, Callable[[], object] | None]] = []

    def step(self, number: int) -> None:
        """Begin a step: destroy the objects of this and later steps, last created first."""
        if number > self.now + 1:
            # Not an error where an exercise is still open: `attempt` says what the step waits for.
            raise TooEarly(
                f"step {number} waits for step {number - 1}, whose cell has not run to its end yet"
            )
        while self.kept and self.kept[-1][0] >= number:
            destroy = self.kept.pop()[2]
            if destroy is not None:
                destroy()
        self.now = number

    def checked(self, identifier: str, answer: T) -> T:
        """Return an answer that its check calls correct; a driver may crash on any other."""
        verdict = check(identifier, answer)
        if verdict.status != "correct":
            raise TooEarly(
                f"the step waits until {verdict.title} is correct: a driver checks "
                "nothing, and may crash"
            )
        return answer

    def keep(
        self, box: str, handle: Any, destroy: Callable[..., object] | None = None, *owner: Any
    ) -> Any:
        """Push an object and return it; `destroy(*owner, handle, None)` will destroy it.

        Args:
            box: name of its box in the picture.
            handle: the object.
            destroy: the Vulkan call that destroys it; None if none is needed.
            *owner: the arguments before the handle, usually the device.
        """
        end = (lambda: destroy(*owner, handle, None)) if destroy else None
        self.kept.append((self.now, box, end))
        return handle

    def end(self) -> int:
        """Destroy all objects, last created first; return the number of destroy calls."""
        count = sum(destroy is not None for _, _, destroy in self.kept)
        self.step(1)
        self.now = 0
        return count

    def picture(self) -> Picture:
        """Draw the row of the current step; all rows before the first and after the last step."""
        made = list(dict.fromkeys(box for _, box, _ in self.kept))
        new = list(dict.fromkeys(box for at, box, _ in self.kept if at == self.now))
        if not self.now:
            return draw_objects(
                (),
                0,
                "Seven rows of dashed boxes, one row a step: none exists yet.",
                "The objects of the seven steps.",
            )
        said = f"New after step {self.now} of 7: {', '.join(new) or 'nothing'}."
        said += f" {len(made)} kinds of objects exist, the last in orange." * (self.now == 7)
        alt = f"Step {self.now}: boxes for {', '.join(new)}. Objects: {', '.join(made)}."
        return draw_objects(made, self.now, alt, said)
