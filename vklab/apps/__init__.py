"""Applications of the runtime, and the names that their modules had before they moved."""

from __future__ import annotations

from vklab.base import forward

# Modules of llm that stood in the folder itself, by the room where they are; for one release.
_ROOMS = {
    "decode": ("cached_model", "decoder", "generating", "load_progress", "memory", "placing",
               "staged_model", "stages"),
    "graphs": ("build", "gpt2", "llama", "models", "unused"),
    "templates": ("chat_template", "template_child", "template_process"),
    "tokens": ("hugging_face_steps", "hugging_face_vocabulary", "pretokenize", "sentencepiece",
               "tokenizer", "vocabulary"),
    "weights": ("gguf", "gguf_writer", "hugging_face", "hugging_face_model", "mixes", "noted",
                "onnx_export", "requantize", "safetensors", "stored", "synthetic"),
}  # fmt: skip
_MOVED = {
    **{f"compare.coreml.{name}": f"compare.coreml.network.{name}"
       for name in ("network_layers", "network_weights", "neural_network")},
    **{f"llm.{name}": f"llm.{room}.{name}" for room, names in _ROOMS.items() for name in names},
    "llm.generation": "llm.decode.cached_model",
    "llm.json_files": "llm.weights.noted", "llm.merging": "llm.tokens.tokenizer",
    "llm.pictures": "llm.chat", "llm.single_step": "llm.graphs.models",
    "llm.streaming": "llm.answer", "llm.products": "compare.speed.language_runs",
    "quantization.bits": "quantization.k_blocks", "quantization.dynamic": "quantization.quantize",
}  # fmt: skip


def _new_name(old: str) -> str:
    module, colon, inner = old.partition(":")
    name = module.removeprefix("vklab.").removeprefix("apps.")
    return f"vklab.apps.{_MOVED[name]}{colon}{inner}" if name in _MOVED else ""


forward.install(_new_name)
