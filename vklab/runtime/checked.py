"""What a session can do to be believed: compare what its devices compute with the CPU.

Every device that has the whole model is asked; a model that is split stays where it is.
Visited by lab 17.
"""

from __future__ import annotations

import functools
import glob
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vklab import settings
from vklab.errors import CheckError, SetupError
from vklab.graph.graph import Graph
from vklab.plan.spread import SpreadPlan
from vklab.runtime.engine import DeviceState
from vklab.runtime.many.frames import Outputs, Values
from vklab.runtime.members import PlacementOptions, SpreadEngine
from vklab.runtime.observe.compare import Comparison
from vklab.runtime.parts import Stage

if TYPE_CHECKING:
    from vklab.graph import onnx_import
    from vklab.runtime.observe import reference as references

__all__ = ["Checked", "onnx"]


class Checked:
    """A session's results beside those of ONNX Runtime on the CPU."""

    graph: Graph
    _model: onnx_import.Model | None
    _is_half: bool
    _roots: Sequence[Stage]
    _members: Sequence[DeviceState]
    _require_open: Callable[[], Any]

    def reference(self, inputs: Mapping[str, np.ndarray]) -> Outputs:
        """Return what ONNX Runtime computes on the CPU for the same inputs."""
        return self._expected.outputs(inputs)

    @functools.cached_property
    def _expected(self) -> references.Expected:
        return onnx().Expected(self._model, self.graph, self._is_half)

    def check(self, inputs: Mapping[str, np.ndarray], nodes: bool = False) -> Comparison:
        """Run, and compare every output with ONNX Runtime on the CPU.

        Where float16 is stored, errors up to `check.HALF` pass. Of several devices that each have
        the whole model, all are compared up to the first that differs.

        Args:
            nodes: compare what every node makes, and name the first that differs.
        """
        for lane in range(len(self._roots)):
            found = self._compare(inputs, lane, nodes)
            if not found.passed:
                break
        return found

    def _compare(
        self, inputs: Mapping[str, np.ndarray], lane: int, nodes: bool,
        outputs: Outputs | None = None,
    ) -> Comparison:  # fmt: skip
        if outputs is None or nodes:
            with settings.settings(CHECK=""):
                outputs = self._all_values(inputs, lane) if nodes else self._run_on(lane, inputs)
        compare = self._expected.compare_nodes if nodes else self._expected.compare
        return compare(outputs, inputs)

    def _run_on(self, lane: int, inputs: Mapping[str, np.ndarray]) -> Outputs:
        """Run on one of the devices that have the whole model."""
        raise NotImplementedError

    def _all_values(self, inputs: Mapping[str, np.ndarray], lane: int) -> Outputs:
        """Run once more with every node's values as outputs, each where it was made."""
        self._require_open()
        root, opened, wish = self._roots[lane], [self._members[lane].opened], None
        if isinstance(root.engine, SpreadEngine):
            self._run_on(lane, inputs)  # which decides where the nodes are
            opened = [each.opened for each in self._members]
            wish = PlacementOptions(place=_places(root))
        whole = onnx().all_values(self.graph)
        again: Any = type(self)
        with again(whole, opened, None, dtype=root.engine.dtype, wish=wish) as session:
            return dict(session.run(inputs))

    def _require_equal(self, values: Values, lane: int, outputs: Outputs) -> None:
        """Raise CheckError if outputs are not the CPU's; the CHECK switch says what to compare."""
        wanted = settings.get("CHECK")
        if wanted not in ("outputs", "nodes"):
            raise SetupError(f"VKLAB_CHECK={wanted!r} is not known; use 'outputs' or 'nodes'")
        found = self._compare(values, lane, wanted == "nodes", outputs)
        if not found.passed:
            raise CheckError(f"{self._name(lane)} {found}")

    def _name(self, lane: int) -> str:
        """Return what runs a model: one of several devices that have all of it, or all of them."""
        used = self._members[lane:][:1] if len(self._roots) > 1 else self._members
        return " and ".join(member.opened.info.name for member in used)


def _places(root: Stage) -> dict[str, int]:
    """Return the index of the device of each node of a path that is spread over several."""
    plans = [found.plan for found in root.walk() if isinstance(found.plan, SpreadPlan)]
    return {
        glob.escape(node.name): plan.devices[stage.device].index
        for plan in plans for stage in plan.stages for node in stage.graph.nodes if node.name
    }  # fmt: skip


def onnx() -> Any:
    """Load what reads ONNX models and computes the reference; compiled models do without."""
    try:
        from vklab.runtime.observe import reference as loaded
    except ImportError as error:
        raise SetupError(f"this needs onnx ({error})", "pip install onnx onnxruntime") from error
    return loaded
