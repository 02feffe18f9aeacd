"""Table of ONNX Runtime's execution providers and of the packages that carry them, as data.

A full build owns the same module as `onnxruntime`, so only one can be installed in an environment.
A plugin stands beside it. Versions and months are those of PyPI on CHECKED.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field

CHECKED = "2026-11-24"
ALL = ("Linux", "Windows", "macOS")


@dataclass(frozen=True)
class Package:
    """One package of the registry.

    Attributes:
        name: name for pip.
        version: the last version.
        released: its month.
        kind: "full build" owns the module onnxruntime; "plugin" is registered beside it.
        systems: operating systems with wheels.
        module: Python module of a plugin, which knows the path of its library.
        replaced_by: what took its place, if it has ended.
    """

    name: str
    version: str
    released: str
    kind: str
    systems: tuple[str, ...]
    module: str = ""
    replaced_by: str = ""


PACKAGES: dict[str, Package] = {
    row[0]: Package(*row)
    for row in (
        ("onnxruntime", "1.31.1", "2026-10", "full build", ALL),
        ("onnxruntime-gpu", "1.31.1", "2026-10", "full build", ("Linux", "Windows")),
        (
            "onnxruntime-directml",
            "1.24.4",
            "2026-03",
            "full build",
            ("Windows",),
            "",
            "onnxruntime-windowsml with windowsml; 1.24.4 is its last version",
        ),
        ("onnxruntime-windowsml", "1.30.0.202609102321", "2026-09", "full build", ("Windows",)),
        ("windowsml", "2.5.96", "2026-10", "companion", ("Windows",)),
        (
            "onnxruntime-openvino",
            "1.24.1",
            "2026-02",
            "full build",
            ("Linux", "Windows"),
            "",
            "onnxruntime-ep-openvino, a plugin",
        ),
        (
            "onnxruntime-ep-openvino",
            "1.8.1",
            "2026-10",
            "plugin",
            ("Linux", "Windows"),
            "onnxruntime_ep_openvino",
        ),
        ("onnxruntime-migraphx", "1.27.1", "2026-07", "full build", ("Linux",)),
        (
            "onnxruntime-rocm",
            "1.22.2.post3",
            "2026-07",
            "full build",
            ("Linux",),
            "",
            "onnxruntime-migraphx; the ROCm provider is gone from ONNX Runtime",
        ),
        ("onnxruntime-webgpu", "1.27.0", "2026-06", "full build", ALL),
        ("onnxruntime-ep-webgpu", "0.4.0", "2026-09", "plugin", ALL, "onnxruntime_ep_webgpu"),
        ("onnxruntime-qnn", "2.7.0", "2026-10", "plugin", ("Linux", "Windows"), "onnxruntime_qnn"),
        (
            "onnxruntime-ep-nv-tensorrt-rtx",
            "0.5.0",
            "2026-10",
            "plugin",
            ("Linux", "Windows"),
            "onnxruntime_ep_nv_tensorrt_rtx",
        ),
        (
            "onnxruntime-silicon",
            "1.16.3",
            "2024-01",
            "full build",
            ("macOS",),
            "",
            "onnxruntime itself: its macOS wheel has the CoreML provider",
        ),
        (
            "torch-directml",
            "0.2.5.dev240914",
            "2024-09",
            "PyTorch plugin",
            ("Linux", "Windows"),
            "",
            "nothing; it pins torch 2.4.1",
        ),
    )
}


@dataclass(frozen=True)
class Variant:
    """One way to run a provider: a row of the report.

    Attributes:
        name: last part of the backend's name.
        weights: dtype in which the model stores its weights.
        arithmetic: dtype of products and activations.
        sums: dtype of long sums; "" where the provider does not say.
        options: options of the provider.
    """

    name: str
    weights: str = "float32"
    arithmetic: str = "float32"
    sums: str = "float32"
    options: Mapping[str, str] = field(default_factory=dict)


FLOAT32 = Variant("float32")
FLOAT16 = Variant("float16", "float16", "float16", "float32")


@dataclass(frozen=True)
class Provider:
    """One execution provider.

    Attributes:
        key: short name, the middle part of the backend's name.
        ep: name in ONNX Runtime.
        device: hardware in words.
        systems: operating systems on which it works.
        vendor: vendor of the hardware, or "any".
        packages: packages that carry it, the preferred one first.
        variants: rows of the report.
        needs: what must be there beside the package.
    """

    key: str
    ep: str
    device: str
    systems: tuple[str, ...]
    vendor: str
    packages: tuple[str, ...]
    variants: tuple[Variant, ...] = (FLOAT32,)
    needs: str = ""


PROVIDERS: tuple[Provider, ...] = (
    Provider("cpu", "CPUExecutionProvider", "CPU", ALL, "any", ("onnxruntime",), (
        FLOAT32,
        # On x86 there is no fp16 arithmetic: weights are widened when the model is loaded.
        Variant("float16", "float16", "float32", "float32"),
        Variant("int8", "int8", "int8", "int32"),
    )),
    Provider("cuda", "CUDAExecutionProvider", "NVIDIA GPU", ("Linux", "Windows"), "NVIDIA",
             ("onnxruntime-gpu",), (
                 Variant("float32", options={"use_tf32": "0"}),
                 Variant("tf32", "float32", "tfloat32", "float32", {"use_tf32": "1"}),
                 FLOAT16,
             ), "CUDA 13 and cuDNN 9, for example from the wheels of torch"),
    Provider("tensorrt", "TensorrtExecutionProvider", "NVIDIA GPU", ("Linux", "Windows"),
             "NVIDIA", ("onnxruntime-gpu",), (
                 FLOAT32,
                 Variant("float16", "float32", "float16", "float32", {"trt_fp16_enable": "1"}),
             ), "TensorRT 10"),
    Provider("tensorrt-rtx", "NvTensorRTRTXExecutionProvider", "NVIDIA RTX GPU",
             ("Linux", "Windows"), "NVIDIA", ("onnxruntime-ep-nv-tensorrt-rtx",)),
    Provider("directml", "DmlExecutionProvider", "DirectX 12 GPU", ("Windows",), "any",
             ("onnxruntime-directml",), (FLOAT32, FLOAT16), "a DirectX 12 driver"),
    Provider("windowsml", "DmlExecutionProvider", "GPU or NPU that Windows ML chooses",
             ("Windows",), "any", ("onnxruntime-windowsml",), (FLOAT32,),
             "windowsml, which brings DirectML.dll"),
    Provider("coreml", "CoreMLExecutionProvider", "CPU, GPU or Neural Engine", ("macOS",),
             "Apple", ("onnxruntime",), (
                 Variant("float32", options={"ModelFormat": "MLProgram",
                                             "MLComputeUnits": "CPUOnly"}),
                 Variant("float16", "float32", "float16", "",
                         {"ModelFormat": "MLProgram", "MLComputeUnits": "ALL"}),
             )),
    Provider("openvino", "OpenVINOExecutionProvider", "CPU by OpenVINO", ("Linux", "Windows"),
             "Intel; the CPU plugin runs on any x86", ("onnxruntime-openvino",
                                                       "onnxruntime-ep-openvino"),
             (Variant("float32", options={"device_type": "CPU"}),),
             "a processor that OpenVINO lists"),
    Provider("migraphx", "MIGraphXExecutionProvider", "AMD GPU", ("Linux",), "AMD",
             ("onnxruntime-migraphx",), (FLOAT32,), "ROCm"),
    Provider("webgpu", "WebGpuExecutionProvider", "GPU by WebGPU (Dawn)", ALL, "any",
             ("onnxruntime-webgpu", "onnxruntime-ep-webgpu"), (FLOAT32,),
             "a driver that Dawn accepts"),
    Provider("qnn", "QNNExecutionProvider", "Qualcomm NPU", ("Linux", "Windows"), "Qualcomm",
             ("onnxruntime-qnn",), (FLOAT32,), "a Snapdragon processor"),
)  # fmt: skip

# Packages that ended: name, backend name, what took their place.
ENDED: tuple[str, ...] = tuple(
    name
    for name, each in PACKAGES.items()
    if each.replaced_by and name not in {n for p in PROVIDERS for n in p.packages}
)


def by_key(key: str) -> Provider:
    """Return the row of PROVIDERS with a key."""
    return next(row for row in PROVIDERS if row.key == key)


def system() -> str:
    """Return this operating system in the words of the table."""
    return {"Darwin": "macOS"}.get(platform.system(), platform.system())


def install_line(name: str) -> str:
    """Return the command that installs a package so that nothing else breaks.

    A full build replaces the module onnxruntime, so it goes into a folder of its own.
    """
    if PACKAGES[name].kind == "full build" and name != "onnxruntime":
        return f"pip install --target PEERS/{name} {name}, then vklab parity MODEL --peers PEERS"
    return f"pip install {name}"
