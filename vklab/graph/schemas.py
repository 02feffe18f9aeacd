"""Check nodes against ONNX's schemas: number of inputs and outputs, names and types of attributes.

Runs before any runtime gets a node, because some crash on a malformed one. Checks no dtypes or
shapes (`shapes`). Visited by lab 09.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from vklab.errors import ModelError

_OPTIONAL = onnx.defs.OpSchema.FormalParameterOption.Optional


@functools.cache
def _schema(op_type: str, domain: str, opset: int) -> Any:
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except (onnx.defs.SchemaError, TypeError):  # other domains and later opsets
        return None


def check(proto: onnx.NodeProto, name: str, opset: int) -> None:
    """Raise ModelError for a node that breaks the schema of its operator.

    Args:
        proto: the node.
        name: its name in error messages.
        opset: the version of its domain.

    Source: ONNX operator schemas
    """
    texts = (
        proto.op_type,
        proto.domain,
        *proto.input,
        *proto.output,
        *(item.name for item in proto.attribute),
    )
    if not all(isinstance(text, str) for text in texts):  # protobuf returns invalid UTF-8 as bytes
        raise ModelError(f"node {name!r}: a name in it is not text: {texts}")
    given = {item.name: item for item in proto.attribute}
    if len(given) < len(proto.attribute):
        raise ModelError(f"node {name!r} ({proto.op_type}) has two attributes of one name")
    schema = _schema(proto.op_type, "" if proto.domain == "ai.onnx" else proto.domain, opset)
    if schema is None:
        return
    label = f"node {name!r} ({proto.op_type} of opset {opset})"
    _check_count(f"{label} takes", "inputs", proto.input, schema.min_input, schema.max_input)
    _check_count(f"{label} makes", "outputs", proto.output, schema.min_output, schema.max_output)
    for number, value in enumerate(proto.input):
        formal = schema.inputs[min(number, len(schema.inputs) - 1)]
        if not value and formal.option != _OPTIONAL and number < len(proto.input) - 1:
            raise ModelError(f"{label}: input {number} ({formal.name}) may not be left out")
    for key in given:
        if key not in schema.attributes and not key.startswith("__"):  # as in ONNX: free to use
            raise ModelError(
                f"{label} has the attribute {key}, which the operator lacks; it has "
                f"{', '.join(sorted(schema.attributes)) or 'none'}"
            )
    for key, attribute in schema.attributes.items():
        if key not in given and attribute.required:
            raise ModelError(f"{label}: attribute {key} is missing")
        wanted = int(attribute.type.value)
        if key in given and given[key].type not in (wanted, 0) and not given[key].ref_attr_name:
            names = onnx.AttributeProto.AttributeType
            raise ModelError(
                f"{label}: attribute {key} should be of type {names.Name(wanted)}, "
                f"not {names.Name(given[key].type)}"
            )
    if proto.op_type in ("If", "Loop", "Scan"):
        _check_bodies(proto, given, label, opset)


def _check_bodies(
    proto: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto], label: str, opset: int
) -> None:
    """Raise ModelError for a body with another number of inputs or outputs than its node."""
    scanned = given["num_scan_inputs"].i if "num_scan_inputs" in given else 0
    batched = proto.op_type == "Scan" and opset < 9  # the first input holds sequence lengths
    inputs = 0 if proto.op_type == "If" else max(len(proto.input), 2 * (proto.op_type == "Loop"))
    inputs, outputs = inputs - batched, len(proto.output) + (proto.op_type == "Loop")
    if not 0 <= scanned <= inputs:
        raise ModelError(f"{label}: num_scan_inputs={scanned}, but the node has {inputs} inputs")
    for item in given.values():
        if item.type != onnx.AttributeProto.GRAPH:
            continue
        constants = {tensor.name for tensor in item.g.initializer}
        takes = sum(value.name not in constants for value in item.g.input)
        if takes != inputs or len(item.g.output) != outputs:
            raise ModelError(
                f"{label}: {item.name} takes {takes} inputs and makes "
                f"{len(item.g.output)} outputs, the node gives it {inputs} inputs and "
                f"expects {outputs} outputs"
            )


def _check_count(label: str, kind: str, names: Sequence[str], least: int, most: int) -> None:
    if not least <= len(names) <= most:
        least_to_most = f"{least}" if least == most else f"{least} to {most}"
        raise ModelError(f"{label} {least_to_most} {kind}, {len(names)} are given")
