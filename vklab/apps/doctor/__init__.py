"""Checks of this machine, from Python to running kernels, each failure with a line to repair it.

Works without a Vulkan loader, driver or bindings: this process never opens a driver; `probe` does
so in a child process. Visited by lab 00.
"""

from vklab.apps.doctor.checks import examine
from vklab.apps.doctor.report import Check, Report

__all__ = ["Check", "Report", "examine"]
