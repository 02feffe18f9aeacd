"""Core ML models: our reader, conversion by coremltools, and the backends that run them."""
