"""Spread a graph over several devices: assign nodes, cut stages, choose paths for values.

Entered through `plan.make_plan` when more than one device is given. Visited by lab 13.
"""

__all__: list[str] = []
