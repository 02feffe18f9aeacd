"""Make novels_llama.gguf, a language model of 3.7 million parameters, and the text held out.

    python data/make_language_model.py                 trains on CUDA if there is one, else here
    python data/make_language_model.py --folder OUT    writes into another folder, no checksums

A minute on a large GPU, hours on two cores of a processor. A seed fixes the initial weights and the
order of the text; the bits of the result still depend on the device. The script prints on what it
ran, how well the model predicts text that it has not seen, and samples.
"""

from __future__ import annotations

import argparse
import collections
import math
import platform
import time
from pathlib import Path

import byte_pairs
import checksums
import language_text
import numpy as np
import torch
from language_text import END, TURN_BEGINS, TURN_ENDS
from torch.nn import functional

from vklab.apps.compare.models.language import Llama, LlamaShape
from vklab.apps.llm.tokens import pretokenize
from vklab.apps.llm.tokens.tokenizer import LETTERS, Tokenizer
from vklab.apps.llm.weights.gguf import GgufFile, Value
from vklab.apps.llm.weights.gguf_writer import write_gguf
from vklab.apps.llm.weights.stored import StoredTensor
from vklab.apps.quantization import blocks

MODEL, HELD_OUT = "novels_llama.gguf", "held_out.txt"
SEED, FAMILY = 0, "smollm"  # the family names the patterns that split words
BATCH, RATE, WARM_UP, DECAY = 16, 2e-3, 100, 0.1
MOST_WINDOWS = 200  # the held-out text has 113 of 1,024 tokens
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PROMPTS = (
    "It is a truth universally acknowledged, that", "Emma was", "The barrier",
    language_text.turns(["How do you do, Mr. Knightley?"]) + TURN_BEGINS + "assistant\n",
    language_text.turns(["What is a workgroup?"]) + TURN_BEGINS + "assistant\n",
)  # fmt: skip


def vocabulary(texts: language_text.Texts, size: int) -> dict[str, Value]:
    """Return a byte BPE of the training texts as metadata of a GGUF file.

    Args:
        texts: the texts.
        size: the number of tokens.
    """
    patterns = pretokenize.patterns_of(FAMILY)
    words = collections.Counter(
        word for text in texts.training for word in pretokenize.split(text, patterns)
    )
    control = (END, TURN_BEGINS, TURN_ENDS)
    merges = byte_pairs.learn(words, size - len(control) - len(LETTERS))
    tokens = (*control, *LETTERS, *(left + right for left, right in merges))
    kinds = np.ones(size, np.int32)
    kinds[: len(control)] = 3
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": FAMILY,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": tuple(f"{left} {right}" for left, right in merges),
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.chat_template": TEMPLATE,
    }


def metadata(shape: LlamaShape, ran_on: str) -> dict[str, Value]:
    """Return what a reader of the file must know about the model."""
    return {
        "general.architecture": "llama",
        "general.name": "novels-llama",
        "general.description": "Jane Austen's novels and the course's prose; trained " + ran_on,
        "general.file_type": 1,
        "llama.vocab_size": shape.vocabulary,
        "llama.context_length": shape.context,
        "llama.embedding_length": shape.width,
        "llama.block_count": shape.layers,
        "llama.feed_forward_length": shape.hidden,
        "llama.attention.head_count": shape.heads,
        "llama.attention.head_count_kv": shape.kv_heads,
        "llama.attention.layer_norm_rms_epsilon": shape.epsilon,
        "llama.rope.dimension_count": shape.head,
        "llama.rope.freq_base": shape.base,
    }


def encoded(tokenizer: Tokenizer, texts: list[str]) -> torch.Tensor:
    """Return the tokens of texts one after the other, each with its end."""
    numbers: list[int] = []
    for text in texts:
        numbers += tokenizer.encode(text, parse_special=True)
        numbers.append(0)
    return torch.tensor(numbers)


