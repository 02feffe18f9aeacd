"""Language models: files of weights, the graphs that are made of them, and text that they write.

Entered through `vklab.llm.load`, and the commands `vklab generate`, `chat` and `gguf`.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

_HOME_OF = {
    "LanguageModel": "vklab.apps.llm.language_model",
    "load": "vklab.apps.llm.language_model",
    "SamplingOptions": "vklab.apps.llm.sampling",
}

__all__ = ["LanguageModel", "SamplingOptions", "load"]

if TYPE_CHECKING:  # `as`: type checkers take these names as exported
    from vklab.apps.llm.language_model import LanguageModel as LanguageModel
    from vklab.apps.llm.language_model import load as load
    from vklab.apps.llm.sampling import SamplingOptions as SamplingOptions


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:  # reading a file of weights needs neither the runtime nor a driver
        return getattr(importlib.import_module(_HOME_OF[name]), name)
    if find_spec(f"{__name__}.{name}") is None:
        raise AttributeError(f"module 'vklab.llm' has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")  # its former modules are attributes, too
