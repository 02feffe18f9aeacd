"""Plans of a prompt on a GPU: which kernels run side by side, and where rows become halves."""

from __future__ import annotations

import itertools
from dataclasses import replace

from support.fakes.matrix_gpu import GPU, NVIDIA
from support.language.llama_models import tiny_model
from vklab import settings
from vklab.apps.compare.speed import language_runs
from vklab.apps.llm.decode.cached_model import generation_graph
from vklab.apps.llm.graphs.build import BoundedCache
from vklab.apps.llm.graphs.llama import llama_graph
from vklab.graph import shapes
from vklab.plan import plan as plans
from vklab.plan.chunk import Chunk
from vklab.plan.tuning import ahead
from vklab.types import Dispatch


def prompt(left_out="", info=NVIDIA, **changes):
    """Return the plan of a prompt of 512 tokens, and the steps between two barriers."""
    sizes = {"width": 256, "heads": 8, "kv_heads": 4, "hidden": 512, "layers": 3}
    model = tiny_model(**sizes, tied=False, **changes, **{"llama.context_length": 600})
    graph = generation_graph(llama_graph(model, 600, bounded=BoundedCache()), 1)
    shaped = shapes.infer(shapes.bind(graph, {"steps": 512, "recent": 1}))
    with settings.settings(DISABLE_PASSES=left_out):
        chunk = plans.lower_chunk(Chunk(0, shaped), info)
    ends = [barrier.before for barrier in chunk.barriers]
    layers = [chunk.steps[start:end] for start, end in itertools.pairwise([0, *ends])]
    return chunk, [
        [each.kernel for each in layer if isinstance(each, Dispatch)] for layer in layers
    ]


def test_a_prompt_takes_eight_barriers_a_layer_and_rounds_nothing_apart():
    chunk, layers = prompt()
    product, unpack = "matmul_cooperative", "unpack_units"
    assert layers[9:18] == [
        ["normalize_registers"],
        [product] * 3,
        ["cache_update"] * 2,
        ["cache_attention_matrices", unpack],
        [product, unpack],
        ["normalize_registers"],
        [product, unpack],
        [product, *[unpack] * 3],
        ["normalize_registers"],
    ]
    before, apart = prompt("gate_rows, round_rows, unpack_ahead, matrix_cache")
    assert len(apart) >= len(layers) + 3 * 8
    more = chunk.memory.arena_bytes - before.memory.arena_bytes
    assert more <= ahead.MATRICES * 2 * 256 * 2 * 512  # halves of the largest matrix
    kernels_of = [kernel for layer in apart for kernel in layer]
    assert kernels_of.count("elementwise") == 1 + 3 * 4 and "cache_attention" in kernels_of


def test_a_prompt_of_logits_computes_those_of_the_last_token_only():
    chunk, _ = prompt()
    last = next(d for d in chunk.dispatches if d.writes[0][1].name == "logits")
    assert last.kernel == "matvec_units" and last.writes[0][1].dims == (1, 1, 45)


def test_a_cache_of_floats_and_other_devices_keep_their_attention():
    for info in (GPU, replace(NVIDIA, cooperative_matrices=())):
        assert "cache_attention" in [kernel for layer in prompt(info=info)[1] for kernel in layer]


def test_gates_of_another_format_or_of_floats_stay_two_products():
    for kinds in ({"ffn_up": "Q4_0"}, {"ffn": "F16"}):
        _, layers = prompt(kinds=kinds)
        products = [kernel for layer in layers for kernel in layer].count("matmul_cooperative")
        assert products == 3 * 7
    assert [kernel for layer in prompt()[1] for kernel in layer].count("matmul_cooperative") == 18


def test_products_alone_are_those_of_the_layers_and_round_nothing():
    model = tiny_model(
        layers=3,
        tied=False,
        kinds={"ffn_down": "Q4_K", "": "Q8_0"},
        width=256,
        heads=8,
        kv_heads=4,
        hidden=512,
    )
    found = language_runs.layer_matrices(model)
    assert {(tensor.block_type, tensor.shape): count for tensor, count in found} == {
        ("Q8_0", (256, 256)): 2 * 3,
        ("Q8_0", (128, 256)): 2 * 3,
        ("Q8_0", (512, 256)): 2 * 3,
        ("Q4_K", (256, 512)): 3,
    }
    for tensor, _ in found:
        graph = shapes.infer(language_runs.product_graph(tensor, 512, "float16"))
        made = plans.lower_chunk(Chunk(0, graph), NVIDIA).dispatches
        assert [each.kernel for each in made] == ["unpack_units", "matmul_cooperative"]
        reads = dict(made[-1].reads)
        assert reads["a_buffer"].dtype == reads["b_buffer"].dtype == "float16"
