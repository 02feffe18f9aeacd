"""ONNX's objects: graph, node, value, initializer; model import, shape inference and passes.

Pure data, no GPU. Visited by labs 09 and 10.
"""

__all__: list[str] = []
