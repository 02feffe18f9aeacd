"""Quantisation of models: calibration, codes of 8 bits and blocks of GGUF, the error of each layer.

Entered through the command `vklab quantize` and by import.
"""

__all__: list[str] = []
