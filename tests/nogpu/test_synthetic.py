"""GGUF files with random weights: the mix of formats, values of a usual spread, bad names."""

from __future__ import annotations

import numpy as np
import pytest

from vklab.apps.llm.graphs.llama import LlamaSizes
from vklab.apps.llm.weights import mixes, synthetic
from vklab.apps.llm.weights.gguf import read_gguf
from vklab.apps.quantization import blocks
from vklab.errors import ModelError


@pytest.mark.parametrize("kind", synthetic.TYPES)
def test_values_have_the_spread_of_weights(kind, tmp_path):
    synthetic.write(tmp_path / "model.gguf", "tiny", kind)
    file = read_gguf(tmp_path / "model.gguf")
    assert LlamaSizes.of(file).layers == 2
    for name, tensor in file.tensors.items():
        values = blocks.dequantize(tensor.block_type, tensor.data)
        assert np.isfinite(values).all()
        if "norm" not in name:
            spread = values.std() * tensor.shape[1] ** 0.5
            assert 0.5 < spread < 1.5 and abs(values.mean()) < 0.1 * values.std(), name


def test_the_mix_is_that_of_llama_quantize():
    sizes = synthetic.SHAPES["1.1B"]
    columns = {
        f"blk.{layer}.{name}.weight": dims[1]
        for name, dims in sizes.matrices().items()
        for layer in range(sizes.layers)
    }
    tables = {"output.weight": sizes.width, "token_embd.weight": sizes.width}
    made = mixes.of_names({**columns, **tables}, "Q4_K_M", sizes.layers)
    # llama.cpp's use_more_bits for 22 layers: the first 2, the last 3, every third between
    more = (0, 1, 4, 7, 10, 13, 16, 19, 20, 21)
    longer = {f"blk.{layer}.{name}.weight" for name in ("attn_v", "ffn_down") for layer in more}
    assert {name for name, block in made.items() if block == "Q6_K"} == {*longer, "output.weight"}
    assert {*made.values()} == {"Q4_K", "Q6_K"}


@pytest.mark.parametrize(("name", "parameters"), [("1.1B", 1.1e9), ("8B", 8.03e9)])
def test_shapes_have_the_parameters_of_their_names(name, parameters):
    sizes = synthetic.SHAPES[name]
    each = sum(rows * columns for rows, columns in sizes.matrices().values())
    total = sizes.layers * each + 2 * sizes.words * sizes.width
    assert abs(total / parameters - 1) < 0.01


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(ModelError, match="unknown shape '7B'"):
        synthetic.write(tmp_path / "model.gguf", "7B", "F16")
    with pytest.raises(ModelError, match="type 'Q2_K'; shapes are tiny, 1.1B, 8B, types F16"):
        synthetic.write(tmp_path / "model.gguf", "tiny", "Q2_K")
    assert not list(tmp_path.iterdir())
