"""Execution of plans on devices: open devices, kernels, recording, transfers, sessions.

Reading order: docs/architecture.md, step 7. Visited by labs 04 and 12.
"""

__all__: list[str] = []
