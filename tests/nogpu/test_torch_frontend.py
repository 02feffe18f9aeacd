"""What PyTorch's exporter is asked, the names that values get, and what is refused; no device."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import tomllib

import numpy as np
import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from torch import nn

from support.graphs.small_models import ROOT
from support.runs.child import python
from vklab.apps.pytorch import exporter, graphs, tensors
from vklab.errors import ModelError

pytestmark = pytest.mark.full  # the exporter alone takes a second to import


class Kinds(nn.Module):
    """Inputs and outputs of many kinds, one of each name that could collide."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.drop = nn.Dropout(0.5)

    def forward(self, x, index, *, scale=None, times: int = 2):
        """Return a tree with an input, a value twice, None and a number in it."""
        y = self.drop(self.second(torch.relu(self.first(x))))
        picked = (y * scale["by"])[index] * times
        return {
            "logits": y,
            "again": [y, (picked,)],
            "x": x,
            3: y.sum(),
            "relu": y + 1,
            "none": None,
            "number": 5,
        }


class Choice(nn.Module):
    """A choice that the values decide."""

    def forward(self, x):
        """Return one of two things."""
        return x + 1 if x.sum() > 0 else x - 1


class Counter(nn.Module):
    """A module that keeps something between calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        """Count."""
        self.count += 1
        return x * self.count


class Trained(nn.Module):
    """A normalisation that is in training mode whatever the module's mode."""

    def forward(self, x):
        """Normalise by the batch."""
        mean, deviation = torch.zeros(3), torch.ones(3)
        return nn.functional.batch_norm(x, mean, deviation, training=True)


