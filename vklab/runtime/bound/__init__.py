"""Optional folder of the runtime: values that stay on the device between runs, and chosen outputs.

`Session.bind`, and `outputs=` of `load` and `Session.run`. Visited by lab 03.
"""

__all__: list[str] = []
