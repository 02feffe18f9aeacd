"""Suites of benchmark models by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vklab.apps.compare.speed import memory, products
from vklab.errors import ModelError

__all__ = ["DEFAULT", "REAL", "SUITES", "chosen"]

# The models of a run without a suite: each takes a second.
DEFAULT = ("mnist12", "mlp", "conv_few", "mini_classifier", "chain_add_100")
REAL = ("resnet50", "vit_b_16", "convnext_tiny", "mobilenet_v2", "efficientnet_b0", "bert_base")
SUITES: dict[str, tuple[str, ...]] = {
    "vkml": (*(f"chain_add_{n}" for n in (1, 10, 100, 1000, 10000)), "mnist12", "mlp",
             "conv_few", "conv_many", "matmul_1layers", "matmul_16layers"),
    "real": REAL,
    "products": products.PRODUCTS,
    "convolutions": products.CONVOLUTIONS,
    "memory": memory.MEMORY,
}  # fmt: skip
"""Models of each suite; `vkml` is the table that VKML publishes."""


def chosen(suites: Iterable[str], names: Sequence[str]) -> list[str]:
    """Return the models of suites and the named ones; the default models if there are none.

    Raises ModelError for an unknown suite.
    """
    found: list[str] = []
    for suite in suites:
        if suite not in SUITES:
            raise ModelError(f"unknown suite {suite!r}; choose among {', '.join(SUITES)}")
        found += SUITES[suite]
    return list(dict.fromkeys([*found, *names])) or list(DEFAULT)