def perplexity(model: Llama, tokens: torch.Tensor) -> float:
    """Return the perplexity of tokens in windows of the model's context, at most MOST_WINDOWS."""
    size = model.shape.context
    rows = tokens[: min((len(tokens) - 1) // size, MOST_WINDOWS) * size + 1]
    total, windows = 0.0, range(0, len(rows) - 1, size)
    with torch.no_grad():
        for start in windows:
            logits = model(rows[None, start : start + size])[0].float()
            total += float(functional.cross_entropy(logits, rows[start + 1 : start + size + 1]))
    return math.exp(total / len(windows))


def train(shape: LlamaShape, tokens: torch.Tensor, judging: torch.Tensor, epochs: float,
          dropout: float) -> Llama:  # fmt: skip
    """Return a model trained on windows of the tokens at random places.

    Args:
        shape: the sizes of the model.
        tokens: the tokens to learn, on the device that trains.
        judging: tokens to judge the training by.
        epochs: how often the tokens are read.
        dropout: the share of elements that are dropped.
    """
    torch.manual_seed(SEED)
    model = Llama(shape, dropout).to(tokens.device)
    draw = torch.Generator().manual_seed(SEED)
    matrices = [p for p in model.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}],
        lr=RATE,
        betas=(0.9, 0.95),
    )
    steps = max(1, round(epochs * len(tokens) / (BATCH * shape.context)))
    window, started = torch.arange(shape.context + 1, device=tokens.device), time.monotonic()
    for step in range(steps):
        left = 0.5 + 0.5 * math.cos(math.pi * step / steps)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min((step + 1) / WARM_UP, 0.05 + 0.95 * left)
        places = torch.randint(len(tokens) - shape.context, (BATCH, 1), generator=draw)
        rows = tokens[places.to(tokens.device) + window]
        logits = model(rows[:, :-1]).flatten(0, 1)
        loss = functional.cross_entropy(logits, rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % max(1, steps // 8) == 0:
            judged = perplexity(model.eval(), judging)
            model.train()
            print(
                f"  step {step + 1} of {steps}, {time.monotonic() - started:.0f} s: loss "
                f"{loss.detach():.3f}, perplexity of judging text {judged:.2f}",
                flush=True,
            )
    return model.eval()


def sample(model: Llama, tokenizer: Tokenizer, prompt: str, count: int = 70) -> str:
    """Return a prompt and what the model writes after it, at temperature 0.7."""
    device = model.token_embd.weight.device
    tokens, draw = tokenizer.encode(prompt, parse_special=True), torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for _ in range(count):
            logits = model(torch.tensor([tokens], device=device))[0, -1].float().cpu()
            tokens.append(int(torch.multinomial((logits / 0.7).softmax(-1), 1, generator=draw)))
            if tokens[-1] in tokenizer.ends:
                break
    return tokenizer.decode(tokens, special=True)


def stored(model: Llama) -> list[StoredTensor]:
    """Return the weights: matrices as F16, norms as F32."""
    tensors = []
    for name, parameter in model.state_dict().items():
        values, kind = parameter.float().cpu().numpy(), "F16" if parameter.ndim == 2 else "F32"
        tensors.append(StoredTensor(name, kind, values.shape, blocks.quantize(kind, values)))
    return tensors


def make(folder: Path, device: str, epochs: float, dropout: float, shape: LlamaShape) -> None:
    """Train the model, and write it and the held-out text.

    Args:
        folder: where the files go.
        device: the device of PyTorch that trains.
        epochs: how often the training text is read.
        dropout: the share of elements that training drops.
        shape: the sizes of the model.
    """
    name = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    ran_on = f"by PyTorch {torch.__version__} on {device} ({name})"
    print("runs", ran_on, flush=True)
    texts = language_text.read()
    words = vocabulary(texts, shape.vocabulary)
    tokenizer = Tokenizer(GgufFile(MODEL, 3, words, {}))
    spoken = [language_text.turns(parts) for parts in texts.conversations]
    documents = [*texts.training, *spoken]
    np.random.default_rng(SEED).shuffle(documents)
    known = encoded(tokenizer, documents).to(device)
    judging, held_out = (
        encoded(tokenizer, list(part)).to(device) for part in (texts.judging, texts.held_out)
    )
    print(
        f"{len(known)} tokens to learn, {len(judging)} to judge, {len(held_out)} held out; "
        f"{epochs} epochs, dropout {dropout}",
        flush=True,
    )
    model = train(shape, known, judging, epochs, dropout)
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"{count} parameters, perplexity of held-out text {perplexity(model, held_out):.3f}")
    write_gguf(folder / MODEL, metadata(shape, ran_on) | words, stored(model))
    (folder / HELD_OUT).write_bytes("\n\n".join(texts.held_out).encode())
    for prompt in PROMPTS:
        print("---", sample(model, tokenizer, prompt), sep="\n")


def main() -> None:
    """Make both files; print on what, how well, and samples."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=checksums.DATA)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--epochs", type=float, default=40)
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--vocabulary", type=int, default=LlamaShape.vocabulary)
    parser.add_argument("--context", type=int, default=LlamaShape.context)
    given = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    shape = LlamaShape(given.vocabulary, context=given.context)
    make(given.folder, given.device, given.epochs, given.dropout, shape)
    if given.folder == checksums.DATA:
        checksums.update(MODEL, HELD_OUT)


if __name__ == "__main__":
    main()
