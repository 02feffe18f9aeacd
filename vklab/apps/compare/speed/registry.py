"""Runners of the benchmark: vklab, and each peer with the folder of its packages.

Packages that conflict have an environment of their own.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from pathlib import Path

from vklab.apps.compare import peers
from vklab.apps.compare.onnxruntime import providers
from vklab.apps.compare.speed.runners import iree, ncnn, on_torch, on_vulkan, onnxruntime
from vklab.apps.compare.speed.runners.runner import Runner
from vklab.errors import SetupError
from vklab.types import DeviceInfo

# The dtype of a model whose products have a precision of their own.
PRECISIONS = {"bf16x3": "float32", "half-sums": "float16"}


def every(info: DeviceInfo | None, root: Path | None = None, precision: str = "") -> list[Runner]:
    """Return all runners for a device of vklab.

    Args:
        info: the device; None if there is none.
        root: folder above the environments of peers; None for that of vklab's cache.
        precision: a precision of products that vklab is measured with as well.
    """
    device = info.index if info else None

    def place(name: str) -> Path | None:
        return peers.environment(name, root)

    def vulkan(name: str, dtype: str = "float32", **variables: str) -> on_vulkan.Vulkan:
        return on_vulkan.Vulkan(name, dtype, device, variables, "chain_add_*" if variables else "*")

    def provided(name: str, key: str, variant: str = "", graph: str = "") -> Runner:
        row = providers.by_key(key)
        chosen = next(each for each in row.variants if each.name == (variant or "float32"))
        return onnxruntime.OnnxRuntime(name, row, chosen, place(row.packages[0]), bool(graph))

    return [
        vulkan("vklab"),
        vulkan("vklab-fp16", "float16"),
        vulkan("vklab-unfused", VKLAB_DISABLE_FUSION="1"),
        *(
            on_vulkan.Vulkan(f"vklab-resident-{where}", device=device, resident=where)
            for where in ("host", "cuda")
        ),
        *(
            on_vulkan.Vulkan(f"vklab-{name}", PRECISIONS[name], device, precision=name)
            for name in filter(None, [precision])
        ),
        provided("onnxruntime-cpu", "cpu"),
        *(
            provided("-".join(filter(None, ["onnxruntime-cuda", graph, tf32])), "cuda", tf32, graph)
            for graph in ("", "graph")
            for tf32 in ("", "tf32")
        ),
        provided("onnxruntime-webgpu", "webgpu"),
        ncnn.Ncnn(environment=place("ncnn")),
        ncnn.Ncnn("ncnn-fp16", "float16", place("ncnn")),
        iree.Iree("ampere" if info and info.vendor_id == peers.NVIDIA else "", place("iree")),
        on_torch.Torch("torch-eager"),
        on_torch.Torch("torch-graph", "graph"),
        on_torch.Torch("torch-graph-tf32", "graph", "tfloat32"),
        on_torch.Torch("torch-graph-fp16", "graph", "float16"),
        on_torch.Torch("torch-compiled", "compiled"),
        on_torch.Torch("torch-resident-cuda", "graph", resident="cuda"),
    ]


def choose(runners: Sequence[Runner], patterns: Sequence[str]) -> list[Runner]:
    """Return the runners that patterns name, in order; without one all but the resident ones.

    A pattern is a name, or a pattern with *, or the beginning of several names: "torch". Resident
    runners keep inputs and outputs in place, so their times are not those of whole runs.
    Raises SetupError for a pattern that no runner matches.
    """
    names = [runner.name for runner in runners]
    wanted: set[str] = set()
    for pattern in patterns:
        found = fnmatch.filter(names, pattern) or [
            name for name in fnmatch.filter(names, f"{pattern}-*") if "-resident" not in name
        ]
        if not found:
            raise SetupError(f"unknown runner {pattern!r}; choose among {', '.join(names)}")
        wanted |= set(found)
    if not patterns:
        return [runner for runner in runners if not getattr(runner, "resident", "")]
    return [runner for runner in runners if runner.name in wanted]
