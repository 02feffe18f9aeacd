"""Truth in float64: the torch module, or the ONNX graph widened."""
