"""`torch.compile(model, backend="vklab")`: what runs here, what stays in PyTorch, what is freed."""

from __future__ import annotations

import gc
import logging

import pytest
import torch
from torch import nn

from vklab.apps.pytorch import graphs
from vklab.runtime import open_devices

pytestmark = pytest.mark.full


def vklab_backend(*given, **options):
    """Call the backend; importing it brings Dynamo, which takes seconds in each worker."""
    from vklab.apps.pytorch import backend

    return backend.vklab_backend(*given, **options)


@pytest.fixture
def compiled(device_index, monkeypatch):
    """Return a function that compiles for a device, and the graphs that were compiled."""
    made: list[graphs.CompiledGraph] = []
    build = graphs.CompiledGraph.__init__

    def noted(self, *args):
        build(self, *args)
        made.append(self)

    def compile_it(function, **options):
        options = {"device": device_index, "fallback": False, **options}
        is_open = options.pop("dynamic", None)
        return torch.compile(function, backend=vklab_backend, dynamic=is_open, options=options)

    monkeypatch.setattr(graphs.CompiledGraph, "__init__", noted)
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield compile_it, made
    torch._dynamo.reset()
    made.clear()
    gc.collect()
    open_devices.open_device(device_index).free_forgotten()


def agree(compiled, eager, *args) -> None:
    """Compare results, and what became of the arguments."""
    mine = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    theirs = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    with torch.no_grad():
        found, expected = compiled(*mine), eager(*theirs)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    for mine_after, after in zip(mine, theirs, strict=True):
        if isinstance(after, torch.Tensor):
            torch.testing.assert_close(mine_after, after, rtol=1e-4, atol=1e-5)


