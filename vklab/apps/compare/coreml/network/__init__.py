"""NeuralNetwork, the older kind of Core ML model, as ONNX."""
