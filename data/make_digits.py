"""Make digits.npz (real handwritten digits) and digits_cnn.onnx (a small CNN trained on them).

    python data/make_digits.py             make both again, print accuracy, rewrite checksums
    python data/make_digits.py --verify    only compare all data files with checksums.json

Takes about 15 s. --verify needs neither torch nor scikit-learn, so they are imported late.
"""

from __future__ import annotations

import argparse
import collections
import io
import sys
import zipfile
from typing import Any

import checksums
import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

EPOCHS = 40  # like all of train(), chosen by 4-fold cross-validation on the training digits
HELD_OUT_FRACTION = 0.2
GREY_LEVELS = 64  # steps of 1/64 are exact in float32 and compress to half the size of 1/255
SEED = 0
SHIFT = 2  # pixels

GRAPH = """
<ir_version: 8, opset_import: ["" : 17], producer_name: "vklab data/make_digits.py">
digits_cnn (float[batch,1,28,28] image) => (float[batch,10] logits) {
    [conv1]    conv1 = Conv <kernel_shape=[3,3], pads=[1,1,1,1]> (image, conv1_w, conv1_b)
    [relu1]    relu1 = Relu (conv1)
    [maxpool1] maxpool1 = MaxPool <kernel_shape=[2,2], strides=[2,2]> (relu1)
    [conv2]    conv2 = Conv <kernel_shape=[3,3], pads=[1,1,1,1]> (maxpool1, conv2_w, conv2_b)
    [relu2]    relu2 = Relu (conv2)
    [maxpool2] maxpool2 = MaxPool <kernel_shape=[2,2], strides=[2,2]> (relu2)
    [flatten]  flatten = Flatten <axis=1> (maxpool2)
    [gemm1]    gemm1 = Gemm <transB=1> (flatten, gemm1_w, gemm1_b)
    [relu3]    relu3 = Relu (gemm1)
    [gemm2]    logits = Gemm <transB=1> (relu3, gemm2_w, gemm2_b)
}
"""


def resize_matrix() -> np.ndarray:
    """Return int64 [28, 8], 27 times the weights that resample 8 pixels to 28.

    Cubic convolution (Catmull-Rom, a = -1/2) at three output pixels a source pixel, with background
    around the source, so that strokes end softly before the edge. The offsets are thirds,
    which makes every weight a multiple of 1/27 and the images the same on every machine.
    Source: R. Keys, Cubic Convolution Interpolation for Digital Image Processing, 1981.
    """
    distance = np.abs((np.arange(28)[:, None] - 3) / 3 - np.arange(8))
    near = 1.5 * distance**3 - 2.5 * distance**2 + 1
    far = -0.5 * distance**3 + 2.5 * distance**2 - 4 * distance + 2
    weight = np.where(distance <= 1, near, np.where(distance < 2, far, 0))
    return np.rint(27 * weight).astype(np.int64)


def load_images() -> tuple[np.ndarray, np.ndarray]:
    """Return scikit-learn's digits as float32 [1797, 1, 28, 28] in 0..1 and int64 labels [1797]."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    resize, one = resize_matrix(), 27 * 27 * 16  # a source pixel counts 0..16
    grey = resize @ digits.images.astype(np.int64) @ resize.T
    steps = np.clip((grey * GREY_LEVELS + one // 2) // one, 0, GREY_LEVELS)
    images = steps[:, None].astype(np.float32) / np.float32(GREY_LEVELS)
    return images, digits.target.astype(np.int64)


def choose_held_out(labels: np.ndarray) -> np.ndarray:
    """Return bool [N], true for a fixed random fifth of every class."""
    random = np.random.default_rng(SEED)
    held_out = np.zeros(len(labels), bool)
    for digit in range(10):
        indices = random.permutation(np.flatnonzero(labels == digit))
        held_out[indices[: round(HELD_OUT_FRACTION * len(indices))]] = True
    return held_out


def npz_bytes(**arrays: np.ndarray) -> bytes:
    """Return a compressed .npz whose bytes depend on the arrays only, never on the clock."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as entries:
        for name, array in arrays.items():
            payload = io.BytesIO()
            np.save(payload, array)
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3  # else it names the system that wrote it
            entry.external_attr = 0o644 << 16
            entries.writestr(entry, payload.getvalue(), zipfile.ZIP_DEFLATED, compresslevel=9)
    return archive.getvalue()


