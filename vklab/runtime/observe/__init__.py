"""Observation of a session's runs: times, traces, and comparisons with a reference.

Loaded by `Session` when needed. Visited by labs 12, 17 and 18.
"""

__all__: list[str] = []
