"""Execution of plans on devices: open devices, kernels, recording, transfers, sessions.

Read `session` first. Visited by labs 04, 12 and 17.
"""

__all__: list[str] = []
