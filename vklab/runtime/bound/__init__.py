"""Optional folder of the runtime: values that stay on the device between runs, and chosen outputs.

`Session.bind`, and `outputs=` of `load` and `Session.run`. Visited by labs 03 and 19.
"""

__all__: list[str] = []
