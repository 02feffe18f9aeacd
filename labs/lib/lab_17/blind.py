"""MiniClassifier with PyTorch's default weights, and with trained ones: how far do its logits move?

Visited by lab 17.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

import vklab
from vklab_course.data import data

__all__ = ["classifier", "differences"]

IMAGES, FOR_MEAN = 200, 40


def classifier(trained: bool, seed: int = 0) -> onnx.ModelProto:
    """Return MiniClassifier with trained weights, or with the default ones of PyTorch's layers.

    The default is uniform within 1 / sqrt(inputs of one output), for weights and biases.
    """
    model = onnx.load(data("mini_classifier.onnx"))
    random = np.random.default_rng(seed)
    with np.load(data("digits_mini_classifier.npz")) as weights:
        for tensor in model.graph.initializer:
            if tensor.name in weights.files:
                values = weights[tensor.name]
                if not trained:
                    shape = weights[tensor.name.replace("bias", "weight")].shape
                    bound = 1 / np.sqrt(np.prod(shape[1:]))
                    values = random.uniform(-bound, bound, values.shape)
                tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float32), tensor.name))
    return model


def differences(trained: bool) -> np.ndarray:
    """Return, for random images, how far the logits are from their mean over other images."""
    random = np.random.default_rng(100)
    logits = []
    with vklab.load(classifier(trained)) as session:
        for _ in range(IMAGES):
            image = random.standard_normal((1, 3, 32, 32)).astype(np.float32)
            logits.append(np.array(session.run({"image": image})["logits"])[0])
    mean = np.mean(logits[:FOR_MEAN], axis=0)
    return np.asarray(np.abs(np.array(logits[FOR_MEAN:]) - mean).max(axis=1))
