"""Speed of language models: random weights of real shapes, llama.cpp's llama-bench in turn.

Rates are of whole runs on the host's clock, each the median of some; the device's time is of one
token on its own clock. Every row of one report comes from one process on one machine.
Visited by lab 19. Source: llama.cpp, tools/llama-bench.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from vklab.errors import ModelError
from vklab.llm import gguf, synthetic
from vklab.llm.decoder import Decoder
from vklab.llm.generating import Loop
from vklab.llm.gguf import GgufFile
from vklab.llm.sampling import SamplingOptions
from vklab.runtime import open_devices
from vklab.runtime.observe import calibration, timestamps

__all__ = ["Lengths", "Row", "llama_bench", "measure"]

# Clocks of an idle GPU are slow: it multiplies matrices for some seconds before anything is timed,
# and does what is timed for a moment.
WARM_S, SETTLE_S, REPEATS, SLOW_S = 2.5, 0.4, 5, 5.0
LLAMA_SECONDS = 900
# Layers that llama-bench puts on the device: all of any model.
ALL_LAYERS = "999"


@dataclass(frozen=True)
class Lengths:
    """Tokens of a measurement: of the prompt, generated, and in the cache before them."""

    prompt: int = 512
    generate: int = 128
    depth: int = 0

    def __post_init__(self) -> None:
        if min(self.prompt, self.generate) < 1 or self.depth < 0:
            raise ModelError(f"{self} cannot be measured: choose 1 or more tokens, a depth of 0 "
                             "or more")  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One model on one runner; None for what a runner does not report.

    Attributes:
        kind: the formats of its matrices, one of `synthetic.TYPES`.
        device_us: the device's time for one token; `host_us` is the rest of a token's time.
        bytes_per_token: bytes of weights that one token reads.
        roof_share: the time to read these bytes as fast as the device streams, as a share of a
            token's time.
        error: the reason why there are no numbers.
    """

    model: str
    kind: str
    runner: str
    depth: int
    prompt_per_s: float | None = None
    decode_per_s: float | None = None
    device_us: float | None = None
    host_us: float | None = None
    bytes_per_token: int | None = None
    roof_share: float | None = None
    dispatches: int | None = None
    error: str = ""

    def summary(self) -> dict[str, Any]:
        """Return the row ready for JSON."""
        return asdict(self)


def measure(
    shapes: Sequence[str],
    kinds: Sequence[str],
    lengths: Lengths,
    device: int | str | None = None,
    llama: str | None = None,
) -> Iterator[Row]:
    """Yield the rows of every shape and type: vklab's, then llama.cpp's of the same file.

    Args:
        shapes: keys of `synthetic.SHAPES`.
        kinds: among `synthetic.TYPES`.
        lengths: the tokens to run.
        device: index or part of a name; None for the fastest device.
        llama: the program llama-bench; None to leave llama.cpp out.
    """
    bytes_per_ns = calibration.measure(device, keep=False).bytes_per_ns
    for shape in shapes:
        for kind in kinds:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"{shape}-{kind}.gguf"
                synthetic.write(path, shape, kind)
                yield _vklab(gguf.read_gguf(path), (shape, kind), lengths, device, bytes_per_ns)
                if llama:
                    info = open_devices.select(device)
                    yield _llama(llama, path, (shape, kind), lengths, info.is_cpu)


