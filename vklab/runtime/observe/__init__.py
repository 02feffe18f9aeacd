"""Observation of a session's runs: times, traces, and comparisons with a reference.

Loaded by `Session` when needed. Visited by lab 12.
"""

__all__: list[str] = []
