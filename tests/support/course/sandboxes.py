"""Sandboxes for tests: what they need on this machine, small limits, an image's name."""

from __future__ import annotations

import os
import shutil

import pytest

from vklab_course.grade.sandbox.limits import Limits

__all__ = ["IMAGE", "SMALL", "as_root", "needs_bubblewrap"]

_LACKING = [name for name in ("bwrap", "setpriv", "prlimit") if not shutil.which(name)]
needs_bubblewrap = pytest.mark.skipif(bool(_LACKING), reason=f"not installed: {_LACKING}")
as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="the setting exists only where root runs the grader",
)
SMALL = Limits(memory_bytes=600 << 20, work_bytes=16 << 20, processes=60)
IMAGE = "registry.example/vklab@sha256:" + "0" * 64
