"""Quantisation of models: calibration, 8-bit codes, and the error of each layer.

Entered through the command `vklab quantize` and by import. Visited by lab 14.
"""

__all__: list[str] = []
