"""Quantisation of models: calibration, codes of 8 bits and blocks of GGUF, the error of each layer.

Entered through the command `vklab quantize` and by import. Visited by lab 14.
"""

__all__: list[str] = []
