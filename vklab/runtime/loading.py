"""Loading of a model on devices: `load`, the entry point of the runtime.

Reads the model, opens the devices, and returns a Session. Visited by all labs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from vklab import settings
from vklab.base import catalogue
from vklab.runtime import kernels, open_devices
from vklab.runtime.observe import given
from vklab.runtime.session import Session

if TYPE_CHECKING:
    from vklab.graph import onnx_import


def load(
    model: onnx_import.Model | bytearray | memoryview | IO[bytes],
    device: int | str | None = None,
    progress: kernels.Progress | None = None,
    *,
    devices: Sequence[int | str] | str | None = None,
    place: Mapping[str, int | str] | None = None,
    memory_caps: Mapping[int | str, int] | None = None,
    policy: str | None = None,
    profiles: Mapping[int | str, Any] | None = None,
    replicate: bool = False,
    dtype: str | None = None,
    precision: str | None = None,
    upper_bounds: Mapping[str, int] | None = None,
    outputs: Sequence[str] | None = None,
) -> Session:
    """Load an ONNX model, or one that `vklab compile` wrote, on one or several Vulkan devices.

    Args:
        model: a path, bytes, a file opened in binary mode, an onnx.ModelProto, or a Graph that an
            importer of another format has made.
        device: index, part of a name, "gpu" or "cpu"; default the fastest, or VKLAB_DEVICE.
        progress: called as (done, of, kernel) while kernels compile.
        devices: "all", or a list of indices or names: the model is split over these devices.
        place: the device of nodes, by patterns of their names ("layer3*").
        memory_caps: the most bytes of device memory that a plan may use, by device.
        policy: "cost", the least predicted time (default), or "greedy", the first device with room:
            devices are tried in the given order; with "all", the fastest first.
        profiles: measured node times for placement, by device: `profile` of the model on it alone.
        replicate: each device gets the whole model; frames (`submit`, `map`) go to any of them.
        dtype: "float16" to compute a float32 model in half precision; inputs and outputs stay
            float32. A device without float16 storage uses 32 bits: same results, no memory saved.
        precision: "bf16x3" to compute products of float32 as three products of bfloat16 each, or
            "half-sums" to sum products of float16 in float16: faster on matrix units, less exact.
            "int8" and "exact" let, and do not let, rows times weights in blocks be rounded.
        upper_bounds: the largest size of each open dimension, by name (INPUT.AXIS for one without
            a name): memory for all shapes up to these bounds is reserved once.
        outputs: the outputs to compute; nodes that only others need are dropped. Default: all.

    Raises FileNotFoundError, ModelError, UnsupportedOperatorError, PlanError, SetupError; for a
    model of known or bounded shapes, which is compiled here, ShaderError and OutOfMemoryError.
    """
    source: Any = given.source(model)
    is_compiled = given.is_compiled(source)
    saved = catalogue.step("read compiled")(source) if is_compiled else None
    graph = saved.graph if saved else catalogue.step("import a model")(source)
    if outputs is not None:
        graph = catalogue.step("only outputs")(graph, outputs, saved)
    options: Any = None
    if devices is not None or place or memory_caps or policy or profiles or replicate:
        options = catalogue.step("device options")(
            place or {},
            memory_caps or {},
            policy,
            profiles or {},
            replicate,
            devices,
        )
        opened = options.open(device)
    else:
        opened = (open_devices.open_device(device),)
    switches = catalogue.step("check precision")(precision, opened) if precision else {}
    with settings.settings(**switches):
        return Session(
            graph,
            opened,
            source,
            progress,
            saved,
            dtype=dtype,
            upper_bounds=upper_bounds,
            options=options,
        )
