"""`torch.compile(model, backend="vklab")`: decides what of a model runs here, what in PyTorch.

Inference only: a graph that needs gradients stays in PyTorch, as one does that cannot be exported.
"""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo import register_backend
from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func

from vklab.errors import ModelError, VklabError
from vklab.pytorch import graphs, tensors

__all__ = ["vklab_backend"]

log = logging.getLogger(__name__)


def vklab_backend(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile one graph of Dynamo: what `torch.compile(model, backend="vklab")` calls.

    A graph that stays in PyTorch is a line of the log, with the reason.

    Args:
        options: of torch.compile: `device` and `dtype` as in `vklab.load`, and `fallback=False`
            to make it an error that a graph would stay in PyTorch.
    """
    del mode
    chosen = graphs.Options.of(options)
    nodes = graph.graph.find_nodes(op="placeholder")
    weights = {n for n, node in enumerate(nodes) if _is_weight(node)}

    def compile_graph(found: torch.fx.GraphModule, inputs: Sequence[Any], again: bool) -> Any:
        known = weights if len(inputs) == len(nodes) else set()
        try:
            return graphs.CompiledGraph(found, inputs, known, chosen, again)
        except VklabError as error:
            return graphs.stay_in_torch(found, chosen, error)

    def compile_functional(found: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        return make_boxed_func(compile_graph(found, inputs, True))

    try:
        _require_inference(graph, example_inputs)
        compiled = compile_graph(graph, example_inputs, False)
    except graphs.SideEffects:
        # What it writes to inputs, and views of them, become plain outputs of a second graph;
        # AOTAutograd brings them back to where they belong after each run.
        return aot_module_simplified(graph, example_inputs, fw_compiler=compile_functional)
    except VklabError as error:
        return graphs.stay_in_torch(graph, chosen, error)
    return compiled


def _is_weight(node: torch.fx.Node) -> bool:
    """Tell whether Dynamo knows an input as a parameter or buffer of a module."""
    return bool(node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type"))


def _require_inference(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Raise ModelError for a graph that has no inputs, needs gradients, or keeps parameters."""
    found = [value for value in inputs if isinstance(value, torch.Tensor)]
    if not found:
        raise ModelError("it takes no tensors")
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in found):
        raise ModelError("its gradients may be asked for, and there are none here; for inference, "
                         "call it under torch.no_grad() or torch.inference_mode()")  # fmt: skip
    if any(True for _ in graph.parameters()):
        raise ModelError("its parameters are hidden in it; it takes "
                         "torch._dynamo.config.inline_inbuilt_nn_modules = True")  # fmt: skip
    for tensor in found:
        tensors.require_dense(tensor)


# An installed vklab is found by its entry point; this is for one that only lies on the path.
if "vklab" not in importlib.metadata.entry_points(group="torch_dynamo_backends").names:
    register_backend(vklab_backend, name="vklab")
