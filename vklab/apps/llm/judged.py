"""Judged: a model that reads chunks of a text, and tells what it expected in their second halves.

Whole chunks without a cache, by way of a cache, or token by token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vklab.apps.llm.decode.decoder import Decoder
from vklab.apps.llm.decode.memory import Sizes
from vklab.apps.llm.graphs import models
from vklab.apps.llm.weights.gguf import GgufFile
from vklab.runtime import loading


@dataclass(frozen=True)
class Reading:
    """A way to read the chunks of a text, and the devices for it.

    Attributes:
        by_steps: read the judged tokens one at a time, with the kernels of one row and the cache
            that a chat has. A reference reads whole chunks.
        cache: the format of the cache; None for no cache, or F16 where one is needed.
        device: as `Decoder` takes it.
        devices: as `Decoder` takes it; a reference is on the same devices.
        layers: as `Decoder` takes it.
        report: called with a file's name and sizes before its weights are loaded, with a cache.
    """

    by_steps: bool = False
    cache: str | None = None
    device: int | str | None = None
    devices: Sequence[int | str] | str | None = None
    layers: int | Sequence[int] | None = None
    report: Callable[[str, Sizes], None] | None = None

    @property
    def is_placed(self) -> bool:
        """Tell whether layers may be on several devices."""
        return self.devices is not None or self.layers is not None

    def judged(self, file: GgufFile, context: int) -> Judged:
        """Return a model, loaded."""
        if self.by_steps:
            return Stepped(file, context, self)
        if self.is_placed or self.cache is not None:
            return Cached(file, context, self)
        return Judged(file, context, self.device)

    def reference(self) -> Reading:
        """Return how a reference reads: whole chunks, in float32."""
        return replace(self, by_steps=False, cache="F32" if self.is_placed else None)

    def decoder(self, file: GgufFile, context: int, every_logit: bool) -> Decoder:
        """Return a model with a cache.

        Args:
            file: the model.
            context: the tokens of a chunk.
            every_logit: as `Decoder` takes it.
        """
        report = self.report

        def told(sizes: Sizes) -> None:
            if report:
                report(file.name, sizes)

        return Decoder(
            file,
            self.device,
            context,
            cache=self.cache or "F16",
            report=told,
            every_logit=every_logit,
            devices=self.devices,
            layers=self.layers,
        )


class Judged:
    """A loaded model that returns the logits after the second half of a chunk.

    Args:
        file: the model.
        context: the tokens of a chunk.
        device: the device; default the fastest.
    """

    def __init__(self, file: GgufFile, context: int, device: int | str | None = None) -> None:
        graph = models.model_graph(file, context, every_logit=True)
        caches = [info for info in graph.inputs if info.name.startswith("past_")]
        self.context = context
        self._fed: dict[str, np.ndarray] = {"positions": np.arange(context)[None]}
        for info in caches:
            _, heads, _, size = info.shape
            self._fed[info.name] = np.zeros((1, int(heads), 0, int(size)), np.float32)
        self._session: Any = loading.load(graph, device, outputs=["logits"])

    def logits(self, row: np.ndarray) -> np.ndarray:
        """Return float32 [judged tokens, vocabulary]: the last token predicts none of the chunk."""
        found = self._session.run({**self._fed, "tokens": row[None]})["logits"]
        return found[0, self.context // 2 : -1]

    def __enter__(self) -> Judged:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()


class Cached(Judged):
    """A loaded model that reads whole chunks by way of a cache, on one device or on several.

    Args:
        file: the model.
        context: the tokens of a chunk.
        how: the cache's format and the devices.
    """

    every_logit = True  # of a prompt, not of its last token alone

    def __init__(self, file: GgufFile, context: int, how: Reading) -> None:
        self.context = context
        self._session = self._decoder = how.decoder(file, context, every_logit=self.every_logit)

    def logits(self, row: np.ndarray) -> np.ndarray:
        """Return float32 [judged tokens, vocabulary]: the last token predicts none of the chunk."""
        self._decoder.rewind()
        self._decoder.prompt(row)
        return self._decoder.logits[0, self.context // 2 : -1]


class Stepped(Cached):
    """A loaded model that reads the second half of a chunk token by token, as a chat generates."""

    every_logit = False

    def logits(self, row: np.ndarray) -> np.ndarray:
        """Return float32 [judged tokens, vocabulary]: the last token predicts none of the chunk."""
        half, found = self.context // 2, []
        self._decoder.rewind()
        self._decoder.prompt(row[:half])
        for token in row[half:-1]:
            self._decoder.step(int(token))
            found.append(self._decoder.logits[0])
        return np.stack(found)
