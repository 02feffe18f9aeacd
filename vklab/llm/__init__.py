"""Language models: files of weights, and the graphs that are made of them.

Visited by lab 19.
"""

__all__: list[str] = []
