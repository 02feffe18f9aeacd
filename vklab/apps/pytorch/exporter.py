"""Export of PyTorch modules to ONNX: the exporter's options, the names of values, its errors.

The older TorchScript exporter is not tried when the newer one fails: its rules for names and open
dimensions differ. Visited by lab 09.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import logging
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxscript  # noqa: F401  (torch.onnx imports it late, and its error does not name it)
import torch
import torch.onnx
from torch.utils import _pytree

from vklab.apps.pytorch import constants, resizing, sizes, tensors
from vklab.base import forking
from vklab.errors import ModelError

# The first opset with normalisations and attention as operators.
OPSET = 23
REASON_CHARACTERS = 500
HINTS = {
    "aten._transformer_encoder_layer_fwd": "torch.backends.mha.set_fastpath_enabled(False) makes "
    "PyTorch compute the layer with plain operators",
    "aten._native_multi_head_attention": "torch.backends.mha.set_fastpath_enabled(False) makes "
    "PyTorch compute attention with plain operators",
    "No ONNX function found": "the exporter of this torch lacks that operator: replace it with "
    "others, or run it outside of the module",
    "data-dependent": "the value of a tensor decides which code runs: use torch.cond, torch.where "
    "or a fixed choice",
    "Constraints violated": "the module fixes a dimension that dynamic_shapes opens: leave it out",
}
# Start of torch's advice to its own developers, which is cut off.
CLUTTER = r"\n+(?:For more information|The error above|Caused by|consider using|from user code)"
# Parts of what a module returns that are no outputs.
CONSTANTS = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device,
             torch.SymInt, torch.SymFloat, torch.SymBool)  # fmt: skip
# torch.export and the code that silences it change global state.
_exporting = forking.lock()


def export_module(
    module: Any, example_inputs: Any, dynamic_shapes: Any
) -> tuple[Any, list[str], int]:
    """Return a module's torch.onnx.ONNXProgram, names for its outputs, and its bytes of weights.

    Args:
        module: a torch.nn.Module.
        example_inputs: as in `vklab.from_torch`.
        dynamic_shapes: as in `vklab.from_torch`.
    """
    if not isinstance(module, torch.nn.Module):
        raise ModelError(f"from_torch takes a torch.nn.Module, not {type(module).__name__}")
    if isinstance(module, torch.jit.ScriptModule):
        raise ModelError(
            "from_torch cannot export a ScriptModule of torch.jit; pass the "
            "torch.nn.Module that it was made from"
        )
    args, kwargs = _arguments(module, example_inputs)
    shapes = _shapes(module, args, kwargs, dynamic_shapes)
    with _evaluated(module), _flat_outputs(module) as names:
        program = export(module, args, kwargs, shapes)
    for spec in program.exported_program.graph_signature.output_specs:
        if spec.kind.name == "BUFFER_MUTATION":
            raise ModelError(
                f"{type(module).__name__} writes to its buffer {spec.target!r}, and a "
                "session keeps no state between runs; return the buffer "
                "instead"
            )
    if not names:
        raise ModelError(f"{type(module).__name__} returns no tensor")
    sizes = {t.data_ptr(): t.nbytes for t in (*module.parameters(), *module.buffers())}
    return program, names, sum(sizes.values())


def export(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Any) -> Any:
    """Return the torch.onnx.ONNXProgram of a module in its present mode, train or eval.

    Args:
        module: a torch.nn.Module.
        args: positional arguments of its forward.
        kwargs: keyword arguments of its forward.
        shapes: as torch.export takes them, or with names in place of Dims.

    Raises ModelError with torch's own reason.
    """
    with _exporting, _quiet(), _plain_attention(), torch.no_grad():
        try:
            opened = _opened(shapes)
            captured = torch.export.export(
                module, args, kwargs, dynamic_shapes=opened, strict=False
            )
            sizes.require_open(captured)
            constants.require_exact(captured.graph.nodes)
            program = torch.onnx.export(
                captured,
                dynamo=True,
                dynamic_shapes=shapes,
                opset_version=OPSET,
                verbose=False,
                custom_translation_table={**constants.EXACT, **resizing.TABLE, **sizes.TABLE},
            )
        except ModelError:
            raise
        except Exception as error:  # torch's errors share no other base class
            name = type(module).__name__
            hint = (
                "\ntorch.export fixes a dimension whose example has size 0 or 1: give example "
                "inputs of size 2 or more in each open dimension"
            )
            more = hint if "0/1 special" in str(error) else ""
            raise ModelError(
                f"{name} cannot be exported to ONNX: {_reason(error)}{more}"
            ) from error
    for node in program.exported_program.graph.nodes:
        if argument(node, "training") and argument(node, "running_mean") is not None:
            raise ModelError(
                "a batch normalisation is in training mode, which the exporter "
                "mistakes for inference; call module.eval() first"
            )
    return program


def argument(node: torch.fx.Node, name: str) -> Any:
    """Return an argument of an operator's call, or None if the operator has none of that name."""
    schema = getattr(node.target, "_schema", None)
    for index, item in enumerate(schema.arguments if schema is not None else ()):
        if item.name == name:
            given = node.args[index] if index < len(node.args) else item.default_value
            return node.kwargs.get(name, given)
    return None


