"""vklab.distributed: batches over Dask workers, in order, whoever dies on the way."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import logging
import os
import signal
import sys

import numpy as np
import onnx
import pytest
from onnx import helper
from tqdm import tqdm

import vklab
from support.graphs.small_models import DATA, model, random_array, value
from support.runs.child import LIMIT_S
from support.runs.two_drivers import both
from vklab.apps import cli, distributed
from vklab.apps.distributed import batches as batches_module
from vklab.errors import ModelError, SetupError, VklabError

DIGITS = DATA / "digits_cnn.onnx"


@contextlib.contextmanager
def cluster(count, **options):
    """Start workers; the scheduler runs in this process."""
    dask = pytest.importorskip("dask.distributed")
    with (
        dask.LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            memory_limit=None,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
            **options,
        ) as started,
        dask.Client(started) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client():
    with cluster(2) as found:
        yield found


@pytest.fixture(scope="module")
def batches():
    images = np.load(DATA / "digits.npz")["images"]
    return [images[start : start + 20] for start in range(0, 400, 20)]


@pytest.fixture(scope="module")
def expected(batches):
    with vklab.load(DIGITS, 0) as session:
        return [session.run(batch)["logits"] for batch in batches]


def require_equal(results, expected):
    results = list(results)
    assert len(results) == len(expected)
    for result, want in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result["logits"], want)


def models_held(dask_worker):
    """Return, on a worker, the models that it holds: their size, and the open session."""
    return [
        (len(plugin.model), id(plugin._session))
        for plugin in dask_worker.plugins.values()
        if hasattr(plugin, "model")
    ]


pytestmark = pytest.mark.full


def test_results_come_in_order_from_workers_that_load_once(client, batches, expected, device_index):
    running = distributed.map(DIGITS, batches, client, device=device_index, in_flight=6)
    results = [next(running) for _ in range(8)]
    first = client.run(models_held)
    results += [next(running) for _ in range(8)]
    assert client.run(models_held) == first and len(first) == 2
    for held in first.values():
        ((size, session),) = held
        assert size == DIGITS.stat().st_size and session != id(None)
    require_equal([*results, *running], expected)
    assert set(map(tuple, client.run(models_held).values())) == {()}  # and it is taken back


@pytest.mark.parametrize("moment", [0, 7])
def test_killing_a_worker_loses_nothing(client, batches, expected, device_index, moment):
    running = distributed.map(DIGITS, batches, client, device=device_index)
    results = [next(running) for _ in range(moment + 1)]
    victim = sorted(client.run(os.getpid).values())[0]
    os.kill(victim, signal.SIGKILL)
    require_equal([*results, *running], expected)
    client.wait_for_workers(2, timeout=LIMIT_S)  # its nanny starts another
    assert victim not in client.run(os.getpid).values()


@pytest.mark.slow
def test_the_only_worker_is_killed_and_comes_back(batches, expected, device_index):
    with cluster(1) as found:
        running = distributed.map(DIGITS, batches, found, device=device_index)
        results = [next(running)]
        os.kill(*found.run(os.getpid).values(), signal.SIGKILL)
        require_equal([*results, *running], expected)
        # A batch that kills whoever runs it is given up, and says so.
        deadly = distributed.map(DIGITS, [_Deadly()], found, device=device_index)
        with pytest.raises(VklabError, match="batch 0: every worker that ran it died"):
            list(deadly)


class _Deadly:
    """End every process that unpickles it, but for the one it was made in."""

    def __init__(self, home=None):
        self.home = home or os.getpid()
        if os.getpid() != self.home:
            os.kill(os.getpid(), signal.SIGKILL)

    def __reduce__(self):
        return _Deadly, (self.home,)


def test_batches_are_arrays_tuples_or_dicts(client, device_index):
    proto = model(
        [helper.make_node("Sub", ["a", "b"], ["y"])],
        [value("a", ("n", 3)), value("b", ("n", 3))],
        ["y"],
    )
    a, b = random_array((4, 3)), random_array((4, 3), 1)
    given = ((a, b), {"b": b, "a": a}) * 2
    for result in distributed.map(proto, iter(given), client, device=device_index):
        np.testing.assert_array_equal(result["y"], a - b)


def test_external_data_and_compiled_models_travel_whole(client, tmp_path, device_index):
    x, w = random_array((1, 512)), random_array((1, 512), 1)
    proto = model(
        [helper.make_node("Add", ["x", "w"], ["y"])], [value("x", (1, 512))], ["y"], {"w": w}
    )
    onnx.save(
        proto, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="m.bin"
    )
    assert (
        cli.main(
            [
                "compile",
                str(tmp_path / "m.onnx"),
                "--output",
                str(tmp_path / "m.vklab"),
                "--device",
                str(device_index),
            ]
        )
        == 0
    )
    for name in ("m.onnx", "m.vklab"):
        running = distributed.map(tmp_path / name, [x, x], client, device=device_index)
        assert [r["y"].tolist() for r in running] == [(x + w).tolist()] * 2


def test_errors_of_the_model_come_as_they_are(client, device_index, batches):
    wrong = np.zeros((2, 3), np.float32)
    running = distributed.map(DIGITS, [batches[0], wrong, batches[1]], client, device=device_index)
    next(running)
    with pytest.raises(ModelError, match="image"):
        next(running)
    assert set(map(tuple, client.run(models_held).values())) == {()}
    with pytest.raises(ModelError, match="no ONNX model"):
        next(distributed.map(b"nothing", batches, client))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        distributed.map("nowhere.onnx", batches, client)


def test_only_so_many_batches_are_taken_ahead(client, batches, expected, device_index):
    taken = itertools.count()

    def feed():
        for batch in batches:
            next(taken)
            yield batch

    running = distributed.map(DIGITS, feed(), client, device=device_index, in_flight=3)
    next(running)
    assert next(taken) == 3
    running.close()  # nothing is left behind
    assert set(map(tuple, client.run(models_held).values())) == {()}
    with pytest.raises(ValueError, match="in_flight=0"):
        distributed.map(DIGITS, batches, client, in_flight=0)


def test_a_bar_counts_the_batches_on_a_terminal(client, batches, monkeypatch, device_index):
    bars = []

    class Screen(io.StringIO):
        """What a bar is drawn on."""

        def __init__(self, is_terminal):
            super().__init__()
            self.isatty = lambda: is_terminal

    def draw(screen, **options):
        bars.append(tqdm(**options, file=screen, mininterval=0))
        return bars[-1]

    for given, progress, is_terminal, shown in (
        (batches[:5], True, True, ["0/5", "1/5", "5/5"]),
        (iter(batches[:5]), True, True, ["0batch", "1batch", "5batch"]),
        (batches[:5], True, False, []),
        (batches[:5], False, True, []),
    ):
        screen = Screen(is_terminal)
        monkeypatch.setattr(batches_module, "tqdm", functools.partial(draw, screen))
        running = distributed.map(DIGITS, given, client, device=device_index, progress=progress)
        for done, _ in enumerate(running, 1):
            assert bars[-1].n == (done if shown else 0)
        said = screen.getvalue()
        assert all(part in said for part in shown) and bool(said) == bool(shown), said
        assert said.endswith("\r") or not shown  # it is wiped at the end


def test_arrays_that_are_filled_anew_are_sent_as_they_were(client, batches, expected, device_index):
    def feed():
        place = np.empty_like(batches[0])
        for batch in batches:
            place[...] = batch
            yield {"image": place}

    require_equal(distributed.map(DIGITS, feed(), client, device=device_index), expected)


@pytest.mark.slow
def test_a_cluster_without_workers_is_no_hang(batches, expected, device_index):
    with (
        vklab.settings.settings(TIMEOUT=1.0),
        cluster(0) as none,
        pytest.raises(SetupError, match="had no worker for 1 s"),
    ):
        next(distributed.map(DIGITS, batches, none))
    with cluster(1) as client:
        running = distributed.map(DIGITS, batches * 20, client, device=device_index, in_flight=300)
        require_equal([next(running)], expected[:1])
        client.cluster.scale(0)
        with (
            vklab.settings.settings(TIMEOUT=1.0),
            pytest.raises(VklabError, match="had no worker for 1 s"),
        ):
            list(running)


def test_a_worker_without_a_vulkan_device_is_named(batches):
    nothing = {"VK_DRIVER_FILES": "/nowhere.json", "VK_ICD_FILENAMES": "/nowhere.json"}
    with cluster(1, env=nothing) as client:
        name, address = next((w["name"], a) for a, w in client.scheduler_info()["workers"].items())
        with pytest.raises(SetupError, match=f"worker {name} at {address}: "):
            list(distributed.map(DIGITS, batches[:1], client))


def test_a_cluster_of_its_own_by_address_and_one_that_is_not_there(batches, expected, client):
    address = client.scheduler.address
    require_equal(distributed.map(DIGITS, batches[:3], address, device=0), expected[:3])
    with (
        vklab.settings.settings(TIMEOUT=0.5),
        pytest.raises(SetupError, match="no Dask scheduler answers at tcp://127.0.0.1:9"),
    ):
        next(distributed.map(DIGITS, batches, "tcp://127.0.0.1:9"))


@pytest.mark.slow
def test_a_worker_for_each_device_of_two_drivers():
    both("""
import numpy as np, vklab
from support.graphs.small_models import DATA
images = np.load(DATA / "digits.npz")["images"]
batches = [images[start : start + 20] for start in range(0, 200, 20)]
with vklab.load(DATA / "digits_cnn.onnx") as session:
    expected = [session.run(batch)["logits"] for batch in batches]
running = vklab.distributed.map(DATA / "digits_cnn.onnx", batches, progress=False)
results = [next(running) for _ in range(8)]
import dask.distributed
def device(dask_worker):
    sessions = [getattr(p, "_session", None) for p in dask_worker.plugins.values()]
    return [session.device.name.split()[0] for session in sessions if session]
found = sorted(sum(dask.distributed.default_client().run(device).values(), []))
assert found == ["SwiftShader", "llvmpipe"], found
results += running
assert len(results) == 10
for result, want in zip(results, expected):
    assert abs(result["logits"] - want).max() <= 1e-4
""")


def test_without_dask_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "dask", None)
    monkeypatch.delitem(sys.modules, "dask.distributed", raising=False)
    with pytest.raises(SetupError, match=r"pip install 'vklab\[distributed\]'"):
        distributed.map(DIGITS, [])
