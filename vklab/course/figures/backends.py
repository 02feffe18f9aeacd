"""Backends and the machines that they run on, as data with dates, and a picture of both.

The table was read in November 2026; sources stand beside the rows. Visited by lab 01.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from vklab.course.definition.codec import register
from vklab.course.figures.diagram import Diagram
from vklab.course.picture import Picture

__all__ = ["BACKENDS", "MACHINES", "Backend", "draw_matrix", "draw_stack"]

MACHINES = ("NVIDIA/Linux", "NVIDIA/Windows", "AMD/Linux", "AMD/Windows", "Intel/Linux",
            "Intel/Windows", "Apple/macOS", "Apple/iOS", "Apple/Linux",
            "Adreno/Android")  # fmt: skip
MARKS = {"native": ("✓", "blue", 0.35), "translated": ("T", "orange", 0.4),
         "preview": ("P", "yellow", 0.5)}  # fmt: skip


@register
@dataclass(frozen=True)
class Backend:
    """A way to reach a device.

    Attributes:
        runs_on: "native", "translated" (through another API) or "preview", by machine.
        jobs: what it does: kernels, training, network, chat.
        open_source: whether its source is public, under a free licence.
    """

    runs_on: Mapping[str, str]
    jobs: frozenset[str]
    open_source: bool


def _backend(jobs: str, open_source: bool, native: str, **others: str) -> Backend:
    runs_on = {machine: "native" for machine in MACHINES if machine in native.split()}
    for state, machines in others.items():
        runs_on |= dict.fromkeys(machines.split(), state)
    return Backend({m: runs_on[m] for m in MACHINES if m in runs_on}, frozenset(jobs.split()),
                   open_source)  # fmt: skip


_NVIDIA, _AMD, _INTEL = ("NVIDIA/Linux NVIDIA/Windows ", "AMD/Linux AMD/Windows ",
                         "Intel/Linux Intel/Windows ")  # fmt: skip
_ALL = _NVIDIA + _AMD + _INTEL
BACKENDS: Mapping[str, Backend] = {
    "CUDA": _backend("kernels training network", False, _NVIDIA),
    # docs of ROCm: "ROCm components supported in HIP SDK", 2026-02-19; PyTorch wheels for Windows
    "ROCm": _backend("kernels training network", True, "AMD/Linux", preview="AMD/Windows"),
    # AdaptiveCpp, doc/compilation.md: PTX, amdgcn, SPIR-V
    "SYCL": _backend("kernels", True, _INTEL + "NVIDIA/Linux AMD/Linux"),
    "Metal": _backend("kernels", False, "Apple/macOS Apple/iOS"),
    # ml-explore.github.io/mlx, "Build and Install": a CUDA backend for Linux
    "MLX": _backend("training chat", True, "Apple/macOS NVIDIA/Linux"),
    "Core ML": _backend("network", False, "Apple/macOS Apple/iOS"),
    # learn.microsoft.com, DirectML: "in sustained engineering", any DirectX 12 GPU
    "DirectML": _backend("network", False, "NVIDIA/Windows AMD/Windows Intel/Windows"),
    # rosenzweig.io, "Vulkan 1.3 on the M1 in 1 month", 5 June 2024 (Linux, no Metal)
    "Vulkan": _backend("kernels", True, _ALL + "Apple/Linux Adreno/Android",
                       translated="Apple/macOS Apple/iOS"),
    # llama.cpp, docs/build.md and the files of its releases
    "llama.cpp": _backend("chat", True, _ALL + "Apple/macOS Apple/iOS Adreno/Android"),
    # github.com/mlc-ai/mlc-llm, table of platforms
    "MLC-LLM": _backend("chat", True, _ALL + "Apple/macOS Apple/iOS Adreno/Android"),
    # docs.pytorch.org/executorch, "Choosing a Backend" and "Desktop backends"
    "ExecuTorch": _backend("network chat", True, _INTEL + "Apple/macOS Apple/iOS Adreno/Android"),
}  # fmt: skip


def draw_matrix(
    backends: Mapping[str, Backend], caption: str, chosen: Collection[str] | None = None
) -> Picture:
    """Draw backends against machines; an answer's choice is in bold, with an arrow.

    Args:
        backends: one row each.
        caption: the caption.
        chosen: the names that an answer admits.
    """
    diagram, told = Diagram(760, 26 * len(backends) + 66), []
    for column, machine in enumerate(MACHINES):
        diagram.note((152 + 61 * column, 18), machine.replace("/", "\n"), anchor="middle", size=11)
    for row, (name, backend) in enumerate(backends.items()):
        top, picked = 26 * row + 42, chosen is not None and name in chosen
        diagram.note((6, top + 16), ("→ " if picked else "") + name, bold=picked)
        told.append(f"{name} on {', '.join(f'{m} ({s})' for m, s in backend.runs_on.items())}"
                    + (", chosen" if picked else ""))  # fmt: skip
        for column, machine in enumerate(MACHINES):
            mark, colour, shade = MARKS.get(backend.runs_on.get(machine, ""), ("", "grey", 0.05))
            faded = chosen is not None and not picked
            diagram.box((123 + 61 * column, top, 58, 23), mark, "grey" if faded else colour,
                        shade=0.12 if faded and mark else shade)  # fmt: skip
    diagram.note((123, 26 * len(backends) + 60), "✓ native · T translated to another API · "
                 "P preview, or a part only")  # fmt: skip
    return diagram.picture("Backends by machine. " + "; ".join(told), caption)


LAYERS = (
    ("framework", ("PyTorch", "PyTorch", "PyTorch", "PyTorch, MLX", "vklab"), "sky"),
    ("math library", ("cuBLAS, cuDNN", "rocBLAS, MIOpen", "oneMKL, oneDNN", "MPS", "(own kernels)"),
     "green"),
    ("API", ("CUDA", "HIP", "SYCL", "Metal", "Vulkan"), "blue"),
    ("code in between", ("PTX", "LLVM IR", "SPIR-V", "AIR", "SPIR-V"), "grey"),
    ("driver", ("NVIDIA's", "AMD's", "Intel's", "Apple's", "each vendor's"), "orange"),
)  # fmt: skip


def draw_stack() -> Picture:
    """Draw what stands between a program and a GPU, for five stacks."""
    diagram = Diagram(720, 190)
    for row, (title, names, colour) in enumerate(LAYERS):
        diagram.note((6, 36 * row + 27), title, bold=True)
        for column, name in enumerate(names):
            diagram.box((122 + 120 * column, 36 * row + 8, 112, 29), name, colour)
    alt = "; ".join(f"{title}: {', '.join(names)}" for title, names, _ in LAYERS)
    return diagram.picture(f"Layers of five stacks. {alt}",
                           "Five stacks, from the framework down to the driver.")
