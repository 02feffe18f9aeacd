"""PyTorch modules as sessions compute what PyTorch computes."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree

import vklab
from support.models import torch_models
from vklab.apps.pytorch import frontend, tensors

pytestmark = pytest.mark.full


class Attended(nn.Module):
    """A pre-norm transformer layer whose embedding is its last layer too; returns a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
        self.last = nn.Linear(16, 11, bias=False)
        self.last.weight = self.embedding.weight

    def forward(self, tokens, *, keep=None):
        """Return the logits of every token and the mean of the hidden states."""
        x = self.layer(self.embedding(tokens), src_key_padding_mask=keep)
        return {"logits": self.last(x), "pooled": (x.mean(1),)}


def cnn() -> nn.Module:
    """Return a small convolutional network with statistics to fold."""
    module = nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2),
        nn.BatchNorm2d(6),
        nn.SiLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(54, 5),
    )
    nn.init.normal_(module[1].running_mean)
    return module


def agree(session: vklab.Session, module: nn.Module, example: dict[str, Any], rtol=1e-4) -> None:
    """Compare a session with the module in eval mode."""
    with torch.no_grad():
        expected = module.eval()(**example)
    arrays = [tensors.to_array(leaf) for leaf in _pytree.tree_leaves(example)]
    found = session.run(*arrays)
    leaves = _pytree.tree_leaves(expected)
    for (name, array), tensor in zip(found.items(), leaves, strict=True):
        assert array.dtype == tensors.to_array(tensor).dtype
        wanted = tensor.to(torch.float64).numpy()
        np.testing.assert_allclose(array.astype(np.float64), wanted, rtol, rtol / 10, err_msg=name)


def test_one_session_takes_every_batch_up_to_its_bound(device_index):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(7, 13), nn.ReLU(), nn.Dropout(0.5), nn.Linear(13, 3))
    shapes, bounds = {"input": {0: "batch"}}, {"batch": 5}
    with vklab.from_torch(
        module, torch.randn(2, 7), shapes, device=device_index, upper_bounds=bounds
    ) as session:
        assert module.training, "the module's mode is its own"
        assert session.inputs[0].shape == ("batch", 7) and session.outputs == ("output",)
        for batch in (1, 5, 2):
            agree(session, module, {"input": torch.randn(batch, 7)})
        comparison = session.check({"input": np.ones((3, 7), np.float32)})
        assert comparison.passed, comparison


def transformer() -> tuple[nn.Module, dict[str, Any], Any]:
    """Return a transformer with a padding mask, both open in two dimensions."""
    keep = torch.zeros(2, 6, dtype=torch.bool)
    keep[1, 4:] = True
    axes = {0: "batch", 1: "length"}
    example = {"tokens": torch.randint(0, 11, (2, 6)), "keep": keep}
    return Attended(), example, {"tokens": axes, "keep": axes}


SLOW = pytest.mark.slow
MODULES: dict[str, tuple[Callable[[], Any], Any]] = {
    "transformer": (transformer, SLOW),
    "cnn": (lambda: (cnn(), {"input": torch.randn(2, 3, 16, 16)}, None), SLOW),
    "unet": (lambda: (torch_models.UNet(), {"image": torch.randn(1, 3, 16, 16)}, None), SLOW),
    "tagger": (lambda: (torch_models.Tagger(), {"input_ids": torch_models.tokens()},
                        {"input_ids": {0: "batch"}}), SLOW),
    "bfloat16": (lambda: (nn.Sequential(nn.Linear(8, 8), nn.GELU()).bfloat16(),
                          {"input": torch.randn(3, 8).bfloat16()}, None), SLOW),
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(n, marks=m) for n, (_, m) in MODULES.items()])
def test_a_module_computes_what_it_computes_in_pytorch(name, device_index):
    torch.manual_seed(0)
    module, example, shapes = MODULES[name][0]()
    with vklab.from_torch(module, example, shapes, device=device_index) as session:
        agree(session, module, example, rtol=2e-2 if name == "bfloat16" else 1e-4)
        if name == "transformer":
            assert session.outputs == ("logits", "pooled_0")
            other = {key: value[:1, :5] for key, value in example.items()}
            agree(session, module, other)


@pytest.mark.slow
def test_a_big_model_waits_in_files_until_its_session_is_gone(device_index, monkeypatch, tmp_path):
    monkeypatch.setattr(frontend, "IN_MEMORY_BYTES", 100)
    monkeypatch.setattr(frontend.tempfile, "tempdir", str(tmp_path))
    module = cnn()
    example = {"input": torch.randn(2, 3, 16, 16)}
    session = vklab.from_torch(module, example, device=device_index)
    agree(session, module, example)
    [folder] = Path(tmp_path).iterdir()
    assert (folder / "model.onnx").stat().st_size < 10_000, "weights lie beside the model"
    assert session.check({"input": example["input"].numpy()}).passed
    session.close()
    del session
    gc.collect()
    assert not folder.exists()


def test_devices_and_progress_are_those_of_load(device_index, monkeypatch, tmp_path):
    monkeypatch.setenv("VKLAB_CACHE", str(tmp_path))
    seen: list[tuple[int, int, str]] = []
    with vklab.from_torch(
        nn.Linear(4, 2),
        torch.ones(3, 4),
        devices=[device_index],
        progress=lambda *each: seen.append(each),
    ) as session:
        assert [info.index for info in session.devices] == [device_index]
    assert seen and seen[-1][0] == seen[-1][1]
