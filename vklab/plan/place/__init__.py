"""Several devices: which one each node runs on, where the graph is cut, how values cross.

Entered through `plan.make_plan` when more than one device is given. Visited by lab 13.
"""

__all__: list[str] = []