class Broken(nn.Module):
    """Two layers with a graph break between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        """Return the second of the first."""
        y = self.first(x).relu()
        torch._dynamo.graph_break()
        return self.second(y)


def loaded(made) -> list[int]:
    """Return how many sessions each graph holds."""
    return [len(graph._loaded) for graph in made]


def test_one_graph_of_open_dimensions_serves_every_batch(compiled):
    compile_it, made = compiled
    module = nn.Sequential(nn.Linear(8, 13), nn.Tanh(), nn.Linear(13, 3))
    function = compile_it(module, dynamic=True)
    for batch in (3, 5, 7):
        agree(function, module, torch.randn(batch, 8))
    assert loaded(made) == [1] and len(made[0]._exports) == 1


def test_weights_may_change_and_sessions_go_with_them(compiled, device_index):
    compile_it, made = compiled
    opened = open_devices.open_device(device_index)
    before = opened.allocator.used_bytes
    module = Broken()
    function = compile_it(module)
    x = torch.randn(3, 8)
    agree(function, module, x)
    assert loaded(made) == [1, 1], "one session on each side of the break"
    with torch.no_grad():
        module.first.weight.mul_(2)
    agree(function, module, x)
    module.second.weight = nn.Parameter(torch.randn(8, 8))
    agree(function, module, x)
    assert loaded(made) == [1, 1]
    for _ in range(graphs.MOST_CHANGES):
        with torch.no_grad():
            module.first.bias.add_(1)
        agree(function, module, x)
    assert not made[0]._weights, "weights that keep changing are fed"
    del module, function
    gc.collect()
    assert loaded(made) == [0, 0]
    opened.free_forgotten()
    assert opened.allocator.used_bytes == before


def test_what_asks_for_gradients_stays_in_pytorch(compiled, caplog):
    compile_it, made = compiled
    module = nn.Linear(8, 3)
    function = compile_it(module, fallback=True)
    with caplog.at_level(logging.WARNING, logger="vklab"):
        function(torch.randn(2, 8)).sum().backward()
    assert module.weight.grad is not None and not made
    assert "torch.no_grad()" in caplog.text and len(caplog.records) == 1


REFUSED = {
    "operator": (lambda x: torch.linalg.svdvals(x), "_linalg_svd"),
    "random": (lambda x: x + torch.rand_like(x), "random numbers"),
    "training": (lambda x: nn.functional.batch_norm(x, x[0] * 0, x[1] * 0, training=True),
                 "in training mode"),
    "complex": (lambda x: torch.complex(x, x), "complex"),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n != "complex")) for n in REFUSED]
)
def test_what_onnx_lacks_stays_in_pytorch_or_is_an_error(name, compiled, caplog):
    compile_it, made = compiled
    function, words = REFUSED[name]
    x = torch.randn(4, 4)
    with torch.no_grad(), caplog.at_level(logging.WARNING, logger="vklab"):
        compile_it(function, fallback=True)(x)
    assert words in caplog.text and "stays in PyTorch" in caplog.text and not made
    torch._dynamo.reset()
    with torch.no_grad(), pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=words):
        compile_it(function)(x)


EFFECTS = {
    "writes to its input": lambda x, y: (x.add_(1), x @ y.t())[1],
    "writes to a part": lambda x, y: (x[0].copy_(y[1]), (x * y).relu())[1],
    "returns a view of its input": lambda x, y: (x[:, :3], (x * y).sum(1)),
    "returns two views": lambda x, y: ((z := x * y), z.t()),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (i != 2)) for i, n in enumerate(EFFECTS)]
)
def test_writes_and_views_are_those_of_pytorch(name, compiled):
    compile_it, made = compiled
    agree(compile_it(EFFECTS[name]), EFFECTS[name], torch.randn(3, 8), torch.randn(3, 8))
    assert loaded(made) == [1] and made[0]._is_functional
    if "view of" in name:
        x = torch.randn(3, 8)
        compile_it(EFFECTS[name])(x, x)[0].zero_()
        assert not x[:, :3].any(), "the view is one"


@pytest.mark.slow
def test_python_numbers_open_sizes_and_kinds_of_tensors(compiled):
    compile_it, made = compiled

    def function(x, mask, times):
        return torch.where(mask, x * times + x.shape[0], x), x.shape[0] * 2

    compiled_function = compile_it(function, dynamic=True)
    for rows, times in ((3, 2), (4, 3), (5, 3)):
        x = torch.arange(rows * 2).reshape(rows, 2)
        agree(compiled_function, function, x, x > 1, times)
        agree(compiled_function, function, x.float(), x > 1, times)
    assert [len(graph._exports) for graph in made] == [2, 2], "one for each number"


@pytest.mark.slow
def test_layers_that_share_a_graph_have_sessions_of_their_own(compiled):
    compile_it, made = compiled
    layers = [Broken() for _ in range(3)]
    function = compile_it(lambda layer, x: layer.first(x).relu())
    for layer in layers:
        agree(function, lambda layer, x: layer.first(x).relu(), layer, torch.ones(2, 8))
    assert loaded(made) == [3]


@pytest.mark.slow
def test_more_numbers_than_kept_are_left_to_pytorch(compiled, monkeypatch, caplog):
    compile_it, made = compiled
    monkeypatch.setattr(graphs, "MOST_EXPORTS", 2)
    function = compile_it(lambda x, n: x * n, dynamic=True, fallback=True)
    with caplog.at_level(logging.WARNING, logger="vklab"):
        for number in (2, 3, 4, 5):
            agree(function, lambda x, n: x * n, torch.randn(2, 3), number)
    assert len(caplog.records) == 1 and "more than 2 sets" in caplog.text
    assert loaded(made) == [0]


def test_an_unknown_device_is_an_error(device_index):
    torch._dynamo.reset()
    options = {"device": "no such device"}
    function = torch.compile(lambda x: x + 1, backend=vklab_backend, options=options)
    with pytest.raises(Exception, match="no device is called 'no such device'"):
        function(torch.ones(2))
    torch._dynamo.reset()


def test_an_unknown_device_is_told_where_pytorch_suppresses_errors(device_index, caplog):
    layer, x = nn.Linear(4, 3).eval(), torch.randn(2, 4)
    options = {"device": "no such device"}
    caplog.set_level(logging.WARNING)
    torch._dynamo.reset()
    with torch._dynamo.config.patch(suppress_errors=True), torch.no_grad():
        made = torch.compile(layer, backend=vklab_backend, options=options)(x)
        torch.testing.assert_close(made, layer(x))  # PyTorch runs it, as its option promises
    torch._dynamo.reset()
    assert "no device is called 'no such device'" in caplog.text
