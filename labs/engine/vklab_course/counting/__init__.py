"""Observation of kernels by counters in their SPIR-V, which the text of a kernel cannot see."""

__all__: list[str] = []
