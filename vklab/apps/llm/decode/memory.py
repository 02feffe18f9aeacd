"""Bytes that a model with a bounded cache takes on a device, known before weights are loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vklab.base import draw
from vklab.errors import ModelError, PlanError
from vklab.graph.graph import Graph
from vklab.types import DeviceInfo

# The context that is taken by default, unless the model is trained for less: a cache for all that
# recent models are trained for would fill most devices.
DEFAULT_CONTEXT, LEAST_CONTEXT = 4096, 256


@dataclass(frozen=True)
class Sizes:
    """Bytes of weights, cache and scratch memory, and what the device has free for them.

    `device` is the device's label, `layers` what it has of a model on several; "" if not known.
    """

    context: int
    weights_bytes: int
    cache_bytes: int
    scratch_bytes: int
    free_bytes: int
    device: str = ""
    layers: str = ""

    @property
    def total_bytes(self) -> int:
        """Return the bytes that the model takes."""
        return self.weights_bytes + self.cache_bytes + self.scratch_bytes

    @property
    def parts(self) -> tuple[Sizes, ...]:
        """Return the sizes on each device."""
        return (self,)

    def __str__(self) -> str:
        text = draw.bytes_text
        return (
            f"weights {text(self.weights_bytes)}, cache of {self.context} positions "
            f"{text(self.cache_bytes)}, scratch {text(self.scratch_bytes)}; "
            f"{text(self.free_bytes)} free"
        )


def cache_names(graph: Graph) -> list[str]:
    """Return the inputs of a graph that are caches, `past_key.0` and so on."""
    return [info.name for info in graph.inputs if info.name.startswith("past_")]


def cache_bytes(graph: Graph) -> int:
    """Return the bytes of all caches of a graph."""
    names = set(cache_names(graph))
    return sum(info.size_bytes for info in graph.inputs if info.name in names)


def fitting_context(
    trained: int, weights_bytes: int, bytes_per_position: int, free_bytes: int
) -> int:
    """Return the context that is taken by default: a cache of it fits beside the weights.

    Args:
        trained: the positions that the model is trained for.
        weights_bytes: the bytes of the weights.
        bytes_per_position: the bytes of a cache for each position.
        free_bytes: what the device has free.
    """
    context = min(trained, DEFAULT_CONTEXT)
    left = free_bytes - weights_bytes
    while context > LEAST_CONTEXT and 2 * context * bytes_per_position > left:
        context //= 2
    return context


def require_bindable(graph: Graph, info: DeviceInfo) -> None:
    """Raise PlanError, with the numbers, for a cache that no kernel of a device can read."""
    caches = set(cache_names(graph))
    largest = max((i for i in graph.inputs if i.name in caches), key=lambda i: i.size_bytes)
    most = info.limit("maxStorageBufferRange")
    if largest.size_bytes > most:
        raise PlanError(
            f"the cache {largest} takes {largest.size_bytes} bytes; a kernel on "
            f"{info.label} reads {most} at most: choose a smaller context or batch"
        )


def require_room(graph: Graph, sizes: Sizes, info: DeviceInfo) -> None:
    """Raise PlanError, with the numbers, for a model that does not fit a device.

    Args:
        graph: the model's graph with a bounded cache.
        sizes: the bytes that the model takes.
        info: the device.
    """
    if sizes.total_bytes > sizes.free_bytes:
        raise PlanError(
            f"{graph.name} does not fit {info.label}: {sizes}. Choose a smaller "
            "context or batch, weights with fewer bits, or a second device for some "
            "layers"
        )


def checked_tokens(tokens: Sequence[int], vocabulary: int) -> list[int]:
    """Return tokens as a list of numbers; ModelError for one that is not in the vocabulary.

    Args:
        tokens: the tokens of one sequence.
        vocabulary: the number of tokens of the model.
    """
    if {*map(type, tokens)} == {int} and min(tokens) >= 0 and max(tokens) < vocabulary:
        return list(tokens)
    made = []
    for token in tokens:
        try:
            number = token.__index__() if not isinstance(token, bool) else -1
        except AttributeError:
            number = -1
        if not 0 <= number < vocabulary:
            raise ModelError(
                f"token {token!r:.40} is none of the {vocabulary} of this model: 0 "
                f"to {vocabulary - 1}"
            )
        made.append(number)
    return made
