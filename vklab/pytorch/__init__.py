"""PyTorch's two doors: `vklab.from_torch`, and `torch.compile(model, backend="vklab")`."""
