"""What holds for every trace."""

from __future__ import annotations


def by_name(trace, run=0):
    """Return the spans of one run or frame."""
    return {span.name: span for span in trace.spans if span.run == run}


def require_order(trace, tolerance_ns):
    """Fail unless every span begins after those it waits for, as far as the clocks are right."""
    found = 0
    for target, sources in trace.predecessors().items():
        for source in sources:
            before, after = trace.spans[source], trace.spans[target]
            slack = tolerance_ns if before.device != after.device else 0
            # A device may begin before the call that submits has come back.
            moment = before.start_ns if before.name.startswith("submit") else before.end_ns
            assert moment <= after.start_ns + slack, (before, after)
            found += 1
    assert found
