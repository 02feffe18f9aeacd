"""Applications of the runtime: commands, language models, quantization, comparisons and more."""
