"""Choose faster kernels, weight layouts and dispatch orders for one device.

Entered through `plan.make_plan`; without this folder every dispatch keeps the kernel that runs on
all devices. Visited by labs 08 and 11.
"""

__all__: list[str] = []
