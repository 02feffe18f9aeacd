"""Show plans as pictures and tables.

Entered through the methods of `Plan`. Visited by lab 11.
"""

__all__: list[str] = []
