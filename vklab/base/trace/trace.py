"""A trace: spans that draw themselves as a Gantt chart, as HTML, or as events for Perfetto.

Computes no numbers: those are in `spans`. Visited by lab 12.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

from vklab.base import draw
from vklab.base.trace import chrome, gantt
from vklab.base.trace.spans import Timeline
from vklab.errors import SetupError


@dataclass(frozen=True, repr=False)
class Trace(Timeline):
    """A timeline of one or more runs with its pictures."""

    def to_chrome(self) -> dict[str, Any]:
        """Return trace events for Perfetto (ui.perfetto.dev) or chrome://tracing, for JSON.

        A process for each device, a thread for each lane, an arrow for each dependency.
        """
        return chrome.events(self)

    def gantt(self, title: str = "") -> Any:
        """Draw the trace as a matplotlib Figure: a row for each lane, a colour for each kind.

        Lines join the spans of the critical path. Raises SetupError without matplotlib.
        """
        return gantt.figure(self, title)

    def svg(self, title: str = "") -> str:
        """Return the Gantt chart as SVG; equal traces give equal text."""
        return gantt.svg(self, title)

    def _repr_html_(self) -> str:
        table = draw.table_html("Busy and idle", self.headers, self.cells())
        try:
            label = escape(f"Gantt chart: {self}", quote=True)
            return (
                f'<div role="img" aria-label="{label}" style="max-width:100%">{self.svg()}'
                f"</div>{table}"
            )
        except SetupError as error:
            return f"<p>{escape(str(error))}</p>{table}"
