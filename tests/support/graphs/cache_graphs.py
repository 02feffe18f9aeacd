"""Graphs of one attention over a cache, caches as words, and the attention in float64."""

from __future__ import annotations

import numpy as np

from vklab.graph.graph import Graph, Node
from vklab.ops.cache import row_words
from vklab.types import TensorInfo


class Case:
    """Sizes of one attention over a cache; `turned` elements of a head are rotated."""

    def __init__(
        self, lengths, counts, heads=4, kv_heads=2, size=16, context=64, kind="F32", turned=0,
        neighbours=False,
    ):  # fmt: skip
        self.lengths, self.counts, self.kind = lengths, counts, kind
        self.heads, self.kv_heads, self.size, self.context = heads, kv_heads, size, context
        self.turned, self.neighbours = turned, neighbours
        self.batch, self.steps = len(lengths), max(counts)
        rng = np.random.default_rng([size, context, *lengths])
        make = rng.standard_normal
        self.old = make((2, self.batch, kv_heads, context, size)).astype(np.float32)
        self.q, self.k, self.v = (
            make((self.batch, self.steps, count, size)).astype(np.float32)
            for count in (heads, kv_heads, kv_heads)
        )
        self.angles = make((context, turned // 2))

    def graph(self, is_joined=False, is_counted=False):
        """Return a graph that writes keys and values and attends; outputs y, key, value.

        If `is_joined`, one node does both; if `is_counted`, its last workgroups combine parts.
        """
        shape = (self.batch, self.kv_heads, self.context, row_words(self.size, self.kind))
        inputs = (
            *(
                TensorInfo(name, "float32", (*array.shape[:2], array[0, 0].size))
                for name, array in zip("qkv", (self.q, self.k, self.v), strict=True)
            ),
            *(TensorInfo(name, "uint32", shape) for name in ("past_key", "past_value")),
            *(TensorInfo(name, "int32", (self.batch,)) for name in ("lengths", "counts")),
        )
        tables = {"cos": np.cos(self.angles), "sin": np.sin(self.angles)} if self.turned else {}
        constants = {
            name: TensorInfo(name, "float32", table.shape, table.astype(np.float32))
            for name, table in tables.items()
        }
        turn = {"turned": self.turned, "interleaved": int(self.neighbours)}
        counts = ("lengths", "counts")
        nodes = (
            Node(
                "key",
                "CacheUpdate",
                ("past_key", "k", *counts, *tables),
                ("key",),
                {"size": self.size, **turn},
                "vklab",
                1,
            ),
            Node(
                "value",
                "CacheUpdate",
                ("past_value", "v", *counts),
                ("value",),
                {"size": self.size},
                "vklab",
                1,
            ),
            Node(
                "y",
                "CacheAttention",
                ("q", "key", "value", *counts, *tables),
                ("y",),
                {"num_heads": self.heads, **turn},
                "vklab",
                1,
            ),
        )
        outputs = ("y", "key", "value")
        if is_joined:
            given = ("q", "past_key", "past_value", *counts, *(tables or ("", "")), "k", "v")
            made = ("y", "key", "value")
            before = ()
            if is_counted:
                before = (Node("zeros", "CacheCounters", ("lengths",), ("zeros",), {}, "vklab", 1),)
                given, made = (*given, "zeros"), (*made, "counters")
            nodes = (
                *before,
                Node(
                    "y",
                    "CacheAttention",
                    given,
                    made,
                    {"num_heads": self.heads, **turn},
                    "vklab",
                    1,
                ),
            )
            outputs = made
        infos = {info.name: info for info in (*inputs, *constants.values())}
        return Graph("cache", 24, nodes, inputs, outputs, constants, infos, {"": 24, "vklab": 1})

    def inputs(self):
        """Return the values of the graph's inputs."""
        flat = (*self.q.shape[:2], -1)
        return {
            "q": self.q.reshape(flat),
            "k": self.k.reshape(flat),
            "v": self.v.reshape(flat),
            "past_key": words(self.old[0], self.kind),
            "past_value": words(self.old[1], self.kind),
            "lengths": np.array(self.lengths, np.int32),
            "counts": np.array(self.counts, np.int32),
        }

    def rotated(self, x, position):
        """Return heads whose pairs of elements are rotated as complex numbers."""
        x = x.astype(np.float64)
        half = self.turned // 2
        ends = (
            (slice(0, self.turned, 2), slice(1, self.turned, 2))
            if self.neighbours
            else (slice(0, half), slice(half, self.turned))
        )
        turn = (x[:, ends[0]] + 1j * x[:, ends[1]]) * np.exp(1j * self.angles[position])
        x[:, ends[0]], x[:, ends[1]] = turn.real, turn.imag
        return x

    def expected(self):
        """Return keys and values as the cache holds them, and the results of all valid steps."""
        keys, values = self.rows()
        return keys, values, self.results(keys, values)

    def rows(self):
        """Return keys and values as the cache holds them after the run."""
        rounded = {"F16": np.float16, "F32": np.float32, "Q8_0": eighths}[self.kind]
        keys, values = (rounded(old).astype(np.float64) for old in self.old)
        for number, (length, count) in enumerate(zip(self.lengths, self.counts, strict=True)):
            for step in range(count):
                new = self.rotated(self.k[number, step], length + step)
                keys[number, :, length + step] = rounded(new)
                values[number, :, length + step] = rounded(self.v[number, step])
        return keys, values

    def results(self, keys, values):
        """Return the results of all valid steps, from rows that a cache holds."""
        results = np.zeros(self.q.shape)
        group = self.heads // self.kv_heads
        for number, (length, count) in enumerate(zip(self.lengths, self.counts, strict=True)):
            for step in range(count):
                end = length + step + 1
                q = self.rotated(self.q[number, step], length + step)
                for head in range(self.heads):
                    scores = keys[number, head // group, :end] @ q[head] / np.sqrt(self.size)
                    weights = np.exp(scores - scores.max())
                    results[number, step, head] = (
                        weights / weights.sum() @ values[number, head // group, :end]
                    )
        return results

    def valid(self, array):
        """Return the steps that are no padding, of [batch, steps, ...]."""
        return np.concatenate(
            [
                row[:count]
                for row, count in zip(array.reshape(self.q.shape), self.counts, strict=True)
            ]
        )


def blocks_of(rows):
    """Return rows as int8 [..., size] and a float16 scale for each 32 elements."""
    parts = rows.astype(np.float32).reshape(*rows.shape[:-1], -1, 32)
    scales = (abs(parts).max(-1, keepdims=True) / 127).astype(np.float16)
    inverse = np.where(scales > 0, 1 / np.maximum(scales.astype(np.float32), 1e-30), 0)
    numbers = np.rint(parts * inverse).clip(-127, 127).astype(np.int8)
    return numbers.reshape(rows.shape), scales[..., 0]


def eighths(rows):
    """Return rows as Q8_0 holds them."""
    numbers, scales = blocks_of(rows)
    return numbers * np.repeat(scales.astype(np.float32), 32, -1)


def words(rows, kind):
    """Return rows of float32 as a cache holds them."""
    count = row_words(rows.shape[-1], kind)
    if kind == "Q8_0":
        numbers, scales = blocks_of(rows)
        pairs = np.zeros((*scales.shape[:-1], -(-scales.shape[-1] // 2) * 2), np.float16)
        pairs[..., : scales.shape[-1]] = scales
        flat = (numbers.reshape(-1).view(np.uint32), pairs.reshape(-1).view(np.uint32))
        return np.concatenate(flat).reshape(*rows.shape[:-1], count)
    width = count * (2 if kind == "F16" else 1)
    made = np.zeros((*rows.shape[:-1], width), np.float16 if kind == "F16" else np.float32)
    made[..., : rows.shape[-1]] = rows
    return made.view(np.uint32)


def rows_of(cache, size, kind):
    """Return a cache's words as rows of `size` floats."""
    if kind != "Q8_0":
        return cache.view(np.float16 if kind == "F16" else np.float32)[..., :size]
    shape, count = cache.shape[:-1], cache[..., 0].size
    flat = np.ascontiguousarray(cache).reshape(-1)
    numbers = flat[: count * size // 4].view(np.int8).reshape(*shape, size)
    scales = flat[count * size // 4 :].view(np.float16).reshape(*shape, -1)[..., : size // 32]
    return numbers * np.repeat(scales.astype(np.float32), 32, -1)
