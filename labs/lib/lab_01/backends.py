"""Backends and the machines that they run on, each with its source, and a picture of both.

The table was read in November 2026. Visited by lab 01.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from vklab_course.definition.codec import register
from vklab_course.picture import Picture
from vklab_labs.shared.diagram import Diagram

__all__ = ["BACKENDS", "MACHINES", "Backend", "draw_matrix", "draw_simd_and_simt", "draw_stack"]

MACHINES = ("NVIDIA/Linux", "NVIDIA/Windows", "AMD/Linux", "AMD/Windows", "Intel/Linux",
            "Intel/Windows", "Apple/macOS", "Apple/iOS", "Apple/Linux",
            "Qualcomm/Android")  # fmt: skip
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
        source: where the entries stand.
    """

    runs_on: Mapping[str, str]
    jobs: frozenset[str]
    open_source: bool
    source: str = field(default="", repr=False)


def _backend(source: str, jobs: str, open_source: bool, native: str, **others: str) -> Backend:
    runs_on = {machine: "native" for machine in MACHINES if machine in native.split()}
    for state, machines in others.items():
        runs_on |= dict.fromkeys(machines.split(), state)
    return Backend(
        {m: runs_on[m] for m in MACHINES if m in runs_on},
        frozenset(jobs.split()),
        open_source,
        source,
    )


_NVIDIA, _AMD, _INTEL = ("NVIDIA/Linux NVIDIA/Windows ", "AMD/Linux AMD/Windows ",
                         "Intel/Linux Intel/Windows ")  # fmt: skip
_APPLE, _ALL = "Apple/macOS Apple/iOS ", _NVIDIA + _AMD + _INTEL
BACKENDS: Mapping[str, Backend] = {
    "CUDA": _backend("docs.nvidia.com/cuda, installation guides", "kernels", False, _NVIDIA),
    "HIP": _backend(
        "rocm.docs.amd.com: Component support, 2026-02-19; HIPCC, HIP_PLATFORM=nvidia",
        "kernels", True, "AMD/Linux", preview="AMD/Windows", translated="NVIDIA/Linux"),
    "SYCL": _backend(
        "developer.codeplay.com, oneAPI for NVIDIA GPUs 2025.0; AdaptiveCpp's README, 2026",
        "kernels", True, _INTEL + _NVIDIA + "AMD/Linux", preview="Apple/macOS"),
    "Metal": _backend("developer.apple.com/metal", "kernels", False, _APPLE),
    "Vulkan": _backend(
        "docs.vulkan.org; MoltenVK; rosenzweig.io, Vulkan 1.3 on the M1, 5 June 2024",
        "kernels", True, _ALL + "Apple/Linux Qualcomm/Android", translated=_APPLE),
    "PyTorch": _backend(
        "pytorch.org, Get started; rocm.docs.amd.com, PyTorch on Windows, a preview",
        "training network", True, _NVIDIA + _INTEL + "AMD/Linux Apple/macOS",
        preview="AMD/Windows"),
    "MLX": _backend("ml-explore.github.io/mlx, Build and Install; mlx-swift, README",
                    "training chat", True, _APPLE + "NVIDIA/Linux"),
    "Core ML": _backend("developer.apple.com/documentation/coreml", "network", False, _APPLE),
    "DirectML": _backend("learn.microsoft.com, DirectML: in sustained engineering, DirectX 12",
                         "network", False, "NVIDIA/Windows AMD/Windows Intel/Windows"),
    "llama.cpp": _backend(
        "llama.cpp, docs/build.md and releases; pull request 24306, June 2026 (Apple/Linux)",
        "chat", True, _ALL + _APPLE + "Apple/Linux Qualcomm/Android"),
    "MLC-LLM": _backend("github.com/mlc-ai/mlc-llm, table of platforms", "chat", True,
                        _ALL + _APPLE + "Qualcomm/Android"),
    "ExecuTorch": _backend(
        "docs.pytorch.org/executorch, Backends: CUDA, OpenVINO, Core ML, Vulkan; LLMs",
        "network chat", True, _NVIDIA + _INTEL + _APPLE + "Qualcomm/Android"),
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
        told.append(
            f"{name} on {', '.join(f'{m} ({s})' for m, s in backend.runs_on.items())}"
            + (", chosen" if picked else "")
        )
        for column, machine in enumerate(MACHINES):
            mark, colour, shade = MARKS.get(backend.runs_on.get(machine, ""), ("", "grey", 0.05))
            faded = chosen is not None and not picked
            diagram.box(
                (123 + 61 * column, top, 58, 23),
                mark,
                "grey" if faded else colour,
                shade=0.12 if faded and mark else shade,
            )
    diagram.note(
        (123, 26 * len(backends) + 60),
        "✓ native · T translated to another API · P preview, or a part only",
    )
    return diagram.picture("Backends by machine. " + "; ".join(told), caption)


LAYERS = (
    ("framework", ("PyTorch", "PyTorch", "PyTorch", "PyTorch, MLX", "vklab"), "sky"),
    ("math library", ("cuBLAS, cuDNN", "rocBLAS, MIOpen", "oneMKL, oneDNN", "MPS", "(own kernels)"),
     "green"),
    ("API", ("CUDA", "HIP", "SYCL", "Metal", "Vulkan"), "blue"),
    ("compiled code", ("PTX", "machine code", "SPIR-V", "AIR", "SPIR-V"), "grey"),
    ("driver", ("NVIDIA's", "AMD's", "Intel's", "Apple's", "each vendor's"), "orange"),
)  # fmt: skip


def draw_simd_and_simt() -> Picture:
    """Draw an addition of eight values, as one instruction and as eight copies of a program."""
    page = Diagram(700, 118)
    for top, name, code, told, text in (
        (6, "SIMD", "add8(x, y)", "you name the vector", "x{0}+y{0}"),
        (68, "SIMT", "x[i] + y[i]", "you name one value, the device makes groups", "i = {0}"),
    ):
        page.note((8, top + 18), name, bold=True).box((70, top, 150, 28), code, "orange")
        page.arrow((224, top + 14), (262, top + 14)).note((268, top + 46), told)
        for lane in range(8):
            page.box((268 + 53 * lane, top, 50, 28), text.format(lane), "blue")
    return page.picture(
        "SIMD: one instruction of the program adds a vector of eight. SIMT: the "
        "program adds one value, and the device runs eight copies of it.",
        "Two ways to one operation on many values; eight lanes are drawn.",
    )


def draw_stack() -> Picture:
    """Draw what stands between a program and a GPU, for five stacks."""
    diagram = Diagram(720, 190)
    for row, (title, names, colour) in enumerate(LAYERS):
        diagram.note((6, 36 * row + 27), title, bold=True)
        for column, name in enumerate(names):
            diagram.box((122 + 120 * column, 36 * row + 8, 112, 29), name, colour)
    alt = "; ".join(f"{title}: {', '.join(names)}" for title, names, _ in LAYERS)
    return diagram.picture(
        f"Layers of five stacks. {alt}", "Five stacks, from the framework down to the driver."
    )
