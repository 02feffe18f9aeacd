"""Description of an absent device, as `vklab devices NAME --json` prints it on its machine."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from vklab.errors import SetupError
from vklab.runtime.compiled import codec
from vklab.types import DeviceInfo

# Limits that every plan reads; another missing limit raises an error when it is read.
_LIMITS = ("maxComputeWorkGroupCount", "maxComputeWorkGroupInvocations", "maxStorageBufferRange",
           "maxComputeSharedMemorySize", "maxPushConstantsSize", "minSubgroupSize")  # fmt: skip


def read(path: Path) -> DeviceInfo:
    """Return the only device of a JSON file: at its top level, or in a list `devices`.

    Raises SetupError for any other file, and for a device that vklab cannot use.
    """
    repair = f"vklab devices NAME --json > {path.name}   (on the machine that has it)"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        devices = data.get("devices", [data])
        if len(devices) != 1:
            raise ValueError(f"it describes {len(devices)} devices, not one")
        version = devices[0]["api_version"]
        numbers = list(map(int, version.split(".")))
        info = _build(DeviceInfo, {**devices[0], "api_version": numbers})
        missing = [name for name in _LIMITS if name not in info.limits]
        if missing:
            raise ValueError(f"the limit {missing[0]} is missing")
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise SetupError(
            f"{path} describes no device: {type(error).__name__}: {error}", repair
        ) from error
    if info.refusal:
        raise SetupError(f"{path}: {info.name} cannot be used, it {info.refusal}")
    return info


def _build(hint: Any, value: Any) -> Any:
    """Convert data from JSON to a type: JSON has no tuples, sets or infinity."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        names = [field.name for field in fields(hint) if field.name in value]
        return codec.make(hint, {name: _build(hints[name], value[name]) for name in names})
    if isinstance(value, str) and hint is not str:
        return float(value)
    if origin is Mapping:
        return {str(key): _build(arguments[1], item) for key, item in value.items()}
    if isinstance(value, list):
        item = Any if origin is types.UnionType else arguments[0]
        return (frozenset if origin is frozenset else tuple)(_build(item, x) for x in value)
    return value
