"""Loop: runs that choose tokens, each submitted before the host has read the last one's token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from vklab.apps.llm import sampling
from vklab.apps.llm.decode import cached_model
from vklab.apps.llm.decode.cached_model import CachedModel
from vklab.apps.llm.decode.staged_model import StagedModel
from vklab.apps.llm.sampling import SamplingOptions
from vklab.errors import ModelError

# The most recent tokens that penalties can apply to.
MOST_RECENT = 1024


class Loop:
    """Generation from where some sequences stand; `close` leaves no run in flight.

    Attributes:
        binding: the binding that runs; its logits are those of the last token that was read.

    Args:
        model: the model with its cache.
        tokens: all tokens of each sequence, which are in the cache.
        options: how tokens are chosen.

    Raises ModelError for a model whose graph does not choose tokens.
    """

    def __init__(
        self, model: CachedModel | StagedModel, tokens: Sequence[Sequence[int]],
        options: SamplingOptions,
    ) -> None:  # fmt: skip
        if not model.can_choose:
            raise ModelError(f"the graph of {model.graph.name} chooses no tokens")
        size = cached_model.RECENT if options.repeat_last <= cached_model.RECENT else MOST_RECENT
        self.binding: Any = model.loop(size)
        # The last token runs once more: its logits are needed where the sampler is.
        given = {
            "tokens": np.array([each[-1:] for each in tokens], np.int32),
            "lengths": np.array([len(each) - 1 for each in tokens], np.int32),
            "counts": np.ones(len(tokens), np.int32),
            "recent": np.stack([sampling.ring(each, size, np.int32) for each in tokens]),
            "options": options.words(),
        }
        for name, array in given.items():
            self.binding.inputs[name][...] = array

    def tokens(self, count: int) -> Iterator[list[int]]:
        """Yield the next tokens of all sequences, `count` times."""
        if count:
            self.binding.submit()
        for number in range(count):
            if number + 1 < count:
                self.binding.submit()
            chosen = self.binding.collect()[cached_model.CHOSEN].numpy()
            yield chosen[:, 0].tolist()

    def close(self) -> None:
        """Wait for the run that may still be in flight; its results are not read."""
        self.binding.settle()
