"""Times of a growing sequence: a run of a new size, and the next run of the same size.

The model is a decoder with a KV cache: each step reads the keys and values of all earlier ones.
Visited by lab 11.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from vklab import settings
from vklab.apps.compare.models import decoder
from vklab.runtime import loading

LAYERS, LONGEST, STEPS = 8, 64, range(2, 42)


@dataclass(frozen=True)
class Row:
    """Medians of a sequence that grows by one.

    Attributes:
        variant: "templates", or "full plans" (DISABLE_TEMPLATES).
        first_ms: the first run of a size.
        again_ms: the next run of that size.
        slowest_ms: the slowest first run: a trace, where other kernels are chosen.
    """

    model: str
    variant: str
    first_ms: float
    again_ms: float
    slowest_ms: float

    def summary(self) -> dict[str, Any]:
        """Return the row ready for JSON."""
        return asdict(self)


def measure(device: int | str | None = None) -> Iterator[Row]:
    """Yield a row with templates, and one without."""
    model, fed = decoder.decoder(LAYERS), [decoder.feeds(past, LAYERS) for past in STEPS]
    for variant, disabled in (("templates", False), ("full plans", True)):
        with settings.settings(DISABLE_TEMPLATES=disabled), loading.load(
            model, device, upper_bounds={"past": LONGEST}
        ) as session:
            session.run(fed[0])
            first, again = zip(*(
                (_milliseconds(session.run, each), _milliseconds(session.run, each))
                for each in fed[1:]
            ), strict=True)  # fmt: skip
        yield Row(f"decoder_{LAYERS}", variant, median(first), median(again), max(first))


def _milliseconds(run: Callable[[Any], object], fed: Any) -> float:
    begun = time.perf_counter()
    run(fed)
    return (time.perf_counter() - begun) * 1e3
