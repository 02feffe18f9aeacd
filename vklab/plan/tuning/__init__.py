"""Adapt dispatches to one device: faster kernels, weight layouts, order, binding ranges.

`tune.py` has the steps in order. The rooms have the rules, by subject: products, blocks, rows,
attention; `base/catalogue.py` lists them. Visited by labs 08 and 11.
"""

__all__: list[str] = []
