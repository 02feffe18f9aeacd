"""Concurrent chunks, frames and devices: scheduler, frames in flight, copies between devices.

Loaded by `Session` when needed. Visited by labs 12 and 13.
"""

__all__: list[str] = []
