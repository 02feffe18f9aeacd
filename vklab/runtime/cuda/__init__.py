"""Optional folder of the runtime: memory of a binding that CUDA reads and writes, too.

`Session.bind(cuda=True)`. Visited by lab 03.
"""

__all__: list[str] = []
