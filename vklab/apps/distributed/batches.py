"""Batches over the devices of a machine or of a cluster, through Dask distributed.

Decides how many batches are in flight, and repeats those of a worker that dies; `worker.py` runs
them. Visited by lab 13.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Sized
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from vklab import settings
from vklab.errors import ModelError, SetupError, VklabError
from vklab.runtime.observe import given

Results = Iterator[dict[str, np.ndarray]]
POLL_SECONDS = 1.0
IN_FLIGHT = 2  # batches per worker: one runs, the next is already on the worker


def map(  # noqa: A001  (the word of concurrent.futures and of Dask)
    model: Any,
    batches: Iterable[Any],
    client: Any = None,
    *,
    device: int | str | Sequence[int | str] | None = None,
    in_flight: int | None = None,
    progress: bool = True,
    **options: Any,
) -> Results:
    """Run a model on batches, one worker a device, and yield the results in order.

    The model is sent to each worker once. A batch whose worker dies runs again on another; an
    exception of the model is raised here. A script needs `if __name__ == "__main__":` around the
    call without `client`, because its workers are processes that import the script.

    Args:
        model: a path, bytes, or an onnx.ModelProto.
        batches: each an array, a tuple of arrays or a dict, as for `Session.run`; read as needed.
        client: a dask.distributed.Client, or a scheduler's address; default a cluster of this
            machine, with a worker for each device.
        device: index or name, or several: worker number k (by the last digits of its name) opens
            the k-th of them; default every device of the machine, CPUs only without any other.
        in_flight: most batches sent and not yet yielded; default two per worker.
        progress: show a bar on a terminal.
        options: dtype and upper_bounds of `vklab.load`.

    Raises SetupError without Dask, a worker or a device; VklabError if workers keep dying.
    """
    dask, worker = _dask()
    if in_flight is not None and in_flight < 1:
        raise ValueError(f"in_flight={in_flight}: give 1 or more")
    if getattr(client, "asynchronous", False):
        raise SetupError("the Dask client is asynchronous; pass a synchronous one, or an address")
    chosen = [] if device is None else [device] if isinstance(device, (int, str)) else [*device]
    plugin = worker.ModelPlugin(_shippable(model), chosen, options)
    return _results(dask, worker, plugin, batches, client, in_flight, progress)


def _dask() -> tuple[Any, Any]:
    try:
        import dask.distributed

        from vklab.apps.distributed import worker
    except ImportError as error:
        raise SetupError(
            f"batches over several workers need Dask ({error})", "pip install 'vklab[distributed]'"
        ) from error
    return dask, worker


def _shippable(model: Any) -> bytes:
    """Return a model with its external data as bytes, to send to the workers."""
    if isinstance(model, bytes):
        return model
    if given.is_compiled(model):
        return Path(model).read_bytes()
    onnx_import = _onnx_import()
    proto, folder = onnx_import.load_proto(model)
    try:
        if folder is not None:
            onnx_import.onnx.load_external_data_for_model(proto, str(folder))
        return bytes(proto.SerializeToString())
    except ValueError as error:
        raise ModelError(
            f"{model} cannot be sent to workers as one message ({error}); "
            "`vklab compile` makes a file that can"
        ) from error


def _onnx_import() -> Any:
    try:
        from vklab.graph import onnx_import
    except ImportError as error:
        raise SetupError(f"sending a model needs onnx ({error})", "pip install onnx") from error
    return onnx_import


def _results(
    dask: Any, worker: Any, plugin: Any, batches: Iterable[Any], client: Any,
    in_flight: int | None, progress: bool,
) -> Results:  # fmt: skip
    with contextlib.ExitStack() as stack:
        if client is None or isinstance(client, str):
            client = stack.enter_context(_client(dask, worker, client, len(plugin.devices)))
        _require_workers(client)
        name = f"vklab-{uuid.uuid4().hex}"
        waiting: deque[tuple[int, Any]] = deque()
        stack.callback(_withdraw, client, name, waiting)
        client.register_plugin(plugin, name=name)
        total = len(batches) if isinstance(batches, Sized) else None
        bar = stack.enter_context(
            tqdm(total=total, unit="batch", leave=False, disable=None if progress else True)
        )
        window = in_flight or IN_FLIGHT * max(1, len(client.nthreads()))
        for number, batch in enumerate(batches):
            waiting.append((number, _submit(client, worker, name, number, batch)))
            if len(waiting) >= window:
                yield _next(dask, client, waiting, bar)
        while waiting:
            yield _next(dask, client, waiting, bar)


@contextlib.contextmanager
def _client(dask: Any, worker: Any, address: str | None, count: int) -> Iterator[Any]:
    """Connect to a scheduler, or start a cluster on this machine."""
    if address is not None:
        try:
            client = dask.distributed.Client(address, timeout=settings.get("TIMEOUT"))
        except (OSError, ValueError) as error:
            raise SetupError(f"no Dask scheduler answers at {address}: {error}") from error
        with client:
            yield client
        return
    with (
        dask.distributed.LocalCluster(
            n_workers=count or len(worker.candidates()),
            threads_per_worker=1,
            processes=True,
            # Dask counts mapped device memory as the process's own: set no limit.
            memory_limit=None,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.ERROR,
        ) as cluster,
        dask.distributed.Client(cluster) as client,
    ):
        yield client


def _require_workers(client: Any) -> None:
    seconds = float(settings.get("TIMEOUT"))
    try:
        client.wait_for_workers(1, timeout=seconds)
    except TimeoutError as error:
        raise SetupError(f"the Dask cluster has had no worker for {seconds:g} s") from error


def _withdraw(client: Any, name: str, waiting: Iterable[tuple[int, Any]]) -> None:
    """Cancel the batches and remove the model from all workers, if the cluster still runs."""
    with contextlib.suppress(Exception):
        client.cancel([future for _, future in waiting])
        client.unregister_worker_plugin(name)


def _submit(client: Any, worker: Any, name: str, number: int, batch: Any) -> Any:
    with warnings.catch_warnings():
        # A batch is part of its task, so that the scheduler can give it to another worker.
        warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
        return client.submit(worker.run, name, _copy(batch), key=f"{name}-{number}", pure=False)


def _copy(batch: Any) -> Any:
    """Return a copy of a batch: the caller may overwrite its arrays before they are sent."""
    if isinstance(batch, tuple):
        return tuple(_copy(array) for array in batch)
    if isinstance(batch, dict):
        return {name: _copy(array) for name, array in batch.items()}
    return np.array(batch) if isinstance(batch, np.ndarray) else batch


def _next(dask: Any, client: Any, waiting: deque[tuple[int, Any]], bar: Any) -> Any:
    number, future = waiting[0]
    try:
        _wait(dask, client, future)
        result = future.result()
    except dask.distributed.KilledWorker as error:
        raise VklabError(
            f"batch {number}: every worker that ran it died ({error}); read the workers' logs"
        ) from error
    except dask.distributed.CancelledError as error:
        raise VklabError(
            f"batch {number} was cancelled: the scheduler or the client is gone ({error})"
        ) from error
    waiting.popleft()
    future.release()
    bar.update()
    return result


def _wait(dask: Any, client: Any, future: Any) -> None:
    """Wait for a batch; raise VklabError after TIMEOUT seconds without a worker."""
    limit = float(settings.get("TIMEOUT"))
    seen = time.monotonic()
    while not future.done():
        with contextlib.suppress(TimeoutError):
            dask.distributed.wait(future, timeout=POLL_SECONDS)
            return
        if client.status == "running" and client.nthreads():
            seen = time.monotonic()
        elif time.monotonic() - seen > limit:
            raise VklabError(f"the Dask cluster has had no worker for {limit:g} s")
