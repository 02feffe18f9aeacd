"""Traces: the times of all work on host and devices, as numbers and as pictures.

Visited by lab 12.
"""

from vklab.base.trace.recorder import Recorder
from vklab.base.trace.spans import HOST, KINDS, Span
from vklab.base.trace.trace import Trace

__all__ = ["HOST", "KINDS", "Recorder", "Span", "Trace"]
