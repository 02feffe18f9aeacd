"""Whole models and their files: of PyTorch, Core ML and ONNX's suite, and their plans."""
