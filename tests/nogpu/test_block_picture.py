"""Pictures of blocks: every format's fields and numbers, and what is refused."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from vklab.apps.quantization.block_picture import MEANINGS, BlockPicture
from vklab.errors import ModelError
from vklab.ops.blocks import FORMATS

NUMBERS = np.random.default_rng(0).normal(size=512).astype(np.float32)


def test_each_format_has_a_picture_of_its_bytes_and_numbers():
    for name, block in FORMATS.items():
        made = BlockPicture(name, NUMBERS)
        assert sum(size for _, size in made.fields) == made.data.size == block.fields.itemsize
        assert {field for field, _ in made.fields} <= MEANINGS.keys()
        root = ElementTree.fromstring(made._repr_html_())
        names = [child.tag.split("}")[-1] for child in root.iter()]
        assert names.count("rect") >= len(made.fields)
        assert names.count("circle") == made.given.size == block.elements
        assert str(made).startswith(f"{name}: {block.elements} numbers in ")
        assert abs(made.stored - made.given).max() < 0.5
    assert BlockPicture("Q4_K", NUMBERS).bits == 4.5
    assert [name for name, _ in BlockPicture("Q4_K", NUMBERS).fields] == [
        "d",
        "dmin",
        "scales",
        "qs",
    ]


def test_numbers_that_are_all_zero_have_a_picture():
    assert "largest error 0" in BlockPicture("Q4_0", np.zeros(32))._repr_html_()


def test_what_is_no_block_is_refused():
    with pytest.raises(ModelError, match="256 numbers, not 32"):
        BlockPicture("Q4_K", NUMBERS[:32])
    with pytest.raises(ModelError, match="Q9_9"):
        BlockPicture("Q9_9", NUMBERS)
