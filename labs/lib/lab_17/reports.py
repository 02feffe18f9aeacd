"""Parity reports: one that is made here, and a recorded one. Visited by lab 17."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vklab.apps.compare import forms, registry
from vklab.apps.compare import parity as pipeline
from vklab.apps.compare.parity import Parity
from vklab.apps.compare.report import page
from vklab_course.data import data

__all__ = ["PageRow", "coverage", "layers_of", "made_here", "page_of", "page_table", "recorded"]

SECONDS = 60.0
# Backends that every machine with the course can run.
HERE = ("vklab-0-*", "onnx-reference-float32")
PageRow = tuple[str, bool | None]  # a backend, and whether it passed; None: not judged


def made_here(patterns: Sequence[str] = HERE) -> Parity:
    """Return the report of MiniClassifier with its layers on backends of this machine."""
    source = forms.of_text(str(data("mini_classifier.onnx")))
    backends = registry.choose(registry.listed(None, SECONDS), patterns)
    options = pipeline.Options(SECONDS, layers=True, repeats=1, rounds=0)
    return pipeline.run(source, backends, None, options)


def page_of(made: Parity, path: Path) -> int:
    """Write the report as a page; return its bytes."""
    return path.write_text(page.page(made), encoding="utf-8")


def recorded() -> list[dict[str, Any]]:
    """Return the rows of the recorded report: backend, status, passed, nodes, origin, layers."""
    file = json.loads(data("recorded/parity_layers.json").read_text("utf-8"))
    rows: list[dict[str, Any]] = file["rows"]
    return rows


def layers_of(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the layers of a recorded row as exercise 17-4 takes them."""
    return [{"name": n, "local": a, "cumulative": b} for n, a, b in row["layers"]]


def coverage(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many rows passed, failed, and were not judged."""
    words = {True: "passed", False: "failed", None: "not judged"}
    counts = Counter(words[row["passed"]] for row in rows)
    return {word: counts[word] for word in words.values()}


def page_table(rows: Sequence[PageRow]) -> str:
    """Return the last line of a report that counts what it did not judge."""
    counts = coverage([{"passed": passed} for _, passed in rows])
    return ", ".join(f"{count} {word}" for word, count in counts.items())
