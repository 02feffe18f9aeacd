"""Choose the next token from logits: options, a random generator by counters, and the reference.

The kernels of `SampleToken` do the same steps on a device, and choose the same token: weights are
integers, so sums do not depend on their order.

Sources: llama.cpp, common/common.h (order of its samplers) and src/llama-sampling.cpp; Holtzman et
al., "The Curious Case of Neural Text Degeneration", 2020 (top-p); Keskar et al., "CTRL", 2019.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vklab.errors import ModelError

ALL = (1 << 32) - 1  # the word of top_p = 1
LOG2_E = np.float32(math.log2(math.e))
# 2^-x on [0, 1], from x^6 to x^0: fitted at Chebyshev nodes, relative error below 2e-7.
POWERS = np.array(
    [0.000114980845, -0.0012917893, 0.009597169, -0.055499278, 0.2402261, -0.6931472, 1.0],
    np.float32,
)
RANGES = {
    "temperature": (0.0, 1e6), "top_k": (0, 1 << 30), "top_p": (0.0, 1.0), "min_p": (0.0, 1.0),
    "repeat_penalty": (0.01, 100.0), "repeat_last": (0, 1024), "presence_penalty": (-100.0, 100.0),
    "frequency_penalty": (-100.0, 100.0), "seed": (0, (1 << 64) - 1),
}  # fmt: skip


@dataclass(frozen=True)
class SamplingOptions:
    """Options of a token's choice: penalties, top-k, top-p, min-p and temperature, in this order.

    Attributes:
        temperature: divisor of the logits that remain; 0 always chooses the largest logit.
        top_k: keep the k largest logits; 0 keeps all.
        top_p: keep the fewest tokens whose probabilities sum to this; 1 keeps all.
        min_p: keep tokens with at least this share of the largest probability; 0 keeps all.
        repeat_penalty: divisor of positive, factor of other logits of recent tokens.
        repeat_last: the number of recent tokens to which penalties apply.
        presence_penalty: what is subtracted from the logits of recent tokens.
        frequency_penalty: what is subtracted from them for each occurrence.
        seed: the key of the random generator; equal seeds give equal tokens.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    repeat_last: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, (least, most) in RANGES.items():
            value, kind = getattr(self, name), type(least)
            fits = isinstance(value, int if kind is int else (int, float))
            if isinstance(value, bool) or not fits or not least <= value <= most:
                what = "an integer" if kind is int else "a number"
                raise ModelError(f"{name}={value!r} must be {what} from {least} to {most}")

    @property
    def is_greedy(self) -> bool:
        """Return whether the largest logit is always chosen."""
        return self.temperature == 0 or self.top_k == 1

    @property
    def scale(self) -> np.float32:
        """Return the factor of logits in exponents of two."""
        return np.float32(min(math.log2(math.e) / self.temperature, 1e30))

    @property
    def floor(self) -> np.float32:
        """Return the distance of the least logit that min_p keeps from the largest."""
        return np.float32(math.log(self.min_p) if self.min_p else -math.inf)

    def words(self) -> np.ndarray:
        """Return the input `options` of SampleToken: uint32 [1, 12], floats by their bits."""
        numbers = [
            self.floor,
            self.scale if not self.is_greedy else 0,
            self.repeat_penalty,
            1 / self.repeat_penalty,
            self.presence_penalty,
            self.frequency_penalty,
        ]
        bits = np.array(numbers, np.float32).view(np.uint32)
        integers = [1 if self.is_greedy else self.top_k, _share(self.top_p)]
        rest = [self.repeat_last, self.seed & 0xFFFFFFFF, self.seed >> 32, 0]
        return np.array([*integers, *bits.tolist(), *rest], np.uint32)[None]


def _share(p: float) -> int:
    """Return a probability in steps of 2^-32; ALL for 1."""
    return ALL if p >= 1 else min(int(p * 2**32), ALL - 1)


def ring(tokens: Sequence[int] | np.ndarray, size: int = 64, dtype: type = np.int64) -> np.ndarray:
    """Return a sequence's last tokens as SampleToken reads them: token n at position n % size.

    Args:
        tokens: all tokens of the sequence so far, at least the last `size`.
        size: the most tokens that penalties can apply to.
        dtype: int64 or int32.
    """
    made: np.ndarray = np.zeros(size, dtype)
    given: np.ndarray = np.asarray(tokens, dtype)
    last = np.arange(max(0, len(given) - size), len(given))
    made[last % size] = given[last]
    return made


