"""The README's example runs as it stands there, and says the right digit."""

from __future__ import annotations

import re

import numpy as np
from child import python
from small_models import DATA, ROOT


def test_the_first_python_block_of_the_readme_runs(device_index):
    text = (ROOT / "README.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    assert blocks, "README.md has no ```python block"
    said = python(blocks[0], VKLAB_DEVICE=str(device_index))
    label = np.load(DATA / "digits.npz")["labels"][0]
    assert said.split() == [str(label)] * 2
