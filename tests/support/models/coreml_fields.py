"""Comparison of our table of message fields with the descriptors that coremltools ships."""

from __future__ import annotations

from typing import Any

from vklab.apps.compare.coreml import protobuf


def differences() -> list[str]:
    """Return every field of our table that coremltools' descriptors have otherwise."""
    from coremltools.proto import Model_pb2

    problems: list[str] = []
    ours = protobuf.message_class("Model").DESCRIPTOR
    _compare(ours, Model_pb2.Model.DESCRIPTOR, problems, set())
    return problems


def _compare(ours: Any, theirs: Any, problems: list[str], seen: set[tuple[str, str]]) -> None:
    key = (ours.full_name, theirs.full_name)
    if key in seen:
        return
    seen.add(key)
    for field in ours.fields:
        other = theirs.fields_by_number.get(field.number)
        where = f"{ours.name}.{field.name} = {field.number}"
        enumeration = 14
        if other is None or other.name != field.name:
            problems.append(f"{where}: coremltools has {other.name if other else 'no such field'}")
        elif field.type != (5 if other.type == enumeration else other.type):
            problems.append(f"{where}: type {field.type}, coremltools has {other.type}")
        elif field.is_repeated != other.is_repeated:
            problems.append(f"{where}: repeated {field.is_repeated}")
        elif field.message_type is not None:
            _compare(field.message_type, other.message_type, problems, seen)
    own = {f.name for f in ours.fields if f.containing_oneof}
    if ours.name != "Model" and own:
        groups = {theirs.fields_by_name[name].containing_oneof for name in own}
        if len(groups) != 1:
            problems.append(f"{ours.name}: {sorted(own)} are no single choice of coremltools")
