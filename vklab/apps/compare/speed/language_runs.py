"""vklab's turns on a language model: prompts, generated tokens, times of loading and first use."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from vklab.apps.compare.speed import roofs
from vklab.apps.compare.speed.language_peer import Rates
from vklab.apps.llm.decode.decoder import Decoder
from vklab.apps.llm.decode.generating import Loop
from vklab.apps.llm.sampling import SamplingOptions
from vklab.apps.llm.weights.gguf import GgufFile
from vklab.apps.llm.weights.stored import StoredTensor
from vklab.graph.graph import Graph, Node
from vklab.runtime import loading, open_devices
from vklab.runtime.observe import timestamps
from vklab.types import TensorInfo

LAYER = "blk."  # names of a layer's tensors begin with it
# A GPU works before each series, so that its clocks are up; a series is short, so that they stay.
WARM_S, SERIES, RUNS = 0.1, 4, 8
# Ways to choose a token, by what they ask of the device. The first one is that of the rates.
SAMPLERS = {
    "greedy": SamplingOptions(temperature=0),
    "usual": SamplingOptions(),
    "penalties": SamplingOptions(repeat_penalty=1.1, presence_penalty=0.1, frequency_penalty=0.1),
    "top_k 1000": SamplingOptions(top_k=1000, top_p=1, min_p=0),
    "top_p alone": SamplingOptions(top_k=0, min_p=0),
}
# Clocks of an idle GPU are slow, and it is idle while the host records: runs of this time together
# come before those that are timed.
SETTLE_S = 0.4
# A turn has this many repetitions, and fewer where one takes seconds.
REPEATS, SLOW_S = 3, 4.0
GREEDY = "greedy"


def layer_matrices(file: GgufFile) -> list[tuple[StoredTensor, int]]:
    """Return one matrix of each shape and format in the layers of a model, and their number.

    Neither the embedding nor the matrix of the logits is among them: a prompt multiplies no other
    row by these than the last.
    """
    found = {
        name: tensor
        for name, tensor in file.tensors.items()
        if name.startswith(LAYER) and len(tensor.shape) == 2
    }
    counts = Counter((tensor.block_type, tensor.shape) for tensor in found.values())
    first = {(tensor.block_type, tensor.shape): tensor for tensor in reversed(found.values())}
    return [(first[kind], count) for kind, count in counts.items()]


def product_graph(tensor: StoredTensor, rows: int, dtype: str) -> Graph:
    """Return a graph of one node: rows x times the transpose of a matrix.

    Args:
        tensor: the matrix, as its file stores it.
        rows: the rows of x.
        dtype: the dtype of x and of the result.
    """
    weight = TensorInfo(tensor.name, "uint32", tensor.words.shape, tensor.words)
    x = TensorInfo("x", dtype, (rows, tensor.shape[1]))
    node = Node(
        "product",
        "MatMulBlocks",
        ("x", tensor.name),
        ("y",),
        {"block_type": tensor.block_type, "N": tensor.shape[0], "K": tensor.shape[1]},
        "vklab",
        1,
    )
    return Graph(
        str(tensor),
        24,
        (node,),
        (x,),
        ("y",),
        {tensor.name: weight},
        {info.name: info for info in (x, weight)},
        {"": 24, "vklab": 1},
    )


def alone_us(file: GgufFile, device: int | str | None, rows: int) -> float:
    """Return the device's time for all products of the layers with the rows of a prompt, in us.

    One matrix of each shape and format is multiplied in a session of its own by rows that are
    halves already (float32 on a CPU's driver). What counts are its dispatches: the product, and
    before it the one that dequantises the weights; each runs alone, from its start to its end.
    The sum counts a matrix as often as the model has one like it. Rounding rows, norms,
    attention, gates and the logits are left out.

    Args:
        file: the model.
        device: index or part of a name.
        rows: tokens of the prompt.
    """
    info = open_devices.select(device)
    with roofs.heater(info.index) as warm:
        return sum(
            count * _product_us(tensor, info.index, rows, info.is_cpu, warm)
            for tensor, count in layer_matrices(file)
        )


def _product_us(
    tensor: StoredTensor, device: int, rows: int, on_cpu: bool, warm: Callable[[float], object]
) -> float:
    """Return the least of the medians of some series.

    Args:
        tensor: the matrix.
        device: the device's index.
        rows: the rows that it is multiplied by.
        on_cpu: whether the device is a CPU's driver.
        warm: occupies the device before each series.
    """
    dtype = "float32" if on_cpu else "float16"
    x = np.random.default_rng(0).standard_normal((rows, tensor.shape[1])).astype(dtype)
    medians = []
    graph = product_graph(tensor, rows, dtype)
    with loading.load(graph, device) as session, session.bind({"x": x}) as binding:
        binding.run()
        program = binding.program
        counted = [step in program.chunk.dispatches for step in program.chunk.steps]
        with timestamps.timed(program) as work:
            for _ in range(1 if on_cpu else SERIES):
                if not on_cpu:
                    warm(WARM_S)
                samples = []
                for _ in range(1 if on_cpu else RUNS):
                    program.submit(work.submission)
                    program.wait()
                    spans = zip(work.sample().step_ns, counted, strict=True)
                    samples.append(sum(ns for ns, counts in spans if counts) / 1e3)
                medians.append(median(samples))
    return min(medians)


def first_use(
    file: GgufFile, device: int | str | None, context: int, prompt: int, cache: str
) -> dict[str, Any]:
    """Load a model and ask for a token; return the times of both.

    The first load compiles the kernels that the cache folder lacks.

    Args:
        file: the model.
        device: index or part of a name.
        context: positions of the cache.
        prompt: tokens of the first prompt.
        cache: format of the cache.
    """
    tokens = [int(i) for i in np.random.default_rng(1).integers(0, 256, prompt)]
    begun = time.perf_counter()
    with Decoder(file, device, context, cache=cache) as decoder:
        loaded = time.perf_counter()
        decoder.prompt(tokens)
        next(decoder.generate(limit=1))
        return {"load_s": loaded - begun, "first_token_s": time.perf_counter() - loaded}


class Runs:
    """A loaded model, and the samples of its turns so far.

    Attributes:
        rates: tokens a second of prompts and of generated tokens, by depth.

    Args:
        decoder: the model on a device.
        prompt: tokens of a prompt.
        generate: tokens to generate.
        depths: tokens in the cache before them.
        settles: whether the device has clocks that rise with work.
    """

    def __init__(
        self, decoder: Decoder, prompt: int, generate: int, depths: Sequence[int], settles: bool
    ) -> None:
        self._decoder, self._depths = decoder, depths
        self._prompt, self._generate = prompt, generate
        self.rates: Rates = {}
        self._random = np.random.default_rng(0)
        self._settles = settles
        self._recorded: set[str] = set()

    def _tokens(self, count: int) -> list[int]:
        return [int(token) for token in self._random.integers(0, self._decoder.vocabulary, count)]

    def _begin(self, depth: int) -> None:
        """Keep `depth` tokens of the cache, or fill it with so many."""
        if self._decoder.lengths[0] < depth:
            self._decoder.rewind(0)
            self._decoder.prompt(self._tokens(depth))
        self._decoder.rewind(depth)

    def turn(self) -> None:
        """Measure prompts and generated tokens at each depth."""
        for depth in self._depths:
            self._begin(depth)
            self._prompts(self.rates.setdefault(("prompt", depth), []), depth)
            self._generated(self.rates.setdefault(("decode", depth), []), depth, GREEDY)

    def samplers(self) -> dict[str, dict[str, float]]:
        """Return for each sampler the time of a token, in us: the device's, and the host's rest."""
        found, depth = {}, self._depths[0]
        for name in SAMPLERS:
            samples = list[float]()
            self._generated(samples, depth, name)
            device_us = self.step(depth, name)[0] / 1e3
            found[name] = {"device_us": device_us, "host_us": 1e6 / max(samples) - device_us}
        return found

    def _prompts(self, samples: list[float], depth: int) -> None:
        """Add the rates of prompts.

        Args:
            samples: receives tokens a second.
            depth: tokens in the cache before them.
        """
        tokens = self._tokens(self._prompt)
        self._sample(
            samples,
            self._prompt,
            "prompt",
            lambda: self._begin(depth),
            lambda: self._decoder.prompt(tokens),
        )

    def _generated(self, samples: list[float], depth: int, sampler: str) -> None:
        """Add the rates of tokens that a sampler chooses.

        Args:
            samples: receives tokens a second.
            depth: tokens in the cache before them.
            sampler: a key of SAMPLERS.
        """

        def begin() -> None:
            self._begin(depth)
            self._decoder.prompt(self._tokens(1))

        def run() -> None:
            for _ in self._decoder.generate(SAMPLERS[sampler], limit=self._generate):
                pass

        self._sample(samples, self._generate, sampler, begin, run)

    def _sample(
        self, samples: list[float], count: int, kind: str, begin: Callable[[], None],
        run: Callable[[], None],
    ) -> None:  # fmt: skip
        """Add the rates of some runs, after the clocks have settled.

        The first run of a kind is not timed, nor part of the time to settle: it waits for the host,
        which records what the others submit.

        Args:
            samples: receives tokens a second.
            count: tokens of a run.
            kind: runs of one kind submit the same recordings.
            begin: called before each run.
            run: what is timed.
        """
        settled, taken = 0.0, list[float]()
        while len(taken) < REPEATS and sum(taken) < SLOW_S:
            begin()
            start = time.perf_counter()
            run()
            seconds = time.perf_counter() - start
            if kind not in self._recorded:
                self._recorded.add(kind)
            elif self._settles and settled < SETTLE_S:
                settled += seconds
            else:
                taken.append(seconds)
        samples += [count / seconds for seconds in taken]

    def step(self, depth: int, sampler: str = GREEDY) -> tuple[float, int]:
        """Return the device's time of one more token, in ns, and its dispatches.

        Args:
            depth: tokens in the cache.
            sampler: a key of SAMPLERS.
        """
        self._begin(depth)
        self._decoder.prompt(self._tokens(1))
        loop = Loop(self._decoder.model, self._decoder.tokens, SAMPLERS[sampler])
        program: Any = loop.binding.program
        samples = list[float]()
        with timestamps.timed(program, whole=True) as work:
            begun = time.perf_counter()
            while (
                len(samples) < REPEATS or self._settles and time.perf_counter() < begun + (SETTLE_S)
            ):
                program.submit(work.submission)
                program.wait()
                samples.append(work.sample().step_ns[0])
        return median(samples[len(samples) // 2 :]), len(program.chunk.dispatches)
