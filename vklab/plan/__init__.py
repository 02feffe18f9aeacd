"""Everything decided before the GPU starts: kernels, memory, chunks. Pure data, no driver.

Read `plan.make_plan` first: it leads from an imported graph to a Plan. Visited by labs 11 and 12.
"""

__all__: list[str] = []