def _vklab(
    file: GgufFile, name: tuple[str, str], lengths: Lengths, device: int | str | None,
    bytes_per_ns: float,
) -> Row:  # fmt: skip
    """Return the row of a model run by the decoder.

    Args:
        file: the model.
        name: its shape and type.
        lengths: the tokens to run.
        device: as in `measure`.
        bytes_per_ns: the speed at which the device streams.
    """
    more = lengths.depth + max(lengths.prompt, lengths.generate + 1)
    size = sum(tensor.size_bytes for key, tensor in file.tensors.items() if "token_embd" not in key)
    rng = np.random.default_rng(0)
    with Decoder(file, device, context=more) as decoder:

        def tokens(count: int) -> list[int]:
            return [int(token) for token in rng.integers(0, decoder.vocabulary, count)]

        def begin() -> None:
            decoder.rewind(lengths.depth)
            decoder.prompt(tokens(1))

        def generate() -> None:
            for _ in decoder.generate(limit=lengths.generate):
                pass

        begun = time.perf_counter()
        while time.perf_counter() - begun < WARM_S * (not open_devices.select(device).is_cpu):
            decoder.rewind()
            decoder.prompt(tokens(more - 1))
        decoder.rewind()
        if lengths.depth:
            decoder.prompt(tokens(lengths.depth))
        prompt_s = _seconds(lambda: decoder.rewind(lengths.depth),
                            lambda: decoder.prompt(tokens(lengths.prompt)))  # fmt: skip
        decode_s = _seconds(begin, generate)
        begin()
        device_ns, dispatches = _step(decoder)
    token_us = decode_s / lengths.generate * 1e6
    return Row(
        *name, "vklab", lengths.depth, lengths.prompt / prompt_s, lengths.generate / decode_s,
        device_ns / 1e3, token_us - device_ns / 1e3, size, size / bytes_per_ns / 1e3 / token_us,
        dispatches,
    )  # fmt: skip


def _seconds(prepare: Callable[[], None], run: Callable[[], None]) -> float:
    """Return the median time of some runs, after the clocks have settled.

    Args:
        prepare: called before each run, and not timed.
        run: what is timed.
    """
    begun = time.perf_counter()
    samples: list[float] = []
    settled = 0
    while len(samples) - settled < REPEATS and sum(samples[settled:]) < SLOW_S:
        prepare()
        start = time.perf_counter()
        run()
        samples.append(time.perf_counter() - start)
        if start - begun < SETTLE_S:
            settled = min(len(samples), 1 + settled)
    return median(samples[settled:] or samples)


def _step(decoder: Decoder) -> tuple[float, int]:
    """Return the device's time of one more token, in ns, and its dispatches; none is appended."""
    loop = Loop(decoder.model, decoder.tokens, SamplingOptions(temperature=0))
    program, samples = loop.binding.program, list[float]()
    with timestamps.timed(program, whole=True) as work:
        begun = time.perf_counter()
        while len(samples) < REPEATS or time.perf_counter() - begun < SETTLE_S:
            program.submit(work.submission)
            program.wait()
            samples.append(work.sample().step_ns[0])
    return median(samples[len(samples) // 2 :]), len(program.chunk.dispatches)


def llama_bench(given: str | None) -> str | None:
    """Return the program llama-bench: the given one, or that on PATH; None if there is none.

    Raises ModelError for a path that is no program.
    """
    found = shutil.which(given or "llama-bench")
    if given and not found:
        raise ModelError(f"{given} is no program; give the path of llama-bench")
    return found


def _llama(
    program: str, path: Path, name: tuple[str, str], lengths: Lengths, on_cpu: bool
) -> Row:
    """Return the row of a model run by llama.cpp.

    Args:
        program: llama-bench.
        path: the model's file.
        name: its shape and type.
        lengths: the tokens to run.
        on_cpu: whether the device is a CPU, which llama.cpp takes only if it is named.
    """
    command = [program, "-m", str(path), "-p", str(lengths.prompt), "-n", str(lengths.generate),
               "-d", str(lengths.depth), "-ngl", ALL_LAYERS, "-fa", "1", "-r", str(REPEATS),
               "-o", "json"]  # fmt: skip
    variables = {**os.environ, **({"GGML_VK_VISIBLE_DEVICES": "0"} if on_cpu else {})}
    try:
        done = subprocess.run(command, env=variables, capture_output=True, text=True,
                              timeout=LLAMA_SECONDS, check=True)  # fmt: skip
        results = json.loads(done.stdout)
        rates = {"prompt" if each["n_prompt"] else "decode": float(each["avg_ts"])
                 for each in results}  # fmt: skip
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        return Row(*name, "llama.cpp", lengths.depth, error=said[-1] if said else repr(error))
    return Row(*name, "llama.cpp", lengths.depth, rates.get("prompt"), rates.get("decode"))
