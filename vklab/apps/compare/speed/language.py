"""Speed of language models: files or random weights of real shapes, llama.cpp in turn beside them.

Every rate is the median of the faster half of its samples, of either runner: what a GPU does while
its clocks are still rising, or another process holds a core, is left out. The device's time is of
one token on its own clock.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from vklab.apps.compare.speed import clocks, language_peer, language_runs, loading_memory, roofs
from vklab.apps.compare.speed.language_peer import Peer, Rates
from vklab.apps.compare.speed.language_runs import Runs
from vklab.apps.llm.decode.decoder import Decoder
from vklab.apps.llm.weights import gguf, synthetic
from vklab.apps.llm.weights.gguf import GgufFile
from vklab.errors import ModelError, VklabError
from vklab.runtime import open_devices

ROUNDS = 2
PEER_REPEATS, CPU_PEER_REPEATS = 3, 1


@dataclass(frozen=True)
class Lengths:
    """Tokens of a measurement: of the prompt, generated, and in the cache before them.

    `cache` is the format of vklab's cache.
    """

    prompt: int = 512
    generate: int = 128
    depths: tuple[int, ...] = (0,)
    cache: str = "F16"

    def __post_init__(self) -> None:
        if min(self.prompt, self.generate) < 1 or min(self.depths, default=-1) < 0:
            raise ModelError(
                f"{self} cannot be measured: choose 1 or more tokens, depths of 0 or more"
            )

    @property
    def context(self) -> int:
        """Return the positions that the cache needs."""
        return max(self.depths) + max(self.prompt, self.generate + 1)


@dataclass(frozen=True)
class Machine:
    """Facts of a device: its clocks in MHz, once they have settled, and its roof of bytes.

    A CPU's driver has no roof of bytes: there, arithmetic limits products.
    """

    settled: dict[str, int | None]
    bytes_per_s: float | None


@dataclass(frozen=True)
class Row:
    """One model on one runner at one depth; None for what a runner does not report.

    Attributes:
        kind: the formats of its matrices.
        device_us: the device's time for one token.
        host_us: the rest of a token's time.
        samplers: both with each of `language_runs.SAMPLERS`, at the first depth.
        bytes_per_token: bytes of weights that one token reads.
        roof_share: the time to read these bytes as fast as the device streams, as a share of a
            token's time.
        load_s: the first load; `first_token_s` from there to the first token after a prompt.
        reload_s: a load when the device has all kernels; `load_anonymous_bytes` and
            `load_staging_bytes` are the host memory that it takes.
        products_us: the device's time for the products of the prompt's layers alone, as
            `language_products` defines it; `products_share` is that over the prompt's time.
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
    samplers: dict[str, dict[str, float]] | None = None
    bytes_per_token: int | None = None
    roof_share: float | None = None
    dispatches: int | None = None
    load_s: float | None = None
    first_token_s: float | None = None
    reload_s: float | None = None
    load_anonymous_bytes: int | None = None
    load_staging_bytes: int | None = None
    products_us: float | None = None
    products_share: float | None = None
    error: str = ""

    def summary(self) -> dict[str, Any]:
        """Return the row ready for JSON."""
        return asdict(self)


def machine(device: int | str | None) -> Machine:
    """Settle a device's clocks, and measure the roof of its memory there."""
    info = open_devices.select(device)
    if info.is_cpu:
        return Machine({}, None)
    with roofs.heater(info.index) as warm:
        return Machine(clocks.settled(clocks.Clocks(info), warm), roofs.bytes_per_s(info.index))


def models(
    files: Sequence[str | Path], shapes: Sequence[str], kinds: Sequence[str]
) -> Iterator[tuple[str, str, Path]]:
    """Yield name, formats and path of every model; files of random weights exist for their turn.

    Args:
        files: GGUF files.
        shapes: keys of `synthetic.SHAPES`.
        kinds: among `synthetic.TYPES`.
    """
    for path in map(Path, files):
        file = gguf.read_gguf(path)
        known = {tensor.block_type for tensor in file.tensors.values() if len(tensor.shape) == 2}
        yield path.stem, " ".join(sorted(known)), path
    for shape in shapes:
        for kind in kinds:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"{shape}-{kind}.gguf"
                synthetic.write(path, shape, kind)
                yield shape, kind, path


def measure(
    model: tuple[str, str, Path], lengths: Lengths, device: int | str | None, known: Machine,
    llama: str | None = None, rounds: int = ROUNDS,
) -> Iterator[list[Row]]:  # fmt: skip
    """Yield the rows of one model after each round: vklab's, then llama.cpp's of the same file.

    A model that cannot run has one row with the reason.

    Args:
        model: its name, formats and path.
        lengths: the tokens to run.
        device: index or part of a name; None for the fastest device.
        known: the device's roof.
        llama: the program llama-bench; None to leave llama.cpp out.
        rounds: the turns of each runner.
    """
    try:
        yield from _measured(model, lengths, device, known, llama, rounds)
    except VklabError as error:
        yield [Row(model[0], model[1], "vklab", lengths.depths[0], error=str(error))]


