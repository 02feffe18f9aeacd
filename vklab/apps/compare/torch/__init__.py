"""PyTorch: one backend for each device, modules made by factories, their layers by fx names."""
