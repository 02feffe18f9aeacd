"""Jobs of a batch: each grades one submission, in a process of its own or on a Dask cluster.

A job that crashes, hangs or loses its worker costs its own submission at most. The outcome of a job
is plain data; this module writes no files.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import platform
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import vklab
from vklab.errors import SetupError
from vklab_course.grade import bounds, own_process

__all__ = ["Job", "Judge", "environment", "guarded", "run_jobs", "tell"]

# Longer than any session's own limits: only a grader that hangs reaches them.
WALL_S, SPARE_S = 3600.0, 300.0
START_S = 30.0
# With less time than this a submission is not run.
LEAST_S = 30.0
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
        student: whose it is: the jobs of one student share their time.
        seconds: time by the clock.
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
    student: str = ""
    seconds: float = bounds.STUDENT_S


Outcome = dict[str, Any]
Judge = Callable[[Job], Outcome]


def environment() -> dict[str, str]:
    """Return the versions that may decide a mark."""
    return {
        "vklab": vklab.__version__,
        "numpy": np.__version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "system": f"{platform.system()} {platform.machine()}",
    }


def run_jobs(
    jobs: Sequence[Job], judge: Judge, processes: int = 1, dask: str | None = None,
    wall_s: float = WALL_S, again: bool = True,
) -> Iterator[tuple[Job, Outcome]]:  # fmt: skip
    """Yield each job with its outcome, as they end; late ones are tried again first.

    The jobs of one student run one after the other, and share `bounds.STUDENT_S` seconds.

    Args:
        jobs: the jobs.
        judge: grades one job, in another process; must be importable there.
        processes: number of jobs at a time on this machine.
        dask: address of a Dask scheduler, or "local" for a cluster of this machine.
        wall_s: time after which a job of this machine is ended.
        again: try late jobs again.
    """
    spent: dict[str, float] = {}
    late: dict[str, tuple[Job, Outcome]] = {}
    source = (
        _by_dask(jobs, judge, dask, processes)
        if dask
        else _here(jobs, judge, processes, wall_s, spent)
    )
    for job, outcome, seconds in source:
        spent[_owner(job)] = spent.get(_owner(job), 0.0) + seconds
        if again and _timed_out(outcome) and spent[_owner(job)] + seconds < bounds.STUDENT_S:
            late[job.key] = job, outcome
        else:
            yield job, outcome
    # Beside other jobs a slow machine can look like a slow answer: half as many run at a time.
    second = [job for job, _ in late.values()]
    for job, outcome, _ in _here(second, judge, processes // 2, wall_s, spent):
        first = late[job.key][1]
        yield job, first if outcome.get("interrupted") and not first.get("interrupted") else outcome


def _timed_out(outcome: Outcome) -> bool:
    results = outcome.get("exercises", {})
    return (
        outcome.get("ended") == "timeout"
        or isinstance(results, dict)
        and any(isinstance(r, dict) and r.get("status") == "timeout" for r in results.values())
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
    jobs: Sequence[Job], judge: Judge, processes: int, wall_s: float, spent: Mapping[str, float]
) -> Iterator[tuple[Job, Outcome, float]]:
    """Yield each job with its outcome and seconds.

    Args:
        jobs: the jobs.
        judge: grades one job.
        processes: number of jobs at a time.
        wall_s: time after which a job is ended.
        spent: seconds that each student has used before.
    """
    stop = threading.Event()
    ended: queue.SimpleQueue[tuple[Job, Outcome, float]] = queue.SimpleQueue()

    def run(job: Job) -> Outcome:
        return _in_process(judge, job, min(wall_s, job.seconds + SPARE_S), stop)

    def chain(mine: Sequence[Job], before: float) -> None:
        for one in _in_turn(mine, run, before):
            ended.put(one)

    with ThreadPoolExecutor(max(1, processes)) as pool:
        try:
            waiting = [
                pool.submit(chain, mine, spent.get(student, 0.0))
                for student, mine in _by_student(jobs).items()
            ]
            for _ in jobs:
                yield ended.get()
        finally:
            stop.set()
            for future in waiting:
                future.cancel()


def _owner(job: Job) -> str:
    return job.student or job.key


def _by_student(jobs: Sequence[Job]) -> dict[str, list[Job]]:
    chains: dict[str, list[Job]] = {}
    for job in jobs:
        chains.setdefault(_owner(job), []).append(job)
    return chains


def _in_turn(
    jobs: Sequence[Job], run: Callable[[Job], Outcome], spent: float
) -> Iterator[tuple[Job, Outcome, float]]:
    """Run the jobs of one student in what is left of the student's time.

    Args:
        jobs: the jobs; the first one has the most time.
        run: returns the outcome of a job, and never raises.
        spent: seconds that the student has used before.
    """
    for job in jobs:
        left, began = bounds.STUDENT_S - spent, time.monotonic()
        if left < LEAST_S:
            said = (
                f"it was not run: a student's submissions of a lab have {bounds.STUDENT_S:g} s "
                "together, and the others had used them"
            )
            yield job, {"exercises": {}, "interrupted": said, "ended": "timeout"}, 0.0
            continue
        outcome = run(replace(job, seconds=left))
        spent += time.monotonic() - began
        yield job, outcome, time.monotonic() - began


def _in_process(judge: Judge, job: Job, wall_s: float, stop: threading.Event) -> Outcome:
    kept: dict[str, Any] | None = None
    said = own_process.messages(
        _child,
        (judge, job),
        wall_s,
        name=job.key,
        stop=stop,
        modules=[getattr(judge, "__module__", __name__)],
    )
    with contextlib.closing(said):
        try:
            for received in said:
                if "judged" not in received:
                    return dict(received)
                kept = {**(kept or {}), **received["judged"]}
        except own_process.Ended as ended:
            if ended.how == "stopped":
                return {"broken": "the batch was stopped"}
            return _cut(kept, ended.how, str(ended))
        except Exception as error:  # what came cannot be read
            return _cut(kept, "error", f"sent no outcome: {type(error).__name__}: {error}")
    return _cut(kept, "error", "sent no outcome")


def _cut(kept: Mapping[str, Any] | None, status: str, why: str) -> Outcome:
    """Return the outcome of a job whose process ended without one.

    Args:
        kept: what the judge told; None if it told nothing.
        status: timeout or error.
        why: how the process ended.
    """
    if kept is None:
        return {"broken": f"the grader's process {why}"}
    return {
        "exercises": dict(kept),
        "broken": "",
        "interrupted": f"its process {why}",
        "ended": status,
    }


def _child(pipe: Any, judge: Judge, job: Job) -> None:
    _told[:] = [pipe]
    pipe.send(guarded(judge, job))


def _chain(judge: Judge, jobs: Sequence[Job]) -> list[tuple[Outcome, float]]:
    return [
        (outcome, seconds)
        for _, outcome, seconds in _in_turn(jobs, functools.partial(guarded, judge), 0.0)
    ]


def _by_dask(
    jobs: Sequence[Job], judge: Judge, address: str, processes: int
) -> Iterator[tuple[Job, Outcome, float]]:
    """Run jobs on a cluster; a student whose worker dies has others, a few times."""
    try:
        import dask.distributed as distributed
    except ImportError as error:
        raise SetupError(
            f"--dask needs Dask ({error})", "pip install 'vklab[distributed]'"
        ) from error
    with contextlib.ExitStack() as stack:
        if address == "local":
            cluster = stack.enter_context(
                distributed.LocalCluster(
                    n_workers=max(1, processes),
                    threads_per_worker=1,
                    memory_limit=None,
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.ERROR,
                )
            )
            client = stack.enter_context(distributed.Client(cluster))
        else:
            try:
                client = stack.enter_context(distributed.Client(address, timeout=START_S))
            except (OSError, ValueError) as error:
                raise SetupError(f"no Dask scheduler answers at {address}: {error}") from error
        futures = {
            client.submit(_chain, judge, mine, key=f"{mine[0].key}-{n}", pure=False): mine
            for n, mine in enumerate(_by_student(jobs).values())
        }
        for future in distributed.as_completed(list(futures)):
            mine = futures.pop(future)
            if future.status == "finished":
                done = future.result()
            else:
                cause = future.exception()
                said = f"its Dask workers died: {type(cause).__name__}: {cause}"
                done = [({"broken": said}, 0.0)] * len(mine)
            for job, (outcome, seconds) in zip(mine, done, strict=True):
                yield job, outcome, seconds
