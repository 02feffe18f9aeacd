"""What a session tells about its runs: times, traces, and comparisons with a reference.

Entered through `Session`. Visited by labs 12, 17 and 18.
"""

__all__: list[str] = []
