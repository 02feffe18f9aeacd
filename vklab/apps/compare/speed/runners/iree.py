"""IREE on Vulkan as a runner: the model is imported, compiled and executed.

Weights are parameters beside the module, so that a module is small; it is kept in vklab's cache,
by the graph without its weights, because to compile one takes up to minutes.

Source: https://iree.dev/guides/ml-frameworks/onnx/, https://iree.dev/guides/parameters/
"""

from __future__ import annotations

import hashlib
import math
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from vklab.apps.compare import backend
from vklab.apps.compare.backend import Availability, Refused
from vklab.apps.compare.speed.runners.runner import Arrays, Case, Timed
from vklab.base import endings, store
from vklab.errors import SetupError

INSTALL = "vklab bench peers"
IMPORT = "iree.compiler.tools.import_onnx"
SCOPE, LEAST = "model", 1024  # of parameters; initializers with fewer elements are constants


def load_iree(part: str) -> ModuleType:
    """Import a part of IREE, or raise SetupError with the command that installs it."""
    return backend.load_package(f"iree.{part}", "IREE", INSTALL)


@dataclass(frozen=True)
class Iree:
    """IREE on the first Vulkan device that it sees.

    Attributes:
        target: architecture for the compiler, such as "ampere"; "" for any device.
        environment: folder of the packages iree-base-compiler and iree-base-runtime.
    """

    target: str = ""
    environment: Path | None = None
    name: str = "iree"
    dtype: str = "float32"
    variables: Mapping[str, str] = field(default_factory=dict)
    on_gpu = True

    def takes(self, case: Case) -> bool:
        """Tell that all models but chains of ten thousand nodes are measured."""
        return case.name != "chain_add_10000"  # its compiler works on them for minutes

    def available(self) -> Availability:
        """Tell whether the runtime and a device are here."""
        try:
            runtime = load_iree("runtime")
            if not runtime.get_driver("vulkan").query_available_devices():
                return Availability("IREE finds no Vulkan device", INSTALL)
        except SetupError as error:
            return Availability.of(error)
        except Exception as error:  # a driver that cannot be loaded raises anything
            return Availability(f"IREE cannot use Vulkan: {endings.one_line(error)}", INSTALL)
        return Availability()

    def prepare(self, case: Case) -> IreeModel:
        """Compile the model, and load it."""
        return IreeModel(self, case)


class IreeModel(Timed):
    """A compiled module of IREE.

    Args:
        runner: architecture.
        case: the model.
    """

    def __init__(self, runner: Iree, case: Case) -> None:
        self._runtime: Any = load_iree("runtime")
        self._device = self._runtime.get_device("vulkan")
        config = self._runtime.Config(device=self._device)
        self._context: Any = self._runtime.SystemContext(config=config)
        model = onnx.load(case.onnx)
        self._weights = {t.name: numpy_helper.to_array(t) for t in _parameters(model)}
        data, how = _module(case.onnx, model, runner.target)
        instance = self._context.instance
        if self._weights:
            self._context.add_vm_module(self._parameters(instance))
        module = self._runtime.VmModule.copy_buffer(instance, data)
        self._context.add_vm_module(module)
        name = next(n for n in module.function_names if "$" not in n and not n.startswith("__"))
        self._call = self._context.modules[module.name][name]
        with np.load(case.expected) as expected:
            self._names = list(expected.files)
        self.variant = f"Vulkan, {runner.target or 'any architecture'}{how}"
        self.versions = {"iree": _version()}
        self._staging: dict[int, Any] = {}

    def _parameters(self, instance: Any) -> Any:
        """Return the module that hands the weights to the model."""
        index = self._runtime.ParameterIndex()
        for name, array in self._weights.items():
            self._runtime.parameter_index_add_numpy_ndarray(index, name, array)
        return self._runtime.create_io_parameters_module(
            instance, index.create_provider(scope=SCOPE)
        )

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """Return the outputs by name."""
        made = self._call(*inputs.values())
        values = made if isinstance(made, (tuple, list)) else [made]
        return {name: self._to_host(value) for name, value in zip(self._names, values, strict=True)}

    def _to_host(self, value: Any) -> np.ndarray:
        """Copy a result to the host.

        IREE's own method imports memory whose address Vulkan does not allow.
        """
        runtime, view = self._runtime, value._buffer_view
        source = view.get_buffer()
        size = source.byte_length()
        if size not in self._staging:
            self._staging[size] = self._device.allocator.allocate_buffer(
                memory_type=int(runtime.MemoryType.HOST_LOCAL | runtime.MemoryType.DEVICE_VISIBLE),
                allowed_usage=int(
                    runtime.BufferUsage.TRANSFER_TARGET | runtime.BufferUsage.MAPPING_SCOPED
                ),
                allocation_size=size,
            )
        done = self._device.create_semaphore(0)
        self._device.queue_copy(
            source,
            self._staging[size],
            wait_semaphores=runtime.HalFence.create_at(done, 0),
            signal_semaphores=runtime.HalFence.create_at(done, 1),
        )
        runtime.HalFence.create_at(done, 1).wait()
        dtype = runtime.HalElementType.map_to_dtype(view.element_type)
        made: np.ndarray = np.array(self._staging[size].map().asarray(view.shape, dtype))
        return made

    def close(self) -> None:
        """Free the module."""
        self._staging, self._call, self._context, self._weights = {}, None, None, {}


def _parameters(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Return the initializers that are no constants of the module."""
    return [t for t in model.graph.initializer if math.prod(t.dims) >= LEAST]


def _version() -> str:
    return str(load_iree("_runtime_libs.version").VERSION)


def _module(path: Path, model: onnx.ModelProto, target: str) -> tuple[bytes, str]:
    """Return the compiled module of a model, and whether it was kept from an earlier run.

    Args:
        path: the ONNX file.
        model: the same model; it loses its parameters.
        target: architecture, or "".
    """
    for tensor in _parameters(model):
        tensor.raw_data = b""
    text = model.graph.SerializeToString(deterministic=True)
    key = hashlib.sha256(b"\0".join([text, target.encode(), _version().encode()])).hexdigest()
    folder = store.folder("iree")
    file = folder / f"{key}.vmfb" if folder else None
    kept = store.read(file)
    if kept is not None:
        return kept, ", compiled in an earlier run"
    made = _compiled(path, target)
    store.write(file, made)
    return made, ""


def _compiled(path: Path, target: str) -> bytes:
    """Return the module that the compiler makes of an ONNX file; raise Refused if it fails."""
    try:
        tools = load_iree("compiler.tools")
    except SetupError as error:
        raise Refused(f"IREE's compiler is not installed: {INSTALL}") from error
    with tempfile.TemporaryDirectory(prefix="vklab-iree-") as folder:
        text = Path(folder) / "model.mlir"
        words = [
            sys.executable,
            "-m",
            IMPORT,
            str(path),
            "-o",
            str(text),
            "--params-scope",
            SCOPE,
            "--externalize-params",
            "--no-save-params",
            "--num-elements-threshold",
            str(LEAST),
        ]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise Refused(f"IREE does not import the model: {last[:200]}")
        more = [f"--iree-vulkan-target={target}"] if target else []
        try:
            made: bytes = tools.compile_file(
                str(text), target_backends=["vulkan-spirv"], extra_args=more
            )
        except Exception as error:  # the compiler's errors have a class of their own
            said = endings.one_line(error, 200)
            raise Refused(f"IREE does not compile the model: {said}") from error
    return made
