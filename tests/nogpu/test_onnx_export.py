"""Language models as ONNX files of standard operators: ONNX Runtime finds the same logits."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest

from support.language import gguf_fuzz, gpt2_models, llama_models
from vklab.apps import cli
from vklab.apps.llm.weights import onnx_export
from vklab.apps.llm.weights.gguf_writer import write_gguf
from vklab.apps.quantization import blocks
from vklab.errors import ModelError

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]
MODELS = {
    "gpt2": gpt2_models.tiny_gpt2,
    "llama": lambda: llama_models.tiny_model(kinds={"": "Q4_0"}),
    "qwen2": lambda: llama_models.tiny_model("qwen2", tied=False),
    "qwen3": lambda: llama_models.tiny_model("qwen3", kinds={"ffn": "Q5_1"}),
    "llama 3.1": lambda: llama_models.tiny_model(divisors=8),
}


def run(model, tokens, past=None):
    """Return the outputs of ONNX Runtime for some tokens after a cache."""
    session = onnxruntime.InferenceSession(model)
    length = 0 if past is None else past["key.0"].shape[2]
    fed = {"tokens": np.array([tokens]), "positions": np.arange(length, length + len(tokens))[None]}
    for info in session.get_inputs():
        if info.name.startswith("past_"):
            empty = np.zeros((1, info.shape[1], 0, info.shape[3]), np.float32)
            fed[info.name] = empty if past is None else past[info.name.removeprefix("past_")]
    names = [info.name for info in session.get_outputs()]
    return dict(zip(names, session.run(names, fed), strict=True))


@pytest.mark.parametrize("kind", onnx_export.FLOATS)
@pytest.mark.parametrize("name", MODELS)
def test_onnx_runtime_finds_the_logits_of_the_file(name, kind):
    file = MODELS[name]()
    reference = gpt2_models if name == "gpt2" else llama_models
    model = onnx_export.to_onnx(file, blocks.dequantize, kind)
    onnx.checker.check_model(model)
    assert {node.domain for node in model.graph.node} == {""}
    data = model.SerializeToString()
    expected = reference.logits(file, TOKENS)[-1]
    bound = (1e-5 if kind == "F32" else 5e-3) * abs(expected).max()
    assert abs(run(data, TOKENS)["logits"][0, 0] - expected).max() < bound
    first = run(data, TOKENS[:-1])  # the cache carries what was read before
    assert abs(run(data, TOKENS[-1:], first)["logits"][0, 0] - expected).max() < bound


def test_large_weights_go_into_a_file_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_export, "MOST_BYTES", 1000)
    file = llama_models.tiny_model()
    size = onnx_export.export(file, tmp_path / "m.onnx", blocks.dequantize)
    assert (tmp_path / "m.onnx.data").stat().st_size > 0.9 * size > 100_000
    assert (tmp_path / "m.onnx").stat().st_size < 20_000
    expected = llama_models.logits(file, TOKENS)[-1]
    found = run(str(tmp_path / "m.onnx"), TOKENS)["logits"][0, 0]
    assert abs(found - expected).max() < 1e-5 * abs(expected).max()


def test_the_command_writes_onnx_and_names_what_is_wrong(tmp_path, capsys):
    file, path = gguf_fuzz.whole("bpe"), tmp_path / "m.gguf"
    write_gguf(path, file.metadata, file.tensors.values())
    line = ["gguf", str(path), "-o", str(tmp_path / "m.onnx"), "--type", "F32", "--json"]
    assert cli.main(line) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["type"] == "F32" and facts["size_bytes"] > file.size_bytes / 2
    onnx.checker.check_model(onnx.load(tmp_path / "m.onnx"))
    assert cli.main([*line[:4], "--type", "Q8_0", "--json"]) == 2
    assert "choose F32, F16" in json.loads(capsys.readouterr().out)["error"]["message"]
    assert cli.main([*line[:3], str(tmp_path / "m.gguf2"), "--json"]) == 2
    assert "must end in .onnx" in json.loads(capsys.readouterr().out)["error"]["message"]
    with pytest.raises(ModelError, match="choose F32"):
        onnx_export.to_onnx(file, blocks.dequantize, "Q8_0")
    metadata = {**file.metadata, "general.architecture": "mamba"}
    with pytest.raises(ModelError, match="holds a 'mamba' model"):
        onnx_export.to_onnx(replace(file, metadata=metadata), blocks.dequantize)
