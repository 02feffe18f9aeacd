"""Backend of `torch.compile(model, backend="vklab")`: decides which graphs run on Vulkan.

Inference only: a graph that needs gradients, or that cannot be exported, stays in PyTorch.
Visited by lab 09.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo import register_backend
from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func

from vklab.apps.pytorch import graphs, tensors
from vklab.errors import ModelError, VklabError
from vklab.runtime import open_devices


def vklab_backend(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile one graph of Dynamo; `torch.compile(model, backend="vklab")` calls this function.

    A graph that stays in PyTorch is reported in one line of the log, with the reason.

    Args:
        graph: the graph that Dynamo captured.
        example_inputs: its inputs: fake tensors, Python numbers and symbolic sizes.
        options: of torch.compile: `device` and `dtype` as in `vklab.load`, and `fallback=False`
            to raise an error instead of leaving a graph in PyTorch.
        mode: of torch.compile; ignored.

    Raises ModelError for an unknown option and SetupError for an unknown device.
    """
    del mode
    chosen = graphs.Options.of(options)
    if chosen.device is not None:
        open_devices.select(chosen.device)  # a wrong name is no reason to stay in PyTorch
    nodes = graph.graph.find_nodes(op="placeholder")
    weights = {n for n, node in enumerate(nodes) if _is_weight(node)}

    def compile_graph(captured: torch.fx.GraphModule, inputs: Sequence[Any], again: bool) -> Any:
        known = weights if len(inputs) == len(nodes) else set()
        try:
            return graphs.CompiledGraph(captured, inputs, known, chosen, again)
        except VklabError as error:
            return graphs.stay_in_torch(captured, chosen, error)

    def compile_functional(captured: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        return make_boxed_func(compile_graph(captured, inputs, True))

    try:
        _require_inference(graph, example_inputs)
        compiled = compile_graph(graph, example_inputs, False)
    except graphs.SideEffects:
        # AOTAutograd makes a second graph that returns mutated inputs and views as plain outputs,
        # and copies these back into the caller's tensors after each run.
        return aot_module_simplified(graph, example_inputs, fw_compiler=compile_functional)
    except VklabError as error:
        return graphs.stay_in_torch(graph, chosen, error)
    return compiled


def _is_weight(node: torch.fx.Node) -> bool:
    """Tell whether Dynamo knows an input as a parameter or buffer of a module."""
    return bool(node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type"))


def _require_inference(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Raise ModelError for a graph that has no inputs, needs gradients, or contains parameters."""
    given = [value for value in inputs if isinstance(value, torch.Tensor)]
    if not given:
        raise ModelError("the graph takes no tensors")
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given):
        raise ModelError(
            "the graph needs gradients, and vklab computes none; for inference, call "
            "the model under torch.no_grad() or torch.inference_mode()"
        )
    if any(True for _ in graph.parameters()):
        raise ModelError(
            "the graph contains its parameters; set "
            "torch._dynamo.config.inline_inbuilt_nn_modules = True"
        )
    for tensor in given:
        tensors.require_dense(tensor)


# torch finds an installed vklab by its entry point; this registers one that is only on sys.path.
if "vklab" not in importlib.metadata.entry_points(group="torch_dynamo_backends").names:
    register_backend(vklab_backend, name="vklab")