def shift_randomly(images: Any) -> Any:
    """Return the torch batch [N, 1, 28, 28] moved by up to SHIFT pixels, one move for the batch."""
    import torch

    y, x = torch.randint(2 * SHIFT + 1, (2,)).tolist()
    return torch.nn.functional.pad(images, (SHIFT,) * 4)[..., y : y + 28, x : x + 28]


def train(images: np.ndarray, labels: np.ndarray) -> Any:
    """Return the trained torch module; fixed seed, one thread, so every run gives the same bits."""
    import torch
    from torch import nn

    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # the order of a sum depends on the number of threads
    torch.use_deterministic_algorithms(True)
    layers = {
        "conv1": nn.Conv2d(1, 8, 3, padding=1),
        "relu1": nn.ReLU(),
        "maxpool1": nn.MaxPool2d(2),
        "conv2": nn.Conv2d(8, 16, 3, padding=1),
        "relu2": nn.ReLU(),
        "maxpool2": nn.MaxPool2d(2),
        "flatten": nn.Flatten(),
        "dropout": nn.Dropout(0.3),
        "gemm1": nn.Linear(784, 32),
        "relu3": nn.ReLU(),
        "gemm2": nn.Linear(32, 10),
    }
    module = nn.Sequential(collections.OrderedDict(layers))
    images, labels = torch.from_numpy(images), torch.from_numpy(labels)
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(images)).split(32):
            optimizer.zero_grad()
            guess = module(shift_randomly(images[batch]))
            nn.functional.cross_entropy(guess, labels[batch]).backward()
            optimizer.step()
        schedule.step()
    return module.eval()


def to_onnx(module: Any) -> onnx.ModelProto:
    """Return GRAPH with the module's weights.

    Written by hand and not with torch.onnx.export: its output changes with every torch release
    and carries the paths of the machine it ran on.
    """
    model = onnx.parser.parse_model(GRAPH)
    for name, weight in module.state_dict().items():
        short_name = name.replace(".weight", "_w").replace(".bias", "_b")
        tensor = onnx.numpy_helper.from_array(weight.numpy(), short_name)
        model.graph.initializer.append(tensor)
    onnx.checker.check_model(model, full_check=True)
    return model


def check_export(module: Any, model: onnx.ModelProto, images: np.ndarray) -> None:
    """Stop with an error if the ONNX model does not say what the torch module says."""
    import torch

    (found,) = ReferenceEvaluator(model).run(None, {"image": images})
    with torch.no_grad():
        expected = module(torch.from_numpy(images)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def accuracy(module: Any, images: np.ndarray, labels: np.ndarray) -> str:
    """Return 'right of total (percent)'."""
    import torch

    with torch.no_grad():
        right = int((module(torch.from_numpy(images)).argmax(1).numpy() == labels).sum())
    return f"{right} of {len(labels)} ({100 * right / len(labels):.2f} %)"


def make() -> None:
    """Write digits.npz, digits_cnn.onnx and checksums.json; print sizes and accuracy."""
    images, labels = load_images()
    held_out = choose_held_out(labels)
    digits = npz_bytes(images=images, labels=labels, held_out=held_out)
    (checksums.DATA / "digits.npz").write_bytes(digits)
    module = train(images[~held_out], labels[~held_out])
    model = to_onnx(module)
    check_export(module, model, images[:5])
    model_bytes = model.SerializeToString(deterministic=True)
    (checksums.DATA / "digits_cnn.onnx").write_bytes(model_bytes)
    checksums.update("digits.npz", "digits_cnn.onnx")
    print(f"digits.npz       {len(digits):7} bytes")
    print(f"digits_cnn.onnx  {len(model_bytes):7} bytes")
    print("held-out digits ", accuracy(module, images[held_out], labels[held_out]))
    print("training digits ", accuracy(module, images[~held_out], labels[~held_out]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--verify", action="store_true", help="only compare the checksums")
    if parser.parse_args().verify:
        return checksums.verify()
    make()
    return 0


if __name__ == "__main__":
    sys.exit(main())
