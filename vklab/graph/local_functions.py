"""Replace every call of a model's own functions by the function's body, before nodes are read.

onnx does it; what onnx leaves out without a word, or does not survive, is refused before.
Visited by lab 09.
"""

from __future__ import annotations

import functools
import graphlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import onnx
from onnx import inliner

from vklab.errors import ModelError

MOST_NODES = 10_000_000
Key = tuple[str, str, str]


def inlined(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with every call of its functions replaced by the function's body.

    Source: ONNX IR specification, section "Functions"
    """
    calls = {_key(f): list(_calls(f.node)) for f in proto.functions}
    if len(calls) < len(proto.functions):
        raise ModelError("two functions of the model have one name and one overload")
    _check_calls(proto)
    # The inliner would follow a function that calls itself until the stack ends.
    try:
        order = list(graphlib.TopologicalSorter(calls).static_order())
    except graphlib.CycleError as error:
        names = " -> ".join(name for _, name, _ in error.args[1])
        raise ModelError(f"the model's functions call each other in a cycle: {names}") from error
    sizes: dict[Key, int] = {}  # nested calls can grow exponentially
    for name in order:
        sizes[name] = sum(sizes.get(call, 1) for call in calls.get(name, ())) or 1
    if sum(sizes.get(call, 1) for call in _calls(proto.graph.node)) > MOST_NODES:
        largest = max(calls, key=lambda name: sizes[name])
        raise ModelError(
            f"with its functions inlined the model has more than {MOST_NODES} nodes; "
            f"{largest[1]!r} alone has {sizes[largest]}"
        )
    proto = _aligned(proto)
    try:
        return inliner.inline_local_functions(proto)
    except Exception as error:  # onnx's C++ exceptions share no base class
        raise ModelError(f"the model's functions cannot be inlined: {error}") from error


def _check_calls(proto: onnx.ModelProto) -> None:
    """Raise ModelError for attributes that a function is given, or reads, and does not declare."""
    known = {
        _key(f): {*f.attribute, *(item.name for item in f.attribute_proto)} for f in proto.functions
    }
    for function in proto.functions:
        for item in (item for node in _nested(function.node) for item in node.attribute):
            if item.ref_attr_name not in {"", *known[_key(function)]}:
                raise ModelError(
                    f"function {function.name!r} reads the attribute "
                    f"{item.ref_attr_name!r}, which it does not declare"
                )
    for node in _nested(proto.graph.node, *(f.node for f in proto.functions)):
        names = [item.name for item in node.attribute]
        declared = known.get(_key(node), {*names})
        wrong = [name for name in names if name not in declared or names.count(name) > 1]
        if wrong:
            raise ModelError(
                f"node {node.name!r} calls the function {node.op_type!r} with the "
                f"attribute {wrong[0]!r}; once each it takes "
                f"{', '.join(sorted(declared)) or 'none'}"
            )


def _aligned(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose functions import the versions of operators that the model imports.

    onnx leaves out the calls of functions that import others. A version that the model does not
    import is added to it. Raises ModelError for an operator that is not the same in both versions.
    """
    given = {_domain(entry.domain): entry.version for entry in proto.opset_import}
    imports = [entry for function in proto.functions for entry in function.opset_import]
    if all(given.get(_domain(entry.domain)) == entry.version for entry in imports):
        return proto
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    local = {_key(function) for function in made.functions}
    versions = dict(given)
    for function in made.functions:
        own = {_domain(entry.domain): entry.version for entry in function.opset_import}
        for domain in own.keys() - versions.keys():
            versions[domain] = own[domain]
            made.opset_import.add(domain=domain, version=own[domain])
        for node in _nested(function.node):
            domain = _domain(node.domain)
            older, newer = own.get(domain, 0), versions.get(domain, 0)
            if older in (0, newer) or _key(node) in local:
                continue
            if _signature(node.op_type, older, domain) != _signature(node.op_type, newer, domain):
                raise ModelError(
                    f"function {function.name!r} imports version {older} of the operators of "
                    f"{domain or 'ai.onnx'!r}, the model version {newer}, and {node.op_type} is "
                    "not the same in both; export the model with one version"
                )
        for entry in function.opset_import:
            entry.version = versions[_domain(entry.domain)]
    return made


@functools.cache
def _signature(op_type: str, version: int, domain: str) -> Any:
    """Return what a later version of an operator has to leave alone: all but dtypes and texts.

    Wherever ONNX has changed the meaning of an operator, its attributes, their defaults, or its
    inputs have changed, too. An operator that ONNX does not know has no versions.
    """
    if not domain and version > onnx.defs.onnx_opset_version():
        return version
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None
    attributes = {
        name: (each.type, each.required, each.default_value.SerializeToString())
        for name, each in schema.attributes.items()
    }
    formal = [
        [(each.name, each.option) for each in side] for side in (schema.inputs, schema.outputs)
    ]
    return schema.deprecated, attributes, formal


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _nested(*lists: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes, including those in their bodies."""
    for node in itertools.chain(*lists):
        yield node
        for item in node.attribute:
            yield from _nested(*(body.node for body in (item.g, *item.graphs)))


def _calls(nodes: Iterable[onnx.NodeProto]) -> Iterator[Key]:
    """Yield domain, op_type and overload of nodes, including those in their bodies."""
    return (_key(node) for node in _nested(nodes))


def _key(item: onnx.NodeProto | onnx.FunctionProto) -> Key:
    """Return domain, name and overload of a function, or of the function that a node calls."""
    name = item.op_type if isinstance(item, onnx.NodeProto) else item.name
    return item.domain, name, item.overload
