"""Make digits_mobilenet.npz: weights of a MobileNetV2 of half width, trained on the digits.

    python data/make_mobilenet.py          about ten minutes

The module is that of `vklab/apps/compare/models/networks.py`; the weights are rounded to float16.
"""

from __future__ import annotations

import numpy as np
import torch
from make_networks import right, save, shift_randomly, train

from vklab.apps.compare import models
from vklab.apps.compare.models import networks

SEED, EPOCHS, BATCH, RATE = 0, 24, 32, 3e-3


def main() -> None:
    """Write the file and its checksum; print sizes and accuracies."""
    torch.set_num_threads(1)  # the order of a sum depends on the number of threads
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(SEED)
    arrays = models.read_arrays("digits.npz")
    labels, held_out = arrays["labels"], arrays["held_out"]
    images = torch.from_numpy(models.digit_images(held_out=False))
    module = train(
        networks.MobileNetV2Half(),
        images,
        torch.from_numpy(labels[~held_out]),
        EPOCHS,
        BATCH,
        RATE,
        shift_randomly,
    )
    save(
        "digits_mobilenet.npz",
        {
            name: tensor.numpy().astype(np.float16)
            if tensor.is_floating_point()
            else tensor.numpy()
            for name, tensor in module.state_dict().items()
        },
    )
    module, (tests,) = models.mobilenet_v2_half(None)
    print("  held-out digits", right(module, tests, labels[held_out]))
    print("  training digits", right(module, images, labels[~held_out]))


if __name__ == "__main__":
    main()