class Returned(nn.Module):
    """A function as a module."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        """Call it."""
        return self.function(x)


def export(module, example, shapes=None) -> onnx.ModelProto:
    """Return the model that from_torch would load."""
    program, names, _ = exporter.export_module(module, example, shapes)
    return exporter.renamed(program.model_proto, names)


def shapes_of(values) -> dict[str, list]:
    """Return the dimensions of values by name: numbers, or names."""
    return {
        v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in values
    }


def test_values_are_named_as_forward_and_what_it_returns_name_them():
    module = Kinds().train()
    module.drop.eval()
    example = {
        "scale": {"by": torch.ones(1)},
        "index": torch.tensor([1, 0]),
        "x": torch.randn(3, 4),
    }
    model = export(module, example, {"x": {0: "batch"}})
    onnx.checker.check_model(model)
    given = shapes_of(model.graph.input)
    assert given == {"x": ["batch", 4], "index": [2], "scale_by": [1]}
    made = shapes_of(model.graph.output)
    assert list(made) == ["logits", "again_0", "again_1_0", "x_", "output_3", "relu"]
    assert made["logits"] == ["batch", 4] and made["again_1_0"] == [2, 4]
    assert not any(node.op_type == "Dropout" for node in model.graph.node)
    assert module.training and module.first.training and not module.drop.training
    weights = sum(np.prod(i.dims) for i in model.graph.initializer if max(i.dims, default=0) > 1)
    assert weights == 16 + 2 * 4, "tied weights are there once"


def test_python_numbers_keep_the_precision_of_float64():
    functions = [
        lambda x: x * 1e300,
        lambda x: x + 0.1,
        lambda x: torch.full_like(x, 1e-300),
        lambda x: x.clamp(0.2, 1e200),
        lambda x: torch.where(x > 0.3, x, 0.7),
        lambda x: x / 3,
        lambda x: x**2.7,
        lambda x: x.masked_fill(x > 0.5, 0.1),
        lambda x: torch.full((3,), 0.1, dtype=x.dtype) * x,
        lambda x: nn.functional.leaky_relu(-x, 1e-300) * 1e300,
        lambda x: nn.functional.leaky_relu(x - 0.3, 1 / 3),
        lambda x: nn.functional.elu(-x, 0.1),
        lambda x: torch.selu(-x),
        lambda x: nn.functional.celu(0.3 - x, 0.1),
        lambda x: torch.ops.aten.elu(x - 0.3, 0.1, 0.7, 0.3),
    ]
    module = Returned(lambda x: [function(x) for function in functions])
    x = torch.tensor([0.1, 0.3, 0.9], dtype=torch.float64)
    found = ReferenceEvaluator(export(module, x)).run(None, {"x": x.numpy()})
    for number, (mine, theirs) in enumerate(zip(found, module(x), strict=True)):
        np.testing.assert_allclose(mine, theirs.numpy(), 1e-14, err_msg=str(number))


def test_constants_of_open_sizes_keep_their_dtypes():
    def filled(x):
        n = x.shape[0]
        return (
            torch.full((n, 2), 0.1, dtype=torch.float64),
            torch.zeros(n, 4),
            torch.zeros(()),
            torch.ones((2, n), dtype=torch.int64),
            torch.full((n,), True),
            torch.full((3,), n),
            torch.full_like(x, n),
            x.masked_fill(x > 0, float("-inf")),
        )

    model = export(Returned(filled), torch.randn(3, 4), {"x": {0: "n"}})
    x = torch.randn(5, 4)
    found = ReferenceEvaluator(model).run(None, {"x": x.numpy()})
    for mine, theirs in zip(found, filled(x), strict=True):
        assert mine.dtype == theirs.numpy().dtype
        np.testing.assert_array_equal(mine, theirs.numpy())


@dataclasses.dataclass
class Pair:
    """A result that PyTorch does not know how to flatten."""

    first: torch.Tensor
    rest: object


class Opaque:
    """A result whose parts cannot be known."""

    def __init__(self, x) -> None:
        self.x = x


def test_the_fields_of_a_dataclass_are_outputs():
    module = Returned(lambda x: (x + 1, Pair(x * 2, [Pair(x - 1, None)])))
    model = export(module, torch.randn(2, 4))
    names = [value.name for value in model.graph.output]
    assert names == ["output_0", "output_1_first", "output_1_rest_0_first"]


@pytest.mark.parametrize("shapes", [
    {"input": {0: torch.export.Dim("n", max=9)}},
    pytest.param(({0: "n"},), marks=pytest.mark.slow),
    pytest.param([["n", None]], marks=pytest.mark.slow),
])  # fmt: skip
def test_dynamic_shapes_may_have_all_forms_of_torch_export(shapes):
    model = export(nn.Linear(4, 2), torch.randn(3, 4), shapes)
    assert shapes_of(model.graph.input) == {"input": ["n", 4]}
    assert shapes_of(model.graph.output) == {"output": ["n", 2]}


X = torch.randn(2, 4)
LINEAR = nn.Linear(4, 2)
REFUSED = [
    (
        "opaque",
        Returned(lambda x: (x + 1, {"a": Opaque(x)})),
        X,
        None,
        "Returned returns a Opaque as output_1_a, and its tensors would be lost",
    ),
    (
        "alpha",
        Returned(lambda x: x.add(x, alpha=0.1)),
        X.double(),
        None,
        "add.Tensor in float64 takes alpha=0.1, which PyTorch's exporter rounds",
    ),
    (
        "beta",
        Returned(lambda x: nn.functional.softplus(x, 0.1)),
        X.double(),
        None,
        "softplus.default in float64 takes beta=0.1, which PyTorch's exporter rounds",
    ),
    (
        "eps",
        nn.LayerNorm(4, eps=1e-300).double(),
        X.double(),
        None,
        "layer_norm.default in float64 takes eps=1e-300, which PyTorch's exporter rounds",
    ),
    ("no module", "a module", X, None, "takes a torch.nn.Module, not str"),
    ("name", LINEAR, {"y": X}, None, "cannot take the example inputs: missing a required"),
    ("no tensor", LINEAR, (3,), None, "hold no tensor"),
    ("open name", LINEAR, X, {"x": {0: "n"}}, r"names \['x'\]; the inputs are \['input'\]"),
    ("entries", LINEAR, X, [None, None], "has 2 entries"),
    ("complex", LINEAR, X.to(torch.complex64), None, "torch.view_as_real"),
    ("sparse", LINEAR, X.to_sparse(), None, "only dense tensors"),
    ("shape", LINEAR, torch.randn(2, 3), None, "Linear cannot be exported.*same reduction dim"),
    ("choice", Choice(), X, None, "(?s)data-dependent.*to repair: .*torch.cond"),
]
# These come as far as ONNX, which takes longer.
REFUSED_LATE = [
    ("complex out", Returned(lambda x: torch.complex(x, x)), X, None, "torch.view_as_real"),
    ("operator", Returned(torch.linalg.svd), X, None, "(?s)_linalg_svd.*to repair: the exporter"),
    ("fixed", Returned(lambda x: x.reshape(2, -1)), X, [{0: "n"}], "(?s)dynamic.*leave it out"),
    ("buffer", Counter(), X, None, "writes to its buffer 'count'.*return the buffer"),
    ("training", Trained(), torch.randn(2, 3, 2, 2), None, "in training mode"),
    ("nothing", Returned(lambda x: None), X, None, "returns no tensor|cannot be exported"),
]  # fmt: skip


def rows(cases, *marks):
    """Return cases as parameters that bear their names."""
    return [pytest.param(*case, id=name.replace(" ", "-"), marks=marks) for name, *case in cases]


@pytest.mark.parametrize(
    "module, example, shapes, words", rows(REFUSED) + rows(REFUSED_LATE, pytest.mark.slow)
)
def test_what_cannot_be_exported_is_refused_with_the_reason(module, example, shapes, words, capfd):
    with pytest.raises(ModelError, match=words):
        export(module, example, shapes)
    assert capfd.readouterr() == ("", ""), "the reason is in the error alone"


@pytest.mark.parametrize("dtype", [
    torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int64, torch.uint16,
    torch.bool,
])  # fmt: skip
def test_tensors_and_arrays_share_their_memory(dtype):
    tensor = torch.tensor([[1, 0], [2, 1]]).to(dtype)
    array = tensors.to_array(tensor)
    assert str(array.dtype) == str(dtype).removeprefix("torch.")
    assert np.array_equal(array.astype(np.float32), tensor.to(torch.float32).numpy())
    back = tensors.to_tensor(array, dtype, tensor.device)
    assert back.dtype == dtype and back.data_ptr() == tensor.data_ptr()
    assert np.array_equal(tensors.to_array(tensor.t()), array.T)
    array.flags.writeable = False
    assert tensors.to_tensor(array, dtype, tensor.device).data_ptr() != tensor.data_ptr()


def test_unknown_options_are_named():
    with pytest.raises(ModelError, match=r"no options \['speed'\]; choose among \['device'"):
        graphs.Options.of({"speed": 1, "dtype": "float16"})


def test_the_entry_point_names_the_backend():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    [(name, value)] = project["entry-points"]["torch_dynamo_backends"].items()
    point = importlib.metadata.EntryPoint(name, value, "torch_dynamo_backends")
    assert name == "vklab" and point.load().__name__ == "vklab_backend"
    assert torch._dynamo.lookup_backend("vklab") is point.load()


@pytest.mark.parametrize("missing", ["torch", "onnxscript"])
def test_without_torch_the_error_names_the_extra(missing):
    code = f"""
import dataclasses
import sys
sys.modules[{missing!r}] = None
import vklab
try:
    vklab.from_torch(None, None)
except vklab.SetupError as error:
    print(error)
"""
    said = python(code, PYTHON_SERVER="")
    assert f"{missing} is not installed" in said and 'pip install "vklab[torch]"' in said