def _measured(
    model: tuple[str, str, Path], lengths: Lengths, device: int | str | None, known: Machine,
    llama: str | None, rounds: int,
) -> Iterator[list[Row]]:  # fmt: skip
    name, kind, path = model
    file = gguf.read_gguf(path)
    opened = open_devices.open_device(device)
    on_cpu = opened.info.is_cpu
    repeats = CPU_PEER_REPEATS if on_cpu else PEER_REPEATS
    others = [_Other(peer) for peer in language_peer.peers(llama, on_cpu, repeats)]
    facts = language_runs.first_use(file, device, lengths.context, lengths.prompt, lengths.cache)
    begun = time.perf_counter()
    with loading_memory.watched(opened) as memory:
        decoder = Decoder(file, device, lengths.context, cache=lengths.cache)
    facts |= {
        "reload_s": time.perf_counter() - begun,
        "load_anonymous_bytes": memory.anonymous,
        "load_staging_bytes": memory.staging,
    }
    with decoder:
        runs = Runs(decoder, lengths.prompt, lengths.generate, lengths.depths, not on_cpu)
        steps: dict[int, tuple[float, int]] = {}
        for _ in range(rounds):
            runs.turn()
            for other in others:
                other.turn(path, lengths)
            steps = steps or {depth: runs.step(depth) for depth in lengths.depths}
            facts["samplers"] = facts.get("samplers") or runs.samplers()
            facts["products_us"] = facts.get("products_us") or language_runs.alone_us(
                file, device, lengths.prompt
            )
            ours = [
                _row(Row(name, kind, "vklab", depth), runs, file, known, steps[depth])
                for depth in lengths.depths
            ]
            share = _share(facts["products_us"], lengths.prompt, ours[0].prompt_per_s)
            ours[0] = replace(ours[0], **facts, products_share=share)
            yield ours + [
                other.row(name, kind, depth) for other in others for depth in lengths.depths
            ]


class _Other:
    """Rates of llama.cpp on one backend so far."""

    def __init__(self, peer: Peer) -> None:
        self.peer, self.error = peer, ""
        self.rates: Rates = {}

    def turn(self, path: Path, lengths: Lengths) -> None:
        """Add the samples of one turn; a failure is kept for the rows."""
        try:
            more = self.peer.turn(path, lengths.prompt, lengths.generate, lengths.depths)
            for key, samples in more.items():
                self.rates.setdefault(key, []).extend(samples)
        except ModelError as error:
            self.error = str(error)

    def row(self, name: str, kind: str, depth: int) -> Row:
        """Return the row of a depth.

        Args:
            name: the model.
            kind: its formats.
            depth: the tokens in the cache.
        """
        prompt, decode = (_rate(self.rates.get((what, depth))) for what in ("prompt", "decode"))
        return Row(name, kind, self.peer.name, depth, prompt, decode, error=self.error)


def _rate(samples: Sequence[float] | None) -> float | None:
    """Return the median of the faster half of some rates."""
    return median(sorted(samples)[len(samples) // 2 :]) if samples else None


def _share(products_us: float, prompt: int, prompt_per_s: float | None) -> float | None:
    """Return the products' share of a prompt's time, or None without the prompt's rate.

    Args:
        products_us: the device's time for the products.
        prompt: the tokens of the prompt.
        prompt_per_s: its tokens in a second.
    """
    return products_us * 1e-6 * prompt_per_s / prompt if prompt_per_s else None


def _row(row: Row, runs: Runs, file: GgufFile, known: Machine, step: tuple[float, int]) -> Row:
    """Return vklab's row with its numbers.

    Args:
        row: the row, with its depth.
        runs: the samples.
        file: the model.
        known: the device's roof.
        step: the device's time of a token, in ns, and its dispatches.
    """
    is_tied = "output.weight" not in file.tensors  # then each token reads the embedding, too
    size = sum(
        tensor.size_bytes
        for name, tensor in file.tensors.items()
        if is_tied or "token_embd" not in name
    )
    decode = _rate(runs.rates["decode", row.depth]) or 0.0
    device_ns, dispatches = step
    return replace(
        row,
        prompt_per_s=_rate(runs.rates["prompt", row.depth]),
        decode_per_s=decode,
        device_us=device_ns / 1e3,
        host_us=1e6 / decode - device_ns / 1e3,
        bytes_per_token=size,
        roof_share=size / known.bytes_per_s * decode if known.bytes_per_s else None,
        dispatches=dispatches,
    )
