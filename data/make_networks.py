"""Make the weights of the parity reports' models: trained ones, and BatchNorm statistics.

    python data/make_networks.py           makes all four files, about two minutes
    python data/make_networks.py --judge   only judges the text classifier

The modules are those of `vklab/apps/compare/models/networks.py`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import checksums
import numpy as np
import torch
from make_digits import npz_bytes
from torch import nn

from vklab.apps.compare import models
from vklab.apps.compare.judging import flips
from vklab.apps.compare.models import networks, texts

SEED = 0
WORDS = 4096  # of the vocabulary
BATCH = 32  # images of the statistics
DROPPED = 0.3  # share of words that training replaces by the unknown one


def train(module: nn.Module, inputs: torch.Tensor, labels: torch.Tensor, epochs: int, batch: int,
          rate: float, change: Callable[[torch.Tensor], torch.Tensor]) -> nn.Module:  # fmt: skip
    """Return the trained module; fixed seed, one thread, so every run gives the same bits."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=rate, weight_decay=1e-2)
    steps = epochs * -(-len(inputs) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for _ in range(epochs):
        for chosen in torch.randperm(len(inputs)).split(batch):
            optimizer.zero_grad()
            guess = module(change(inputs[chosen]))
            nn.functional.cross_entropy(guess, labels[chosen]).backward()
            optimizer.step()
            schedule.step()
    return module.eval()


def save(name: str, arrays: dict[str, Any]) -> None:
    """Write an .npz file and its checksum."""
    content = npz_bytes(**arrays)
    (checksums.DATA / name).write_bytes(content)
    checksums.update(name)
    print(f"{name}  {len(content)} bytes")


def state(module: nn.Module) -> dict[str, np.ndarray]:
    """Return the module's state as arrays."""
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


def right(module: nn.Module, inputs: torch.Tensor, labels: np.ndarray) -> str:
    """Return 'right of total (percent)'."""
    with torch.no_grad():
        count = int((module(inputs).argmax(1).numpy() == labels).sum())
    return f"{count} of {len(labels)} ({100 * count / len(labels):.2f} %)"


def shift_randomly(images: torch.Tensor) -> torch.Tensor:
    """Return the images moved by up to two pixels, one move for the batch."""
    down, right = torch.randint(-2, 3, (2,)).tolist()
    return torch.roll(images, (down, right), (2, 3))  # the frame of two pixels is black


def make_mini_classifier() -> None:
    """Train MiniClassifier on the digits."""
    arrays = models.read_arrays("digits.npz")
    labels, held_out = arrays["labels"], arrays["held_out"]
    images = torch.from_numpy(models.digit_images(held_out=False))
    torch.manual_seed(SEED)
    module = train(
        networks.MiniClassifier(),
        images,
        torch.from_numpy(labels[~held_out]),
        24,
        32,
        3e-3,
        shift_randomly,
    )
    save("digits_mini_classifier.npz", state(module))
    tests = torch.from_numpy(models.digit_images())
    print("  held-out digits", right(module, tests, labels[held_out]))


def drop_words(tokens: torch.Tensor) -> torch.Tensor:
    """Return the tokens with some of them unknown."""
    dropped = torch.rand(tokens.shape) < DROPPED
    return torch.where(dropped, torch.tensor(texts.UNKNOWN, dtype=tokens.dtype), tokens)


def make_text_classifier() -> None:
    """Train the text classifier on the passages that are not held out."""
    found = texts.passages(checksums.DATA / texts.FILE)
    known = [passage.text for passage in found.training]
    words = texts.vocabulary(known, WORDS)
    torch.manual_seed(SEED)
    module = train(
        networks.TextClassifier(WORDS, len(texts.NOVELS)),
        torch.from_numpy(texts.tokens(known, words)),
        torch.tensor([passage.label for passage in found.training]),
        8,
        128,
        3e-3,
        drop_words,
    )
    save("text_classifier.npz", {**state(module), "words": np.array(words)})


def judge() -> None:
    """Print accuracy, margins, and the classes that flip in shorter floats."""
    module, (tokens,) = models.text_classifier(None)
    labels = models.text_labels()
    print(f"  {len(labels)} held-out passages", right(module, tokens, labels))
    with torch.no_grad():
        truth = module.double()(tokens).numpy()
        for dtype in (torch.float16, torch.bfloat16):
            module, _ = models.text_classifier(None)
            print(dtype, flips.judge(truth, module.to(dtype)(tokens).double().numpy()))


def make_statistics(network: str, name: str) -> None:
    """Measure the BatchNorm statistics of one batch of random images."""
    module = networks.draw_weights(getattr(networks, network)())
    batch = torch.from_numpy(models.seeded(BATCH, *models.IMAGE, seed=2))
    save(f"{name}_statistics.npz", networks.measure_statistics(module, batch))


def main() -> None:
    """Write the files and their checksums; print sizes and accuracies."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--judge", action="store_true", help="only judge the text classifier")
    torch.set_num_threads(1)  # the order of a sum depends on the number of threads
    torch.use_deterministic_algorithms(True)
    if not parser.parse_args().judge:
        make_statistics("ResNet18", "resnet18")
        make_statistics("MobileNetV3Small", "mobilenet_v3_small")
        make_mini_classifier()
        make_text_classifier()
    judge()


if __name__ == "__main__":
    main()
