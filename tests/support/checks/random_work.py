"""Random steps that read and write random bytes, for tests of barriers."""

from __future__ import annotations

from hypothesis import strategies as st

from vklab.plan.barriers import Access
from vklab.plan.memory import Slot

WEIGHTS = Slot("weights", 0, 1024)
SLOTS = st.builds(
    Slot,
    st.sampled_from(["a", "b"]),
    st.sampled_from([0, 256, 512, 768]),
    st.sampled_from([0, 4, 256, 300, 600]),
)
STAGES = st.sampled_from(["compute_shader", "transfer"])


@st.composite
def works(draw: st.DrawFn) -> list[Access]:
    """Draw up to ten steps, each of which writes something."""
    count = draw(st.integers(0, 10))
    return [
        Access(
            draw(STAGES),
            (WEIGHTS, *draw(st.lists(SLOTS, max_size=3))),
            tuple(draw(st.lists(SLOTS, min_size=1, max_size=2))),
        )
        for _ in range(count)
    ]
