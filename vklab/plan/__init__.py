"""Everything decided before the GPU starts: kernels, memory, chunks. Pure data, no driver.

Reading order: docs/architecture.md, step 4. Visited by labs 11 and 12.
"""

__all__: list[str] = []
