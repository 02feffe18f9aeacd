"""Traces: when everything happened on host and devices, as numbers and as pictures."""

from vklab.trace.recorder import Recorder
from vklab.trace.spans import HOST, KINDS, Span, Trace

__all__ = ["HOST", "KINDS", "Recorder", "Span", "Trace"]