def save(program: Any, names: Sequence[str], folder: Path) -> Path:
    """Write a program with its weights in a second file, and return the model's path.

    Args:
        program: a torch.onnx.ONNXProgram.
        names: names of its outputs.
        folder: folder to write into.
    """
    path = folder / "model.onnx"
    program.save(str(path), external_data=True)
    proto = onnx.load(str(path), load_external_data=False)
    path.write_bytes(renamed(proto, names).SerializeToString())
    return path


# ---------------------------------------------------------------------------------------- inputs


def _arguments(module: torch.nn.Module, given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments; ModelError if forward does not take them."""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if isinstance(given, Mapping):
        kwargs = dict(given)
    else:
        args = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    signature = inspect.signature(module.forward)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ModelError(
            f"{type(module).__name__}.forward{signature} cannot take the example inputs: {error}"
        ) from error
    leaves = [leaf for leaf in _pytree.tree_leaves((args, kwargs)) if torch.is_tensor(leaf)]
    for tensor in leaves:
        tensors.require_dense(tensor)
    if not leaves:
        raise ModelError("example_inputs hold no tensor, so the model would have no input")
    # The session's inputs follow the order in which forward names them.
    order = [name for name in signature.parameters if name in kwargs]
    return args, {name: kwargs[name] for name in dict.fromkeys([*order, *kwargs])}


def _shapes(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], given: Any
) -> dict[str, Any] | None:
    """Return dynamic_shapes with an entry for every input, as torch.export requires."""
    if given is None:
        return None
    inputs = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    names = list(inputs)
    if not isinstance(given, Mapping):
        if len(given) != len(names):
            raise ModelError(f"dynamic_shapes has {len(given)} entries for the inputs {names}")
        given = dict(zip(names, given, strict=True))
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise ModelError(f"dynamic_shapes names {unknown}; the inputs are {names}")
    return {**_pytree.tree_map(lambda leaf: None, dict(inputs)), **given}


def _opened(shapes: Any) -> Any:
    """Return dynamic_shapes with "any size" in place of each name."""
    if isinstance(shapes, str):
        return torch.export.Dim.DYNAMIC
    if isinstance(shapes, Mapping):
        return {key: _opened(value) for key, value in shapes.items()}
    if isinstance(shapes, (list, tuple)):
        return type(shapes)(_opened(value) for value in shapes)
    return shapes


@contextlib.contextmanager
def _evaluated(module: torch.nn.Module) -> Iterator[None]:
    """Put a module into eval mode, and restore the mode of each part at the end."""
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training


# --------------------------------------------------------------------------------------- outputs


@contextlib.contextmanager
def _flat_outputs(module: torch.nn.Module) -> Iterator[list[str]]:
    """Make a module return its tensors as one tuple; yield the list that receives their names."""
    names: list[str] = []

    def flatten(module: Any, args: Any, kwargs: Any, returned: Any) -> tuple[Any, ...]:
        given = {id(leaf) for leaf in _pytree.tree_leaves((args, kwargs))}
        returned = _pytree.tree_map(_fields, returned)
        outputs: dict[str, Any] = {}
        for path, leaf in _pytree.tree_flatten_with_path(returned)[0]:
            if isinstance(leaf, torch.Tensor):  # not None, nor a Python number
                tensors.require_dense(leaf)
                # Every output of an ONNX graph is a separate value.
                is_known = id(leaf) in given or any(leaf is other for other in outputs.values())
                name = _path_name(path)
                while name in outputs:
                    name += "_"
                outputs[name] = leaf.clone() if is_known else leaf
            elif not isinstance(leaf, CONSTANTS):
                kind = type(leaf).__name__
                raise ModelError(
                    f"{type(module).__name__} returns a {kind} as {_path_name(path)}, "
                    "and its tensors would be lost; return tensors, or register "
                    f"{kind} by torch.utils._pytree.register_pytree_node"
                )
        names[:] = outputs
        return tuple(outputs.values())

    handle = module.register_forward_hook(flatten, with_kwargs=True)
    try:
        yield names
    finally:
        handle.remove()


def _fields(leaf: Any) -> Any:
    """Return a dataclass that PyTorch does not flatten as a dict of its fields."""
    if not dataclasses.is_dataclass(leaf) or isinstance(leaf, type):
        return leaf
    values = {item.name: getattr(leaf, item.name) for item in dataclasses.fields(leaf)}
    return _pytree.tree_map(_fields, values)


def _path_name(path: Sequence[Any]) -> str:
    """Return the name of an output, made of the keys, indices and fields of its path."""
    words = (getattr(step, "key", getattr(step, "idx", getattr(step, "name", ""))) for step in path)
    name = re.sub(r"\W+", "_", "_".join(map(str, words)))
    return name if name and not name[0].isdigit() else f"output_{name}".rstrip("_")


def renamed(proto: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """Rename the outputs of a model; an inner value with one of these names gets another."""
    graph = proto.graph
    taken = {value.name for value in graph.input}
    inner = {name for node in graph.node for name in node.output}
    inner |= {tensor.name for tensor in graph.initializer}
    changes: dict[str, str] = {}
    for output, name in zip(graph.output, names, strict=True):
        while name in taken:
            name += "_"
        taken.add(name)
        changes[output.name] = name
    for name in set(changes.values()) & inner - set(changes):
        changes[name] = f"{name}/inner"
    _rename(graph, changes)
    return proto


def _rename(graph: onnx.GraphProto, changes: Mapping[str, str]) -> None:
    """Rename values of a graph, also where the bodies of its nodes read them."""
    for value in (*graph.output, *graph.initializer, *graph.value_info):
        value.name = changes.get(value.name, value.name)
    for node in graph.node:
        node.input[:] = [changes.get(name, name) for name in node.input]
        node.output[:] = [changes.get(name, name) for name in node.output]
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                _rename(body, changes)


# -------------------------------------------------------------------------------------- messages


@contextlib.contextmanager
def _plain_attention() -> Iterator[None]:
    """Switch off the fast path of torch.nn.TransformerEncoder, which ONNX has no operator for."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's output and warnings, unless TORCH_LOGS is set."""
    if os.environ.get("TORCH_LOGS"):
        yield
        return
    before = logging.root.manager.disable
    sink = io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(contextlib.redirect_stdout(sink))
        stack.enter_context(contextlib.redirect_stderr(sink))
        stack.callback(logging.disable, before)
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        yield


def _reason(error: BaseException) -> str:
    """Return the innermost reason of an exporter's error, shortened, with a line to repair it."""
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    text = re.split(CLUTTER, str(chain[-1]))[0].strip() or type(chain[-1]).__name__
    if len(text) > REASON_CHARACTERS:
        text = text[:REASON_CHARACTERS] + " ..."
    said = "\n".join(map(str, chain))
    repair = next((f"\n  to repair: {hint}" for word, hint in HINTS.items() if word in said), "")
    return text + repair
