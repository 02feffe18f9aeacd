"""Loader `vklab.from_torch`: a PyTorch module as a session, through torch.export and ONNX.

Decides whether weights go through memory or a file. torch is imported at the first call.
Visited by lab 09.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vklab.errors import SetupError
from vklab.runtime import loading, session

# A protobuf message holds at most 2 GiB; models near that size go through files.
IN_MEMORY_BYTES = 1_500_000_000


def from_torch(
    module: Any,
    example_inputs: Any,
    dynamic_shapes: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    device: int | str | None = None,
    devices: Sequence[int | str] | str | None = None,
    dtype: str | None = None,
    upper_bounds: Mapping[str, int] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> session.Session:
    """Load a PyTorch module, as it computes in eval mode, on a Vulkan device.

    Inputs are named as forward's parameters. An output is named by its key in a dict or its number
    in a tuple: "output", "output_1", "logits", "cache_0_1".

    Args:
        module: a torch.nn.Module; its mode and parameters are left unchanged.
        example_inputs: one tensor, a tuple for forward's parameters in order, or a dict by name.
            A value that is not a tensor becomes a constant.
        dynamic_shapes: the open dimensions, as torch.export takes them: {"x": {0: "batch"}}, with
            torch.export.Dim in place of names, or one entry per input in order. Other inputs have
            a fixed shape.
        device: as in `vklab.load`.
        devices: as in `vklab.load`.
        dtype: as in `vklab.load`.
        upper_bounds: as in `vklab.load`; by the names of dynamic_shapes.
        progress: as in `vklab.load`.

    Raises SetupError without torch, ModelError for a failed export, and the errors of `load`.
    """
    exporter = _load_exporter()
    program, names, size = exporter.export_module(module, example_inputs, dynamic_shapes)
    options: dict[str, Any] = {
        "device": device,
        "devices": devices,
        "dtype": dtype,
        "upper_bounds": upper_bounds,
        "progress": progress,
    }
    if size <= IN_MEMORY_BYTES:
        return loading.load(exporter.renamed(program.model_proto, names), **options)
    folder = tempfile.TemporaryDirectory(prefix="vklab-torch-", ignore_cleanup_errors=True)
    try:
        path = exporter.save(program, names, Path(folder.name))
        loaded = loading.load(path, **options)
    except BaseException:
        folder.cleanup()
        raise
    # The session maps weights from the file, and a check against ONNX Runtime reads it.
    weakref.finalize(loaded, folder.cleanup)
    return loaded


def _load_exporter() -> Any:
    try:
        from vklab.apps.pytorch import exporter
    except ModuleNotFoundError as error:
        raise SetupError(
            f"{error.name} is not installed; from_torch needs torch and onnxscript",
            'pip install "vklab[torch]"',
        ) from error
    return exporter
