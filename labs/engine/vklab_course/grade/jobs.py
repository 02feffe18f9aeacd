"""Jobs of a batch: each grades one submission, in a process of its own or on a Dask cluster.

A job that crashes, hangs or loses its worker costs its own submission at most. The outcome of a job
is plain data; this module writes no files.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import vklab
from vklab.errors import SetupError

__all__ = ["Job", "Judge", "environment", "guarded", "run_jobs", "tell"]

# Longer than any session's own limits: only a grader that hangs reaches it.
WALL_S = 3600.0
START_S, END_S = 30.0, 5.0
# What the server whose forks are jobs imports, besides the judge's module.
PRELOADED = [__name__, "vklab_course.grade.preload"]
# In the process of one job: where a judge's entries go before its outcome.
_told: list[Any] = []


@dataclass(frozen=True)
class Job:
    """One submission to grade: the rebuilt notebook, and everything that decides its marks.

    Attributes:
        key: name of the record.
        lab: the lab's name.
        notebook: JSON text of the rebuilt notebook.
        exercises: the exercises to grade.
        variant: variant of each exercise.
        seed: the secret seed.
        labs: folder of the instructor's labs, with definitions.
        unsafe: run without a sandbox.
        image: image of a container that is the sandbox; bubblewrap if empty.
        times: processor seconds of the reference's answers, by exercise.
    """

    key: str
    lab: str
    notebook: str
    exercises: tuple[str, ...]
    variant: dict[str, int]
    seed: str
    labs: str
    unsafe: bool = False
    image: str = ""
    times: Mapping[str, float] = field(default_factory=dict)


Outcome = dict[str, Any]
Judge = Callable[[Job], Outcome]


def environment() -> dict[str, str]:
    """Return the versions that may decide a mark."""
    return {"vklab": vklab.__version__, "numpy": np.__version__,
            "python": ".".join(platform.python_version_tuple()[:2]),
            "system": f"{platform.system()} {platform.machine()}"}  # fmt: skip


def run_jobs(
    jobs: Sequence[Job], judge: Judge, processes: int = 1, dask: str | None = None,
    wall_s: float = WALL_S, again: bool = True,
) -> Iterator[tuple[Job, Outcome]]:  # fmt: skip
    """Yield each job with its outcome, as they end; late ones are tried again alone first.

    Args:
        jobs: the jobs.
        judge: grades one job, in another process; must be importable there.
        processes: number of jobs at a time on this machine.
        dask: address of a Dask scheduler, or "local" for a cluster of this machine.
        wall_s: time after which a job of this machine is ended.
        again: try late jobs again.
    """
    late = []
    source = _by_dask(jobs, judge, dask, processes) if dask else _here(
        jobs, judge, processes, wall_s
    )
    for job, outcome in source:
        if again and _timed_out(outcome):
            late.append(job)
        else:
            yield job, outcome
    # Beside other jobs a slow machine can look like a slow answer: what counts was run alone.
    yield from _here(late, judge, 1, wall_s)


def _timed_out(outcome: Outcome) -> bool:
    results = outcome.get("exercises", {})
    return outcome.get("ended") == "timeout" or isinstance(results, dict) and any(
        isinstance(r, dict) and r.get("status") == "timeout" for r in results.values()
    )


def tell(entries: Mapping[str, Any]) -> None:
    """Keep entries of exercises, for the case that this process does not reach its outcome.

    A judge that calls it first without entries, before it runs a submission's code in its own
    process, says that the submission may end that process.
    """
    for pipe in _told:
        pipe.send({"judged": dict(entries)})


def guarded(judge: Judge, job: Job) -> Outcome:
    """Return the outcome of a job; an error of the grader is an outcome, too."""
    try:
        return judge(job)
    except Exception as error:
        return {"broken": f"the grader failed: {type(error).__name__}: {str(error)[:2000]}"}


def _here(
    jobs: Sequence[Job], judge: Judge, processes: int, wall_s: float
) -> Iterator[tuple[Job, Outcome]]:
    if not jobs:
        return
    context = _context(judge)
    stop = threading.Event()
    with ThreadPoolExecutor(max(1, processes)) as pool:
        try:
            waiting = [pool.submit(_in_process, context, judge, job, wall_s, stop) for job in jobs]
            for future in as_completed(waiting):
                yield future.result()
        finally:
            stop.set()
            for future in waiting:
                future.cancel()


def _context(judge: Judge) -> Any:
    """Return a way to start processes: forks of a small server that has the imports loaded."""
    if os.name != "posix":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED, getattr(judge, "__module__", __name__)])
    return context


def _in_process(
    context: Any, judge: Judge, job: Job, wall_s: float, stop: threading.Event
) -> tuple[Job, Outcome]:
    if stop.is_set():
        return job, {"broken": "the batch was stopped"}
    ours, theirs = context.Pipe(duplex=False)
    given = (theirs, judge, job, dict(os.environ))
    process = context.Process(target=_child, args=given, name=job.key)
    process.start()
    theirs.close()
    outcome: Outcome = {}
    kept: dict[str, Any] | None = None
    ends = time.monotonic() + wall_s
    try:
        while not outcome:
            if ours.poll(0.5):
                received = ours.recv()
                if "judged" not in received:
                    outcome = received
                    continue
                kept = {**(kept or {}), **received["judged"]}
            if time.monotonic() > ends:
                return job, _cut(kept, "timeout", f"did not end within {wall_s:g} s")
            if stop.is_set():
                return job, {"broken": "the batch was stopped"}
    except EOFError:
        process.join(START_S)
        outcome = _cut(kept, "error", f"ended with exit code {process.exitcode}")
    finally:
        ours.close()
        _end(process, END_S if outcome else 0.0)
    return job, outcome


def _cut(kept: Mapping[str, Any] | None, status: str, why: str) -> Outcome:
    """Return the outcome of a job whose process ended without one.

    Args:
        kept: what the judge told; None if it told nothing.
        status: timeout or error.
        why: how the process ended.
    """
    if kept is None:
        return {"broken": f"the grader's process {why}"}
    return {"exercises": dict(kept), "broken": "", "interrupted": f"its process {why}",
            "ended": status}  # fmt: skip


def _end(process: Any, patience_s: float) -> None:
    process.join(patience_s)
    if process.is_alive():
        process.terminate()
        process.join(END_S)
    if process.is_alive():
        process.kill()
        process.join()


def _child(pipe: Any, judge: Judge, job: Job, variables: dict[str, str]) -> None:
    os.environ.clear()  # of the server, which may have been started under other switches
    os.environ.update(variables)
    _told[:] = [pipe]
    outcome = guarded(judge, job)
    with contextlib.suppress(BrokenPipeError):  # the grader was killed
        pipe.send(outcome)
    pipe.close()


def _by_dask(
    jobs: Sequence[Job], judge: Judge, address: str, processes: int
) -> Iterator[tuple[Job, Outcome]]:
    """Run jobs on a cluster; a job whose worker dies runs again on another, a few times."""
    try:
        import dask.distributed as distributed
    except ImportError as error:
        raise SetupError(f"--dask needs Dask ({error})",
                         "pip install 'vklab[distributed]'") from error  # fmt: skip
    with contextlib.ExitStack() as stack:
        if address == "local":
            cluster = stack.enter_context(distributed.LocalCluster(
                n_workers=max(1, processes), threads_per_worker=1, memory_limit=None,
                dashboard_address="127.0.0.1:0", silence_logs=logging.ERROR,
            ))  # fmt: skip
            client = stack.enter_context(distributed.Client(cluster))
        else:
            try:
                client = stack.enter_context(distributed.Client(address, timeout=START_S))
            except (OSError, ValueError) as error:
                raise SetupError(f"no Dask scheduler answers at {address}: {error}") from error
        futures = {client.submit(guarded, judge, job, key=f"{job.key}-{number}", pure=False): job
                   for number, job in enumerate(jobs)}  # fmt: skip
        for future in distributed.as_completed(list(futures)):
            job = futures.pop(future)
            if future.status == "finished":
                yield job, future.result()
            else:
                cause = future.exception()
                yield job, {"broken": f"its Dask workers died: {type(cause).__name__}: {cause}"}
