"""Dispatches that are kept for a chunk that is lowered again are those of a new lowering."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest

from support.fakes.matrix_gpu import GPU, NVIDIA
from support.language.llama_models import tiny_model
from vklab import settings
from vklab.apps.llm.decode.cached_model import generation_graph
from vklab.apps.llm.graphs.build import BoundedCache
from vklab.apps.llm.graphs.llama import llama_graph
from vklab.graph import shapes
from vklab.plan import plan as plans
from vklab.plan.chunk import Chunk
from vklab.plan.options import Facts
from vklab.plan.tuning import kept, tune


def lowered(info):
    model = tiny_model(width=256, heads=8, kv_heads=4, hidden=512, layers=2, tied=False)
    graph = generation_graph(llama_graph(model, 60, bounded=BoundedCache()), 1)
    shaped = shapes.infer(shapes.bind(graph, {"steps": 8, "recent": 1}))
    return plans.lower_chunk(Chunk(0, shaped), info)


def described(chunk):
    return (
        [repr(step) for step in chunk.steps],
        chunk.nodes,
        chunk.barriers,
        chunk.memory.slots,
        chunk.memory.arenas,
        [*chunk.constants],
    )


@pytest.mark.parametrize("info", [GPU, NVIDIA], ids=["GPU", "NVIDIA"])
def test_the_kept_dispatches_are_those_of_a_new_lowering(info, monkeypatch):
    chunk, tuned = lowered(info), []
    unseen = [each.name for each in chunk.graph.inputs], [*chunk.graph.outputs]
    wanted = [described(plans.lower_rewritten(chunk, info, None, names)) for names in unseen]
    real = tune.tune
    monkeypatch.setattr(tune, "tune", lambda *given: tuned.append(given) or real(*given))
    assert [described(plans.lower_rewritten(chunk, info, None, n)) for n in unseen] == wanted
    assert not tuned
    kept._last.clear()
    assert described(plans.lower_rewritten(chunk, info, None, unseen[0])) == wanted[0]
    assert len(tuned) == 1
    plans.lower_rewritten(chunk, info)  # without unseen values the call is a first one
    assert len(tuned) == 2
    others = Facts(resident=(frozenset({"a"}),)), Facts(tuned=({},))
    for facts in others:
        plans.lower_rewritten(chunk, info, facts, unseen[0])
    plans.lower_rewritten(chunk, replace(info, index=7), None, unseen[0])
    with settings.settings(DISABLE_VARIANTS=True):
        plans.lower_rewritten(chunk, info, None, unseen[0])
    assert len(tuned) == 6


def test_the_kept_dispatches_end_with_the_graph():
    chunk = lowered(GPU)
    graph = weakref.ref(chunk.graph)
    assert kept._last
    del chunk
    gc.collect()
    assert graph() is None and not kept._last
