"""What works on this machine, what does not, and the line that repairs it.

Importable and truthful with no Vulkan loader, driver or bindings: this process never opens a
driver; `probe` does, in a child. Visited by lab 00.
"""

from vklab.doctor.checks import examine
from vklab.doctor.report import Check, Report

__all__ = ["Check", "Report", "examine"]
