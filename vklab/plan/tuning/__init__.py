"""Adapt dispatches to one device: faster kernels, weight layouts, order, binding ranges.

Entered through `plan.make_plan`; without this folder every dispatch keeps the kernel that runs on
all devices, and a node too large for one binding runs on the host. Visited by labs 08 and 11.
"""

__all__: list[str] = []