def random_word(seed: int, step: int, sequence: int = 0) -> int:
    """Return 32 random bits, the same for equal arguments: one round of Philox 4x32-10.

    Args:
        seed: the key, below 2^64.
        step: the number of tokens that the sequence has so far.
        sequence: the number of the sequence in its batch.

    Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011.
    """
    return philox((step & 0xFFFFFFFF, sequence, 0, 0), (seed & 0xFFFFFFFF, seed >> 32))[0]


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return four random words for a counter of four words and a key of two."""
    a, b, c, d = counter
    for i in range(10):
        left, right = 0xD2511F53 * a, 0xCD9E8D57 * c
        first, second = (key[0] + i * 0x9E3779B9, key[1] + i * 0xBB67AE85)
        a, b, c, d = (
            ((right >> 32) ^ b ^ first) & 0xFFFFFFFF,
            right & 0xFFFFFFFF,
            ((left >> 32) ^ d ^ second) & 0xFFFFFFFF,
            left & 0xFFFFFFFF,
        )
    return a, b, c, d


def _clean(logits: np.ndarray) -> np.ndarray:
    """Return logits without NaN, infinity and numbers so small that devices may drop them.

    NaN becomes -infinity, which is never chosen while there is another; infinity becomes the
    largest number.
    """
    values = np.asarray(logits, np.float32).reshape(-1)
    values = np.where(np.isnan(values), np.float32(-np.inf), values)
    values = np.minimum(values, np.finfo(np.float32).max)
    return np.where(abs(values) < np.finfo(np.float32).tiny, np.float32(0), values)


def _penalized(values: np.ndarray, recent: np.ndarray, options: SamplingOptions) -> np.ndarray:
    """Return clean logits after the penalties for recent tokens.

    Args:
        values: clean logits; not changed.
        recent: the tokens of the sequence so far, of which the last `repeat_last` count.
        options: the options.
    """
    last = np.asarray(recent, np.int64).reshape(-1)[-options.repeat_last :]
    last = last[(last >= 0) & (last < len(values))]
    if not options.repeat_last or not last.size:
        return values
    tokens, counts = np.unique(last, return_counts=True)
    x = values[tokens]
    factors = np.where(
        x > 0, np.float32(1 / options.repeat_penalty), np.float32(options.repeat_penalty)
    )
    each = counts.astype(np.float32) * np.float32(options.frequency_penalty)
    changed = values.copy()
    with np.errstate(over="ignore"):
        changed[tokens] = _clean(x * factors - (each + np.float32(options.presence_penalty)))
    return changed


def weights(below: np.ndarray, scale: np.float32) -> np.ndarray:
    """Return 2^31 * 2^(-below * scale) as integers, rounded down, 0 below 1.

    Args:
        below: how far logits are below the largest, float32, 0 or more.
        scale: the factor; log2(e) makes the weights proportional to Softmax.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        steps = below.astype(np.float32) * scale
    counts = steps < 32
    steps = np.where(counts, steps, np.float32(0))
    whole = np.floor(steps)
    rest, power = steps - whole, np.zeros(steps.shape, np.float32)
    for factor in POWERS:
        power = power * rest + factor  # two roundings, as in the kernel
    found = (power * np.float32(2**31)).astype(np.uint64) >> whole.astype(np.uint64)
    return np.where(counts, found, np.uint64(0))


def _prefix(amounts: np.ndarray, fraction: int) -> int:
    """Return how many amounts exceed a fraction, in steps of 2^-32, of the sum of all."""
    sums = np.cumsum(amounts)
    return int(np.searchsorted(sums, (int(sums[-1]) * fraction >> 32) + 1)) + 1


def sample(
    logits: np.ndarray, recent: Sequence[int] | np.ndarray, options: SamplingOptions, draw: int
) -> int:
    """Return the token that SampleToken chooses from the same logits.

    Equal logits are in the order of their tokens. Without a logit that is a number greater than
    -infinity, the token is 0.

    Args:
        logits: one for each token of the vocabulary.
        recent: the tokens of the sequence so far; penalties apply to the last `repeat_last`.
        options: the options.
        draw: 32 random bits, as from `random_word`.
    """
    values = _penalized(_clean(logits), np.asarray(recent), options)
    order = np.argsort(-values, kind="stable")
    if options.is_greedy or values[order[0]] == -np.inf:
        return int(order[0])
    order = order[: int(np.count_nonzero(values > -np.inf))]
    if options.top_k:
        order = order[: options.top_k]
    with np.errstate(over="ignore"):
        below = values[order[0]] - values
    if options.top_p < 1:
        order = order[: _prefix(weights(below[order], LOG2_E), _share(options.top_p))]
    order = order[values[order] >= values[order[0]] + options.floor]
    return int(order[_prefix(weights(below[order], options.scale), draw) - 1])
