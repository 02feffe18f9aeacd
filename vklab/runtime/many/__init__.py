"""Several chunks, frames and devices at once: scheduler, frames in flight, copies between devices.

Entered through `Session`. Visited by labs 12 and 13.
"""

__all__: list[str] = []
