"""Make digits_mobilenet.npz: weights of a MobileNetV2 of half width, trained on the digits.

    python data/make_mobilenet.py

The module is torchvision's, with one input channel and ten classes; `mobilenet` makes it. Takes
some minutes.
"""

from __future__ import annotations

import checksums
import numpy as np
import torch
from make_networks import right, save, shift_randomly, train
from torch import nn
from torchvision.models import mobilenet_v2

from vklab.backends import models

__all__ = ["mobilenet"]

FILE = "digits_mobilenet.npz"
SEED, EPOCHS, BATCH, RATE = 0, 30, 32, 3e-3


def mobilenet(trained: bool = True) -> nn.Module:
    """Return the module, with the weights of the file or untrained."""
    module = mobilenet_v2(num_classes=10, width_mult=0.5)
    first = module.features[0][0]
    module.features[0][0] = nn.Conv2d(1, first.out_channels, 3, 2, 1, bias=False)
    if trained:
        with np.load(checksums.DATA / FILE) as arrays:
            state = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        module.load_state_dict({name: each.float() if each.is_floating_point() else each
                                for name, each in state.items()})  # fmt: skip
    return module.eval()


def main() -> None:
    """Write the file and its checksum; print sizes and accuracies."""
    torch.set_num_threads(1)  # the order of a sum depends on the number of threads
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(SEED)
    arrays = models.read_arrays("digits.npz")
    labels, held_out = arrays["labels"], arrays["held_out"]
    images = torch.from_numpy(models.digit_images(held_out=False))
    module = train(mobilenet(trained=False).train(), images, torch.from_numpy(labels[~held_out]),
                   EPOCHS, BATCH, RATE, shift_randomly)  # fmt: skip
    save(FILE, {name: each.numpy().astype(np.float16) if each.is_floating_point() else each.numpy()
                for name, each in module.state_dict().items()})  # fmt: skip
    print("  held-out digits", right(mobilenet(), torch.from_numpy(models.digit_images()),
                                     labels[held_out]))  # fmt: skip
    print("  training digits", right(mobilenet(), images, labels[~held_out]))


if __name__ == "__main__":
    main()
