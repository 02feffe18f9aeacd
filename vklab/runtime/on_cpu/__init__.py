"""Sessions of host nodes: ONNX Runtime, in this process or another, or `onnx.reference`."""
