"""Core ML packages of a report's model: the given one, or what its factory converts to.

coremltools works in a child, as PyTorch's exporter does, once for each form that a row asks for.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from vklab.apps.compare.backend import Backend, ModelSource
from vklab.apps.compare.coreml import convert
from vklab.apps.compare.coreml.options import Options
from vklab.apps.compare.torch import backend as torch
from vklab.base import worker

FORMS = {
    "float16": Options(),
    "float32": Options(precision="float32"),
    "network": Options(kind="neuralnetwork", precision="float32"),
}
"""Options of the conversion by `package_form`, the attribute of a backend that needs a package."""


class Packages:
    """Packages of one model, converted when the first row asks.

    Args:
        source: the model; a package that it has is the one of all rows.
        folder: folder for the converted packages.
        seconds: time limit of one conversion.
    """

    def __init__(self, source: ModelSource, folder: Path, seconds: float) -> None:
        self._source, self._folder, self._seconds = source, folder, seconds
        self._made: dict[str, Path | worker.Failure] = {}

    def waits(self, backend: Backend) -> bool:
        """Tell whether `source_of` would convert for this backend."""
        form = getattr(backend, "package_form", "")
        has_form = bool(form and self._source.factory and self._source.package is None)
        return has_form and form not in self._made

    def source_of(self, backend: Backend) -> ModelSource:
        """Return the model with the package that this backend takes.

        Raises worker.Failure where coremltools is missing, refuses, crashes or takes too long.
        """
        form = getattr(backend, "package_form", "")
        if self.waits(backend):
            self._made[form] = self._converted(form)
        made = self._made.get(form)
        if isinstance(made, worker.Failure):
            raise worker.Failure(made.status, made.reason, made.install)
        return replace(self._source, package=made) if made else self._source

    def wide_form(self, backend: Backend) -> ModelSource | None:
        """Return the model with its package in float32, if this backend's is a float16 form of it.

        It knows the weights before rounding. None beside a given package, and where the conversion
        fails.
        """
        if getattr(backend, "package_form", "") != "float16" or self._source.package:
            return None
        if "float32" not in self._made:
            self._made["float32"] = self._converted("float32")
        made = self._made["float32"]
        return replace(self._source, package=made) if isinstance(made, Path) else None

    def _converted(self, form: str) -> Path | worker.Failure:
        options = FORMS[form]
        ending = "mlpackage" if options.kind == "mlprogram" else "mlmodel"
        path = self._folder / f"{self._source.name}_{form}.{ending}"
        try:
            worker.once(_convert, self._source.factory, path, options, seconds=self._seconds)
        except worker.Failure as failure:
            reason = failure.reason
            if failure.status != "absent":
                reason = f"there is no Core ML package: {reason}"
            return worker.Failure(failure.status, reason, failure.install)
        return path


def _convert(state: dict[str, Any], factory: str, path: Path, options: Options) -> None:
    convert.load_converter()  # before torch, whose absence has no repair of its own
    module, examples = torch.load_modules().make(factory)
    convert.convert(module, examples, path, options)
