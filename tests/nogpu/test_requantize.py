"""GGUF files in other block formats: values, formats of rows that do not fit, and the command."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from support.language import gguf_fuzz, llama_models, mix_cases
from vklab.apps import cli
from vklab.apps.llm.weights import mixes, synthetic
from vklab.apps.llm.weights.gguf import read_gguf
from vklab.apps.llm.weights.gguf_writer import write_gguf
from vklab.apps.llm.weights.requantize import requantized
from vklab.apps.llm.weights.stored import StoredTensor
from vklab.apps.quantization import blocks
from vklab.errors import ModelError


def converted(file, kind):
    return requantized(file, kind, blocks.dequantize, blocks.quantize)


@pytest.mark.parametrize("kind", ["Q4_K", "Q4_0", "BF16", "F32"])
def test_matrices_have_the_format_and_its_values(kind):
    file = llama_models.tiny_model(width=256, hidden=512, kinds={"": "F32"})
    made = converted(replace(file, metadata={**file.metadata, "general.file_type": 0}), kind)
    assert made.metadata == file.metadata  # the type of the old mix is gone
    for name, tensor in made.tensors.items():
        given = file.tensors[name]
        assert tensor.shape == given.shape
        if len(tensor.shape) == 1 or kind == "F32":
            assert tensor is given
        else:
            assert tensor.block_type == kind
            values = given.data.view(np.float32)
            assert (tensor.data == blocks.quantize(kind, values)).all()


def test_rows_that_are_no_whole_blocks_get_another_format():
    file = gguf_fuzz.whole("bpe")  # 64 wide
    ones = blocks.quantize("F32", np.ones((2, 5), np.float32))
    odd = StoredTensor("odd.weight", "F32", (2, 5), ones)
    made = converted(replace(file, tensors={**file.tensors, odd.name: odd}), "Q4_K")
    assert made.tensors["blk.0.ffn_up.weight"].block_type == "Q8_0"
    assert made.tensors["odd.weight"].block_type == "F16"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.full if name == "novels_llama" else ())
        for name in mix_cases.CASES
    ],
)
def test_mixes_are_byte_for_byte_those_of_llama_quantize(name):
    file, known = mix_cases.CASES[name](), json.loads(mix_cases.FACTS.read_text("utf-8"))[name]
    cache: dict[tuple[str, bytes], np.ndarray] = {}

    def quantize(kind, values):  # layers of most cases are copies
        key = (kind, values.tobytes())
        if key not in cache:
            cache[key] = blocks.quantize(kind, values)
        return cache[key]

    for mix, expected in known.items():
        made = requantized(file, mix, blocks.dequantize, quantize)
        assert mix_cases.facts(made) == expected, mix
        assert made.metadata["general.file_type"] == mixes.MIXES[mix].file_type


def test_synthetic_files_have_the_mix_of_llama_quantize(tmp_path):
    # Layers, width and mix of the shape decide; the words do not.
    synthetic.write(tmp_path / "tiny.gguf", "tiny", synthetic.MIX)
    found = mix_cases.facts(read_gguf(tmp_path / "tiny.gguf"))["formats"]
    known = json.loads(mix_cases.FACTS.read_text("utf-8"))["2 layers"][synthetic.MIX]["formats"]
    assert found == known


def test_what_cannot_be_stored_is_refused():
    file = gguf_fuzz.whole("bpe")
    with pytest.raises(ModelError, match="Q9_9"):
        converted(file, "Q9_9")
    for changed in ({"general.architecture": "falcon"}, {"llama.expert_count": 8}):
        other = replace(file, metadata={**file.metadata, **changed})
        with pytest.raises(ModelError, match="Q4_K_M is known for llama, qwen2, qwen3, gpt2"):
            converted(other, "Q4_K_M")
    broken = np.full((2, 32), np.inf, np.float32)
    tensor = StoredTensor("w.weight", "F32", (2, 32), blocks.quantize("F32", broken))
    with pytest.raises(ModelError, match="Q4_0 stores finite values"):
        converted(replace(file, tensors={"w.weight": tensor}), "Q4_0")


def test_the_command_writes_a_file_and_names_what_is_wrong(tmp_path, capsys):
    file, path = gguf_fuzz.whole("bpe"), tmp_path / "m.gguf"
    write_gguf(path, file.metadata, file.tensors.values())
    line = ["quantize", str(path), "--type", "Q4_0", "--json", "-o", str(tmp_path / "o.gguf")]
    assert cli.main(line) == 0
    facts = json.loads(capsys.readouterr().out)
    made = read_gguf(tmp_path / "o.gguf")
    assert facts["types"] == ["F32", "Q4_0"] and facts["after_bytes"] == made.size_bytes
    assert facts["before_bytes"] == file.size_bytes > made.size_bytes
    for changed, message in (
        ([*line[:3], "Q9", *line[4:]], "--type Q9; choose F32, F16"),
        ([*line[:-1], str(path)], "is the model itself"),
    ):
        assert cli.main(changed) == 2
        assert message in json.loads(capsys.readouterr().out)["error"]["message"]
