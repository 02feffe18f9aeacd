"""The models of the parity reports: outputs that tell inputs apart, and judged classes."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

from vklab.apps.compare import models
from vklab.apps.compare.judging import flips
from vklab.apps.compare.models import texts
from vklab.errors import SetupError

torch = pytest.importorskip("torch")


def scores(name: str, count: int | None, dtype: torch.dtype = torch.float32) -> np.ndarray:
    module, inputs = models.MODELS[name](count)
    with torch.no_grad():
        return (
            module.to(dtype)(
                *(each.to(dtype) if each.is_floating_point() else each for each in inputs)
            )
            .double()
            .numpy()
        )


@pytest.mark.parametrize("name", models.MODELS)
def test_outputs_over_8_inputs_spread(name):
    outputs = scores(name, 8)
    assert outputs.shape[0] == 8
    spread = (outputs.max(0) - outputs.min(0)).max()
    assert spread >= 0.1 * np.abs(outputs).max() > 0.1, (spread, np.abs(outputs).max())


@pytest.mark.parametrize("name", models.MODELS)
def test_a_factory_is_named_and_gives_the_same_every_time(name):
    module, function = models.factory(name).split(":")
    made = getattr(importlib.import_module(module), function)()
    again, _ = models.MODELS[name](1)
    assert not made[0].training and len(made[1]) == 1 and made[1][0].shape[0] == 1
    state = again.state_dict()
    assert all(torch.equal(state[key], tensor) for key, tensor in made[0].state_dict().items())


def test_parameters_are_those_of_the_published_networks():
    networks = models.load_networks()
    sizes = [
        sum(part.numel() for part in network().parameters())
        for network in (networks.ResNet18, networks.MobileNetV3Small)
    ]
    assert sizes == [11_689_512, 2_542_856]


@pytest.mark.slow
def test_statistics_are_those_of_the_seeded_batch():
    networks = models.load_networks()
    module = networks.draw_weights(networks.MobileNetV3Small())
    batch = torch.from_numpy(models.seeded(32, *models.IMAGE, seed=2))
    for name, array in networks.measure_statistics(module, batch).items():
        recorded = models.read_arrays("mobilenet_v3_small_statistics.npz")[name]
        np.testing.assert_allclose(array, recorded, rtol=1e-3, atol=1e-4, err_msg=name)


def test_mini_classifier_reads_held_out_digits():
    arrays = models.read_arrays("digits.npz")
    found = scores("mini_classifier", None).argmax(1)
    assert (found == arrays["labels"][arrays["held_out"]]).mean() >= 0.97


@pytest.mark.slow
def test_text_classifier_is_judged_on_held_out_passages():
    labels = models.text_labels()
    truth = scores("text_classifier", None, torch.float64)
    assert len(labels) >= 1000
    assert (truth.argmax(1) == labels).mean() >= 0.65  # always the longest novel: 0.23
    judged = flips.judge(truth, scores("text_classifier", None, torch.float16))
    assert 0 < judged.error < 0.1
    assert set(judged.flipped) <= set(judged.predicted) <= set(judged.bounded)
    assert len(judged.bounded) < 0.05 * len(labels), judged


def test_passages_are_on_one_side_only():
    found = texts.passages(models.DATA / texts.FILE)
    trained_on = {passage.text for passage in found.training}
    assert not any(passage.text in trained_on for passage in found.held_out)
    assert {len(passage.text.split()) for passage in found.held_out} == {texts.LENGTH}


def test_words_become_tokens():
    known = texts.vocabulary(["The end, the end. It's", "THE beginning"], 5)
    assert known == ["(padding)", "(unknown)", "the", "end", "beginning"]
    rows = texts.tokens(["The fine end", "the " * 100], known)
    assert rows.dtype == np.int32 and rows[0].tolist() == [2, 1, 3] + [0] * (texts.LENGTH - 3)
    assert rows[1].tolist() == [2] * texts.LENGTH


def test_flips_are_judged_by_the_margin():
    truth = np.array([[1.0, 0.0], [0.10, 0.11], [0.5, 0.48], [3.0, 0.0]])
    actual = truth + [[0.02, 0], [0.02, 0], [-0.004, 0.004], [0, 0]]
    judged = flips.judge(truth, actual)
    assert judged.flipped == (1,) and judged.predicted == (1,) and judged.bounded == (1, 2)
    assert judged.error == pytest.approx(0.02) and judged.smallest_margin == pytest.approx(0.01)
    assert "1 of 4 classes flip" in str(judged)
    np.testing.assert_array_equal(flips.margins([[1.0, 2, 3], [3, 2, 1], [5, 0, 0]]), [1, 1, 5])


def test_scores_that_are_no_numbers_have_flipped():
    truth = np.array([[1.0, 0.0], [1.0, 0.0]])
    judged = flips.judge(truth, np.array([[np.nan, 0.0], [1.0, 0.0]]))
    assert judged.flipped == (0,) and np.isnan(judged.error)


def test_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(2, 2\)"):
        flips.judge(np.zeros((2, 3)), np.zeros((2, 2)))


def test_missing_data_and_a_missing_torch_say_what_to_do(monkeypatch):
    with pytest.raises(SetupError, match="clone the repository"):
        texts.passages(Path("nowhere.xz"))
    monkeypatch.setattr(importlib, "import_module", _no_torch)
    with pytest.raises(SetupError, match="pip install torch"):
        models.encoder()


def _no_torch(name: str) -> None:
    raise ModuleNotFoundError("No module named 'torch'", name="torch")
