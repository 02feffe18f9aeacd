"""Entry points for PyTorch: `vklab.from_torch` and `torch.compile(model, backend="vklab")`.

Visited by lab 09.
"""
