"""Optional folder of the runtime: how programs on a GPU tell the polling host that they are done.

Visited by lab 06.
"""

__all__: list[str] = []
