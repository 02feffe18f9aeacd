"""Core ML programs executed by vklab on Vulkan, on any system and without coremltools.

Core ML fixes neither the accumulation nor the fusion of a program, and its Neural Engine is not
modelled here: a row shows the program's own rounding, after each operator or with fused ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from vklab import settings
from vklab.apps.compare import vulkan
from vklab.apps.compare.backend import Availability, Dtypes, ModelSource, Refused
from vklab.apps.compare.coreml import inspect, package, program
from vklab.graph import onnx_import
from vklab.graph.graph import Graph

NOTE = (
    "the program as it is written; Core ML itself fixes neither accumulation nor fusion, and "
    "the Neural Engine is not modelled"
)
NO_PACKAGE = (
    "a Core ML row needs a package: give an .mlpackage or .mlmodel, or the PyTorch "
    "source as MODULE:FUNCTION, which is converted"
)
KINDS = {"mlProgram": "an ML Program", "neuralNetwork": "a NeuralNetwork"}


@dataclass(frozen=True)
class CoreMLProgram:
    """A package of one precision on one Vulkan device.

    Attributes:
        row: the device.
        precision: "float32" or "float16", the dtype in which the program computes.
        fused: whether vklab may fuse operators, which then round once.
        kind: a key of KINDS; a NeuralNetwork leaves the precision to Core ML, and the row
            computes it in that of its weights.
    """

    row: vulkan.Vulkan
    precision: str
    fused: bool = False
    kind: str = "mlProgram"

    @property
    def name(self) -> str:
        """Return the name of the row."""
        ending = "-fused" if self.fused else ""
        return f"coreml-by-vklab-{self.row.index}-{self.package_form}{ending}"

    @property
    def package_form(self) -> str:
        """Return the key of `packages.FORMS` that this row takes."""
        return self.precision if self.kind == "mlProgram" else "network"

    @property
    def device(self) -> str:
        """Return the Vulkan device in words."""
        return self.row.device

    @property
    def dtypes(self) -> Dtypes:
        """Return the dtypes; sums are float32."""
        return Dtypes(self.precision, self.precision, "float32")

    def available(self) -> Availability:
        """Tell whether the device can be used."""
        return self.row.available()

    def prepare(self, source: ModelSource) -> vulkan.Loaded:
        """Read the package and load its program."""
        if source.package is None:
            raise Refused(NO_PACKAGE)
        kind = package.open_package(source.package).model.WhichOneof("kind")
        if kind in KINDS and kind != self.kind:
            raise Refused(
                f"{source.package.name} is {KINDS[kind]}; this row is of {KINDS[self.kind]}"
            )
        graph = program.import_package(source.package)
        found = computes_in(graph)
        if found != self.precision and self.kind == "mlProgram":
            raise Refused(
                f"{source.package.name} computes in {found}; this row is of packages in "
                f"{self.precision}"
            )
        files = [source.package, *source.package.rglob("*")]
        size = sum(path.stat().st_size for path in files if path.is_file())
        loaded = self._load(graph, size)
        loaded.limits = inspect.limits(source.package)
        loaded.dtypes = Dtypes(found, found, "float32")
        return loaded

    def prepare_part(self, source: ModelSource) -> vulkan.Loaded:
        """Load a part of the program, which the report cut out as an ONNX graph."""
        assert source.onnx is not None
        return self._load(onnx_import.load_graph(source.onnx), source.onnx.stat().st_size)

    def _load(self, graph: Graph, size_bytes: int) -> _Program:
        with settings.settings(DISABLE_FUSION=not self.fused):
            loaded = _Program(graph, self.row.index, "", size_bytes)
        loaded.note = NOTE
        return loaded


class _Program(vulkan.Loaded):
    """A program, fed with the inputs of the model that it was converted from."""

    dtypes: Dtypes | None = None
    limits: Mapping[str, tuple[inspect.Limits, ...]] = {}

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outputs by name."""
        return super().run(self._fed(inputs))

    def layers(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the values of all operators by name."""
        return super().layers(self._fed(inputs))

    def _fed(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return inputs with the program's names and dtypes; by their order if names differ."""
        infos = self.inputs
        names = [info.name for info in infos]
        if {*names} != {*inputs} and len(names) == len(inputs):
            inputs = dict(zip(names, inputs.values(), strict=True))
        for name, allowed in self.limits.items():
            if name in inputs and not inspect.allows(allowed, inputs[name].shape):
                shown = " or ".join(map(_sizes, allowed))
                raise Refused(
                    f"input {name!r} has shape {list(inputs[name].shape)}; the package "
                    f"allows {shown}"
                )
        kinds = {info.name: info.dtype for info in infos}
        return {name: array.astype(kinds.get(name, array.dtype)) for name, array in inputs.items()}


def _sizes(shape: inspect.Limits) -> str:
    texts = [
        str(low) if low == high else f"{low}..{'' if high < 0 else high}" for low, high in shape
    ]
    return f"[{', '.join(texts)}]"


def computes_in(graph: Graph) -> str:
    """Return "float16" for a program with weights or casts of that dtype, else "float32"."""
    stored = {info.dtype for info in graph.initializers.values()}
    casts = {node.attributes.get("to") for node in graph.nodes if node.op_type == "Cast"}
    is_half = "float16" in stored or int(TensorProto.FLOAT16) in casts
    return "float16" if is_half else "float32"


def every(devices: tuple[vulkan.Vulkan, ...]) -> list[CoreMLProgram]:
    """Return the rows of Core ML programs on the Vulkan devices of `vulkan.every`."""
    return [
        CoreMLProgram(row, precision, fused, kind)
        for row in devices
        if not row.dtype
        for precision, fused, kind in (
            ("float32", False, "mlProgram"),
            ("float16", False, "mlProgram"),
            ("float16", True, "mlProgram"),
            ("float32", False, "neuralNetwork"),
        )
    ]
