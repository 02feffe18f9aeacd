"""Language models and what belongs to them: GGUF files, tokenizers, chat templates."""
