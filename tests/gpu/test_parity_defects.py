"""Errors by layer of vklab on a device, with planted defects: a spoilt copy of the model runs."""

import pytest

import vklab
from support.fakes import planted_defects as planted
from vklab.apps.compare.judging import judge
from vklab.apps.compare.layerwise import cuts, layers, smallest
from vklab.apps.compare.truth import oracle
from vklab.runtime import tolerances

MODEL, INPUTS = planted.small_model()
DTYPES = [planted.SINGLE, planted.HALF]
pytestmark = pytest.mark.slow


def runner(device, dtypes):
    def run(model, inputs):
        dtype = "float16" if dtypes == planted.HALF else None
        with vklab.load(model, device=device, dtype=dtype) as session:
            return dict(session.run(dict(inputs)))

    return run


@pytest.mark.parametrize("dtypes", DTYPES, ids=["float32", "float16"])
def test_vklab_stays_inside_at_every_layer(device, dtypes):
    run, truth = runner(device, dtypes), oracle.of_graph(MODEL, INPUTS)
    allowed = tolerances.model(dtypes.arithmetic)
    plain = run(MODEL, INPUTS)
    assert judge.outputs(plain, truth.outputs, allowed, dtypes.arithmetic).passed
    tapped = run(cuts.tapped(MODEL, truth.layers), INPUTS)
    assert layers.taps(plain, tapped, allowed).trusted
    given = layers.local(MODEL, truth.layers, dtypes)
    made = run(given.model, given.inputs)
    rows = layers.by_layer(MODEL, truth.layers, dtypes, tapped, given, made)
    assert len(rows) == 11 and layers.first_failing(rows) is None
    assert all(row.share is not None and row.cumulative is not None for row in rows)


@pytest.mark.parametrize("dtypes", DTYPES, ids=["float32", "float16"])
@pytest.mark.parametrize(("kind", "layer", "spoil"), planted.defects(MODEL))
def test_a_visible_defect_is_found_at_its_layer(device, kind, layer, spoil, dtypes):
    run = runner(device, dtypes)
    found = planted.study(MODEL, INPUTS, kind, layer, spoil, dtypes, run)
    if found.times > planted.VISIBLE:
        assert found.named == layer, found


def test_an_overflow_of_float16_is_the_smallest_part(device):
    model = planted.overflowing(MODEL)
    truth = oracle.of_graph(model, INPUTS).layers
    run = runner(device, planted.HALF)
    found = smallest.find(model, truth, "product", planted.HALF, run)
    assert found.nodes == ("node_product",) and found.share == float("inf")
    assert (
        smallest.find(model, truth, "product", planted.SINGLE, runner(device, planted.SINGLE))
        is None
    )
