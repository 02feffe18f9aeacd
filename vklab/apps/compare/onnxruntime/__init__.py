"""ONNX Runtime: its providers as data, one backend for all of them, and models as it needs them."""
