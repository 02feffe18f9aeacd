"""ncnn on Vulkan as a runner. Its two files are written here, or by its converter, pnnx.

Source: https://github.com/Tencent/ncnn/wiki/use-ncnn-with-pytorch-or-onnx
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx

from vklab.apps.compare import backend
from vklab.apps.compare.backend import Availability, Refused
from vklab.apps.compare.speed.runners import ncnn_files
from vklab.apps.compare.speed.runners.runner import Arrays, Case, Timed
from vklab.errors import SetupError

INSTALL = "vklab bench peers"
HALF = ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_storage")


def load_ncnn() -> ModuleType:
    """Import ncnn, or raise SetupError with the command that installs it."""
    return backend.load_package("ncnn", "ncnn", INSTALL)


@dataclass(frozen=True)
class Ncnn:
    """ncnn on the first Vulkan device that it sees.

    Attributes:
        name: name of the runner.
        dtype: "float32" or "float16".
        environment: folder of the packages ncnn and pnnx.
    """

    name: str = "ncnn"
    dtype: str = "float32"
    environment: Path | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    on_gpu = True

    def takes(self, case: Case) -> bool:
        """Tell that every model is measured."""
        return True

    def available(self) -> Availability:
        """Tell whether ncnn and a device are here."""
        try:
            if not load_ncnn().get_gpu_count():
                return Availability("ncnn finds no Vulkan device", INSTALL)
        except SetupError as error:
            return Availability.of(error)
        return Availability()

    def prepare(self, case: Case) -> NcnnModel:
        """Convert the model, and load it."""
        return NcnnModel(self, case)


class NcnnModel(Timed):
    """A network of ncnn.

    Args:
        runner: dtype.
        case: the model.
    """

    def __init__(self, runner: Ncnn, case: Case) -> None:
        self._ncnn = load_ncnn()
        with np.load(case.inputs) as inputs, np.load(case.expected) as expected:
            shapes = {name: inputs[name].shape for name in inputs.files}
            self._expected = {name: expected[name].shape for name in expected.files}
            kinds = {name: inputs[name].dtype for name in inputs.files}
        if any(kind != np.float32 for kind in kinds.values()):
            raise Refused("inputs of integers are not converted")
        with tempfile.TemporaryDirectory(prefix="vklab-ncnn-") as folder:
            param, weights = _convert(case, shapes, Path(folder))
            self._net: Any = self._ncnn.Net()
            self._net.opt.use_vulkan_compute = True
            for option in HALF:
                setattr(self._net.opt, option, runner.dtype == "float16" and "bf16" not in option)
            if self._net.load_param(str(param)) or self._net.load_model(str(weights)):
                raise Refused("ncnn does not load what pnnx converted")
        self._inputs, self._outputs = self._net.input_names(), self._net.output_names()
        device = self._ncnn.get_gpu_info(0).device_name()
        self.variant = f"{device}, {runner.dtype}"
        self.versions = {"ncnn": self._ncnn.__version__}

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """Return the outputs by name."""
        extractor = self._net.create_extractor()
        # ncnn's matrices have no batch dimension.
        given = [self._ncnn.Mat(_unbatched(array)) for array in inputs.values()]
        for name, matrix in zip(self._inputs, given, strict=True):
            extractor.input(name, matrix)
        made = {}
        for (name, shape), blob in zip(self._expected.items(), self._outputs, strict=True):
            code, matrix = extractor.extract(blob)
            if code:
                raise Refused(f"ncnn cannot compute {blob!r}: code {code}")
            made[name] = np.array(matrix).reshape(shape)
        del extractor
        return made

    def close(self) -> None:
        """Free the network before ncnn ends its instance."""
        self._net.clear()
        self._net = None


def _unbatched(array: np.ndarray) -> np.ndarray:
    is_batch = array.ndim > 2 and array.shape[0] == 1
    return np.ascontiguousarray(array[0] if is_batch else array)


def _converter() -> str:
    """Return the path of pnnx, a program inside the package of that name; "" without it."""
    spec = importlib.util.find_spec("pnnx")
    inside = (
        [Path(folder) / "pnnx" for folder in (spec.submodule_search_locations or ())]
        if spec
        else []
    )
    return next((str(path) for path in inside if path.is_file()), "")


def _convert(case: Case, shapes: Mapping[str, Any], folder: Path) -> tuple[Path, Path]:
    """Return ncnn's two files of a model, written into a folder.

    Args:
        case: the model.
        shapes: shape of each input.
        folder: folder for the files.
    """
    param, weights = folder / "model.ncnn.param", folder / "model.ncnn.bin"
    if ncnn_files.write(onnx.load(case.onnx), param, weights):
        return param, weights
    if not _converter():
        raise Refused("ncnn's converter pnnx is not installed: vklab bench peers")
    link = folder / "model.onnx"
    link.symlink_to(case.onnx)
    texts = [f"[{','.join(map(str, shape))}]" for shape in shapes.values()]
    command = [_converter(), str(link), f"inputshape={','.join(texts)}", "fp16=0"]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    said = [*re.findall(r"ignore .*|.*not support.*", done.stdout + done.stderr)]
    if done.returncode or not param.is_file():
        raise Refused(f"pnnx ends with {done.returncode}: {'; '.join(said)[:200]}")
    return param, weights
