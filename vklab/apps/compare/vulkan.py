"""vklab itself as a backend: one row for each Vulkan device and dtype."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from vklab import __version__
from vklab.apps.compare.backend import Availability, Dtypes, ModelSource, Refused
from vklab.errors import HostWarning, SetupError, VulkanError
from vklab.graph import onnx_import
from vklab.graph.graph import Graph
from vklab.runtime import open_devices
from vklab.runtime.observe import reference
from vklab.runtime.session import Session
from vklab.types import TensorInfo

HOST = "host (ONNX Runtime on the CPU)"
INSTALL = "python -m vklab doctor says what is missing on this system"


@dataclass(frozen=True)
class Vulkan:
    """One Vulkan device, in the model's own dtype or in float16.

    Attributes:
        index: index of the device; -1 if there is none.
        device: name of the device and of its driver.
        dtype: "float16", or "" for the model's own.
        reason: why the device cannot be used; "" if it can.
    """

    index: int
    device: str
    dtype: str = ""
    reason: str = ""

    @property
    def name(self) -> str:
        """Return the name of the row; the index tells equal devices apart."""
        number = f"-{self.index}" if self.index >= 0 else ""
        return f"vklab{number}-{self.dtype or 'float32'}"

    @property
    def dtypes(self) -> Dtypes:
        """Return the dtypes; values are stored in float16 and summed in float32."""
        stored = self.dtype or "float32"
        return Dtypes(stored, stored, "float32")

    def available(self) -> Availability:
        """Tell whether the device can be used."""
        return Availability(self.reason, INSTALL if self.reason else "")

    def prepare(self, source: ModelSource) -> Loaded:
        """Load the model's ONNX form on the device."""
        path = source.require_onnx()
        graph = onnx_import.load_graph(path)
        return Loaded(graph, self.index, self.dtype, path.stat().st_size)


def every() -> tuple[Vulkan, ...]:
    """Return the rows of all Vulkan devices; a row with the reason where there is none."""
    try:
        infos = tuple(open_devices.devices())
        problem = "" if infos else "there is no Vulkan device"
    except (SetupError, VulkanError) as error:
        infos, problem = (), str(error).splitlines()[0]
    if problem:
        return tuple(Vulkan(-1, "Vulkan device", dtype, problem) for dtype in ("", "float16"))
    return tuple(
        Vulkan(info.index, f"{info.name}, {info.driver}", dtype, info.refusal or "")
        for info in infos
        for dtype in ("", "float16")
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the warning of nodes on the host, which a session gives once, in its first run.

    To silence each run would take 3 us of it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HostWarning)
        yield


class Loaded:
    """A graph on one Vulkan device.

    Args:
        graph: the imported model, of any format.
        index: index of the device.
        dtype: as in `vklab.load`.
        size_bytes: bytes of the model's file.
    """

    def __init__(self, graph: Graph, index: int, dtype: str, size_bytes: int) -> None:
        self._graph, self._dtype = graph, dtype or None
        self._opened = (open_devices.open_device(index),)
        with _quiet():  # the row counts these nodes
            self._session = Session(graph, self._opened, None, dtype=self._dtype)
        self.size_bytes = size_bytes // 2 if dtype == "float16" else size_bytes
        self._nodes: dict[str, int] = {}
        self.note = ""
        self.versions = {"vklab": __version__}

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Return name, dtype and shape of every input."""
        return self._graph.inputs

    @property
    def nodes(self) -> Mapping[str, int]:
        """Return the nodes on the device and on the host; {} before the first run."""
        return self._nodes

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outputs by name; refuse a model that ran on the host alone."""
        if self._nodes:
            return self._session.run(dict(inputs))
        with _quiet():
            made = self._session.run(dict(inputs))
        self._count()
        return made

    def _count(self) -> None:
        found = self._session.host_nodes
        on_host = len(found.nodes)
        self._nodes = {"vklab": found.total - on_host} | ({HOST: on_host} if on_host else {})
        self.note = "; ".join(filter(None, [self.note, found.reasons]))
        if on_host == found.total and on_host:
            raise Refused(f"all {on_host} nodes ran on the host: {found.reasons}")

    def layers(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the values of all nodes, from a second session in which none is fused."""
        whole = reference.all_values(self._graph)
        with _quiet(), Session(whole, self._opened, None, dtype=self._dtype) as session:
            return dict(session.run(dict(inputs)))

    def close(self) -> None:
        """Free the session."""
        self._session.close()
