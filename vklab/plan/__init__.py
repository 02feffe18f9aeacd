"""Everything decided before the GPU starts: kernels, memory, chunks. Pure data, no driver.

Read `plan.make_plan` first: it is the walk from a shaped graph to a Plan. Visited by labs 11, 12.
"""

__all__: list[str] = []
