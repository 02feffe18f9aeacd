"""Pictures of handwritten digits with what a network reads in them. Visited by lab 00."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

import vklab
from vklab_course.data import data
from vklab_course.picture import Picture, picture
from vklab_labs.shared.diagram import COLOURS

__all__ = ["draw_digits", "held_out", "logits_of", "symptoms"]


def held_out() -> tuple[np.ndarray, np.ndarray]:
    """Return the pictures that the digits network was not trained on, and their digits."""
    images, labels = _read_held_out(data("digits.npz"))
    return images.copy(), labels.copy()


@functools.cache
def _read_held_out(path: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(path) as file:
        kept = file["held_out"]
        return file["images"][kept], file["labels"][kept]


def logits_of(pictures: np.ndarray) -> np.ndarray:
    """Return what the digits network says about pictures: 10 logits for each."""
    with vklab.load(data("digits_cnn.onnx")) as session:
        return session.run({"image": pictures})["logits"]


def symptoms(lines: Sequence[str]) -> str:
    """Return how well the network reads photos, as uint8, that lines of code prepare as `x`."""
    images, labels = held_out()
    names = {"np": np, "photos": np.rint(images[:, 0] * 255).astype(np.uint8)}
    exec("\n".join(lines), names)
    logits = logits_of(np.ascontiguousarray(names["x"]))
    said = logits.argmax(axis=1)
    return (
        f"{100 * np.mean(said == labels):3.0f} % right, {len(np.unique(said)):2} different "
        f"answers, spread {logits.std(axis=0).max():.1f}"
    )


def draw_digits(
    pictures: Any, predicted: Sequence[int], truth: Sequence[int], caption: str
) -> Picture:
    """Draw pictures in a row, the prediction above each; a wrong one with the true digit.

    Args:
        pictures: array of shape (count, 1, 28, 28) or (count, 28, 28), from 0 to 1.
        predicted: the predicted digit of each picture.
        truth: the true digit of each picture.
        caption: text below the picture.
    """
    pictures = np.asarray(pictures)
    if pictures.ndim not in (3, 4):
        raise ValueError(f"expected pictures of shape [count, 1, 28, 28], got {pictures.shape}")
    figure = Figure(figsize=(1.1 * len(pictures), 1.75))
    axis = figure.add_axes((0, 0, 1, 0.7))  # one for all: axes are the slow part of a figure
    words = []
    grey = colormaps["gray"].with_extremes(bad=COLOURS["orange"])
    if np.isnan(pictures).any():
        caption += " Orange pixels are no numbers (NaN)."
    for left, image, said, is_true in zip(
        range(0, 34 * len(pictures), 34), pictures, predicted, truth, strict=True
    ):
        right = bool(said == is_true)
        words.append(f"{said}" if right else f"{said} (is {is_true})")
        axis.imshow(
            np.squeeze(image),
            cmap=grey,
            vmin=0,
            vmax=1,  # a wrong range shows
            extent=(left, left + 28, 0, 28),
        )
        axis.text(
            left + 14,
            30,
            f"{said}" if right else f"{said} ✘\nis {is_true}",
            fontsize=13,
            color=COLOURS["blue" if right else "red"],
            ha="center",
        )
    axis.set(xlim=(-3, 34 * len(pictures) - 3), ylim=(0, 28))
    axis.axis("off")
    alt = f"{len(words)} pictures of digits, read by the network as {', '.join(words)}"
    return picture(figure, alt, caption)
