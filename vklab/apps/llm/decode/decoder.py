"""Decoder: a language model with its cache on a device; give it tokens, and it chooses the next.

The cache keeps a prefix between turns. Decides what a prompt is split into and what the cache
holds; `cached_model` runs it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from vklab.apps.llm.decode import cached_model, generating, memory, placing
from vklab.apps.llm.decode.cached_model import CachedModel, generation_graph
from vklab.apps.llm.decode.load_progress import Loaded
from vklab.apps.llm.decode.memory import Sizes
from vklab.apps.llm.decode.placing import Placement
from vklab.apps.llm.decode.staged_model import StagedModel
from vklab.apps.llm.graphs import models
from vklab.apps.llm.graphs.build import BoundedCache
from vklab.apps.llm.sampling import SamplingOptions
from vklab.apps.llm.weights.gguf import GgufFile, read_gguf
from vklab.errors import ModelError, VklabError
from vklab.runtime import kernels

MOST_BATCH = 1024


class Decoder:
    """A language model on a device, and what its sequences have said so far.

    One thread at a time uses a decoder. Close it, or use it in a `with` block.

    Attributes:
        file: the GGUF file.
        context: the positions that the cache has for each sequence.
        batch: the number of sequences.
        vocabulary: the number of the model's tokens.
        sizes: the bytes of weights, cache and scratch memory.

    Args:
        file: the GGUF file, or its path.
        device: as `vklab.load` takes it.
        context: the most tokens of a sequence; default the model's own, at most 4,096, and less
            where the device has no memory for the cache.
        batch: as the attribute.
        cache: the format of the cache: F16, F32, or Q8_0 for half the bytes of F16.
        every_logit: keep the logits after every token of a call, not after the last only; such a
            decoder does not generate.
        progress: as `vklab.load` takes it.
        report: called with the sizes before weights are loaded.
        loaded: called with the bytes of weights that are loaded, and with all, as loading goes on.
        devices: several devices, as `vklab.load` takes them; the first layers are on the first one,
            and tokens are chosen on the last one.
        layers: the layers on each of them but the last; default as many as they have room for. With
            `device`, the last layers that are on it: the others are on the CPU.

    Raises ModelError, and PlanError with the sizes for a model that does not fit the device.
    """

    def __init__(
        self,
        file: GgufFile | str | os.PathLike[str],
        device: int | str | None = None,
        context: int | None = None,
        batch: int = 1,
        cache: str = "F16",
        every_logit: bool = False,
        progress: kernels.Progress | None = None,
        report: Callable[[Sizes], None] | None = None,
        loaded: Loaded | None = None,
        devices: Sequence[int | str] | str | None = None,
        layers: int | Sequence[int] | None = None,
    ) -> None:
        self._model: CachedModel | StagedModel | None = None
        if not isinstance(batch, int) or not 1 <= batch <= MOST_BATCH:
            raise ModelError(f"batch={batch!r} sequences; choose 1 to {MOST_BATCH}")
        self.file = file if isinstance(file, GgufFile) else read_gguf(file)
        self.batch = batch
        wanted = placing.placement(device, devices, layers)
        counts = all(cached_model.can_count_parts(info.index) for info in wanted.devices)
        form = BoundedCache(cache, batch, counts)
        length = self._default_context(form, wanted) if context is None else context
        graph = models.model_graph(self.file, length, every_logit, form)
        self._keeps_all = every_logit
        self.vocabulary = self.file.tensor("token_embd.weight").shape[0]
        whole = graph if every_logit else generation_graph(graph, batch)
        step_bytes = 4 * batch * self.vocabulary if every_logit else 0
        width = self.file.tensor("token_embd.weight").shape[1]
        self._model = placing.load(whole, wanted, width, report, progress, step_bytes, loaded)
        self.sizes, self.context = self._model.sizes, self._model.context
        self._tokens: list[list[int]] = [[] for _ in range(batch)]
        self._values: list[np.ndarray | None] = [None] * batch
        self._sources: list[Any] = [None] * batch  # bindings whose outputs are not copied yet
        self._generation: Iterator[Any] | None = None

    def _default_context(self, form: BoundedCache, wanted: Placement) -> int:
        """Return the context to take if none was asked for."""
        trained = models.trained_context(self.file)
        least = min(trained, memory.LEAST_CONTEXT)
        graph = models.model_graph(self.file, least, bounded=form)
        each = -(-memory.cache_bytes(graph) // least)
        return memory.fitting_context(trained, self.file.size_bytes, each, wanted.room_bytes)

    # ------------------------------------------------------------------------------ what it knows

    @property
    def model(self) -> CachedModel | StagedModel:
        """Return the model on its device, for measurements; no generation is under way then."""
        return self._require_model()

    @property
    def tokens(self) -> tuple[tuple[int, ...], ...]:
        """Return the tokens in the cache, of each sequence."""
        return tuple(map(tuple, self._tokens))

    @property
    def lengths(self) -> tuple[int, ...]:
        """Return the number of tokens in the cache, of each sequence."""
        return tuple(map(len, self._tokens))

    @property
    def logits(self) -> np.ndarray:
        """Return the logits after the last token of each sequence, float32 [batch, vocabulary].

        With `every_logit`, those after every token of the last call, [batch, tokens, vocabulary];
        rows after the end of a shorter sequence are 0. VklabError if there are none.
        """
        self._require_model()
        for number in range(self.batch):
            self._keep_logits(number)
        values = [value for value in self._values if value is not None]
        if len(values) < self.batch:
            raise VklabError("there are no logits before the first prompt, and after rewind")
        if not self._keeps_all:
            return np.stack(values)
        longest = max(map(len, values))
        made = np.zeros((self.batch, longest, self.vocabulary), np.float32)
        for row, value in zip(made, values, strict=True):
            row[: len(value)] = value
        return made

    def _keep_logits(self, number: int) -> None:
        """Copy a sequence's logits out of the binding that holds them, before it runs again."""
        binding, self._sources[number] = self._sources[number], None
        if binding is not None:
            self._values[number] = np.array(binding.outputs["logits"].numpy()[number, 0])

    # -------------------------------------------------------------------------------- appending

    def prompt(self, tokens: Sequence[int] | Sequence[Sequence[int]] | np.ndarray) -> None:
        """Append tokens to the cache, in chunks.

        After an interrupt, `lengths` tells how many tokens have been appended.

        Args:
            tokens: a list of tokens; with several sequences a list for each. They may differ in
                length, and some may be empty.

        Raises ModelError for tokens that are none of the model's, no token at all, or more than
        the cache has positions for.
        """
        model = self._require_model()
        left = self._checked(tokens)
        if self._keeps_all:
            self._values = [np.zeros((0, self.vocabulary), np.float32)] * self.batch
        while longest := max(map(len, left)):
            steps = min(cached_model.chunk_of(longest, model.pads), model.most_steps)
            parts = [each[:steps] for each in left]
            self._run(model, parts, steps)
            left = [each[steps:] for each in left]

    def step(self, tokens: int | Sequence[int] | np.ndarray) -> None:
        """Append one token to every sequence.

        Args:
            tokens: the token of each sequence; a number if there is one sequence.
        """
        given = np.asarray(tokens)
        if given.shape not in ((self.batch,), () if self.batch == 1 else (self.batch,)):
            raise ModelError(
                f"step takes one token for each of {self.batch} sequences, not an "
                f"array of shape {given.shape}"
            )
        self.prompt(
            [[token] for token in given.reshape(-1).tolist()]
            if self.batch > 1
            else given.reshape(-1).tolist()
        )

    def _checked(self, tokens: Any) -> list[list[int]]:
        """Return the tokens of each sequence; ModelError for what cannot be appended."""
        given = [*tokens] if hasattr(tokens, "__iter__") and not isinstance(tokens, str) else None
        if given is None:
            raise ModelError(f"a prompt is a list of tokens, not {tokens!r:.60}")
        is_flat = {*map(type, given)} == {int} or not any(hasattr(e, "__len__") for e in given)
        if is_flat and self.batch == 1:
            given = [given]
        if len(given) != self.batch or any(not hasattr(each, "__len__") for each in given):
            raise ModelError(
                f"the tokens of {self.batch} sequences are a list for each, not "
                f"{len(given)} entries"
            )
        made = [memory.checked_tokens(each, self.vocabulary) for each in given]
        if not any(made):
            raise ModelError("the prompt is empty: give at least one token")
        for length, more in zip(self.lengths, made, strict=True):
            if length + len(more) > self.context:
                raise ModelError(
                    f"{len(more)} tokens after {length} do not fit a context of {self.context}"
                )
        return made

    def _run(self, model: CachedModel | StagedModel, parts: list[list[int]], steps: int) -> None:
        """Append a chunk: some tokens of each sequence, at most `steps`."""
        rows = np.zeros((self.batch, steps), np.int32)
        for row, part in zip(rows, parts, strict=True):
            row[: len(part)] = part
        for number, part in enumerate(parts):
            if not part:
                self._keep_logits(number)
        counts = np.array([len(part) for part in parts], np.int32)
        binding = model.run(rows, np.array(self.lengths, np.int32), counts)
        for number, part in enumerate(parts):
            self._tokens[number] += part
            if part and not self._keeps_all:
                self._sources[number] = binding
            elif part:
                new = binding.outputs["logits"].numpy()[number, : len(part)]
                self._values[number] = np.concatenate([self._values[number], new])

    def prepare(self, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Record chunks of all sizes now, each of which its first prompt would wait for.

        Args:
            is_wanted: asked before each recording; False ends the preparation.
        """
        self._require_model().prepare(is_wanted)

    def rewind(self, length: int | Sequence[int] = 0) -> None:
        """Keep the first tokens only; a longer text with the same beginning continues from there.

        Args:
            length: the tokens to keep, of every sequence or of each.
        """
        self._require_model()
        wanted = [length] * self.batch if isinstance(length, int) else list(length)
        if len(wanted) != self.batch or any(
            not 0 <= keep <= have for keep, have in zip(wanted, self.lengths, strict=True)
        ):
            raise ModelError(f"rewind to {length} of {self.lengths} tokens")
        self._tokens = [each[:keep] for each, keep in zip(self._tokens, wanted, strict=True)]
        self._values, self._sources = [None] * self.batch, [None] * self.batch

    # ------------------------------------------------------------------------------- generating

    def generate(
        self,
        options: SamplingOptions | None = None,
        stop_tokens: Collection[int] = (),
        limit: int | None = None,
    ) -> Iterator[Any]:
        """Yield tokens that the device chooses, each the next run's input without the host.

        A stop token ends the loop and is not yielded. With several sequences, tuples are yielded,
        with None after a sequence's end. The last token that is yielded at the limit is not in the
        cache; `lengths` tells. Stop at any time: close the iterator, or give another prompt.

        Args:
            options: how tokens are chosen; default the most likely one.
            stop_tokens: tokens that end a sequence.
            limit: the most tokens; default what the context has room for.
        """
        model = self._require_model()
        if self._keeps_all:
            raise ModelError("a decoder with every_logit does not generate")
        if not all(self._tokens):
            raise ModelError("generate continues a sequence: give a prompt first")
        room = self.context - max(self.lengths) + 1
        if limit is not None and (not isinstance(limit, int) or limit < 0):
            raise ModelError(f"limit={limit!r} tokens; choose 0 or more")
        count = room if limit is None else min(limit, room)
        stops = frozenset(stop_tokens)
        chosen = options or SamplingOptions(temperature=0)
        self._generation = self._generated(model, chosen, stops, count)
        return self._generation

    def _generated(
        self, model: CachedModel | StagedModel, options: SamplingOptions, stops: frozenset[int],
        count: int,
    ) -> Iterator[Any]:  # fmt: skip
        loop = generating.Loop(model, self._tokens, options)
        is_open = [True] * self.batch
        before: list[int] = []
        for number in range(self.batch):
            self._keep_logits(number)
        try:
            for tokens in loop.tokens(count):
                for number in range(self.batch):
                    if is_open[number] and before:
                        self._tokens[number].append(before[number])
                    if is_open[number]:
                        self._sources[number] = loop.binding
                    if is_open[number] and tokens[number] in stops:
                        is_open[number] = False
                        self._keep_logits(number)
                before = tokens
                if not any(is_open):
                    return
                shown = tuple(
                    token if is_on else None for token, is_on in zip(tokens, is_open, strict=True)
                )
                yield shown if self.batch > 1 else shown[0]
        finally:
            loop.close()

    # ---------------------------------------------------------------------------------- closing

    def _require_model(self) -> CachedModel | StagedModel:
        """Return the model on its device, with no generation under way."""
        if self._model is None:
            raise VklabError("this decoder is closed; make another")
        generation, self._generation = self._generation, None
        if generation is not None:
            generation.close()  # type: ignore[attr-defined]
        return self._model

    def close(self) -> None:
        """Free the device's memory; a second call does nothing."""
        if self._model is not None:
            model = self._require_model()
            self._model = None
            self._sources = [None] * self.batch
            model.close()

    def __enter__(self) -> Decoder:
        self._require_model()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._model is None else f"{self.lengths} of {self.context} tokens"
        return f"Decoder of {self.file.name}: {state}"
