"""Load and close models thousands of times, and damaged models by the hundred thousand.

`python tests/support/runs/soak.py --loads 10000 --models 100000 --jobs 16` prints one JSON object;
its exit code is 1 if something grew or failed. A damaged model must give a result or an error of
vklab. A batch of models has a process of its own, which a native crash ends: the model is then in
the report.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import faulthandler
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests/, for a run of this file
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # the repository, for vklab

import vklab
from support.graphs import classifiers, tree_models
from support.graphs.small_models import DATA, relu
from support.models import suite_cases
from support.runs import fuzz, slang_server
from vklab.errors import DeviceLostError, VklabError
from vklab.errors import TimeoutError as DeviceTimeout
from vklab.vulkan import api

ROOT = Path(__file__).resolve().parents[3]
PATHS = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "stand_ins")]  # of children
EVERY = 500  # loads between two records
BATCH = 250  # damaged models of one process
HANG_S, START_S = 100, 300
# What the process may hold more at the end than after the first fifth: the allocator's own waves.
GROWTH_BYTES = 24 << 20
Report = dict[str, Any]


# ------------------------------------------------------------------------------ sound models


def resources() -> dict[str, int | None]:
    """Return what this process holds; None where the system does not tell."""
    found: dict[str, int | None] = dict.fromkeys(("rss_bytes", "files", "threads"))
    with contextlib.suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        status = Path("/proc/self/status").read_text()
        threads = re.search(r"Threads:\s+(\d+)", status)
        found = {
            "rss_bytes": pages * os.sysconf("SC_PAGE_SIZE"),
            "files": len(os.listdir("/proc/self/fd")),
            "threads": int(threads[1]) if threads else None,
        }
    return {
        **found,
        "python_threads": threading.active_count(),
        "vulkan_objects": sum(api.live_handles().values()),
    }


def loads(count: int) -> Report:
    """Load, run and close small models; record what the process holds every EVERY loads."""
    rng = np.random.default_rng(0)
    images = np.load(DATA / "digits.npz")["images"][:2]
    rows = tree_models.features(rng, 3)
    models = (
        (DATA / "digits_cnn.onnx", images),
        (relu((2, 3)), np.zeros((2, 3), np.float32)),
        (classifiers.forest(zipmap=False), rows[:, :3]),
        (tree_models.ml_model(tree_models.regressor(rng, 2, 2)), rows),
    )
    records = []
    every = min(EVERY, max(1, count // 10))
    for number in range(1, count + 1):
        model, fed = models[number % len(models)]
        with vklab.load(model) as session:
            session.run(fed)
        if number % every == 0:
            records.append({"loads": number, **resources()})
    first, last = records[len(records) // 5], records[-1]
    grown = {
        name: last[name] - first[name]
        for name in first
        if name != "loads" and last[name] is not None
    }
    steady = all(by <= (GROWTH_BYTES if name == "rss_bytes" else 0) for name, by in grown.items())
    return {"count": count, "grown": grown, "steady": steady, "records": records}


# ---------------------------------------------------------------------------- damaged models


def _seeds(pattern: str) -> list[fuzz.Seed]:
    """Return the sound models whose name matches: onnx's node cases, and ensembles of trees."""
    rng = np.random.default_rng(0)
    fed = {"X": np.nan_to_num(tree_models.features(rng, 3))}
    trees = [
        (f"{node.op_type} {number}", tree_models.ml_model(node), fed)
        for number in range(20)
        for node in (
            tree_models.regressor(rng, 1 + number % 3, 1, 2, 2, tree_models.MODES),
            tree_models.classifier(rng, 2 + number % 3, 1, 2, 2),
        )
    ]
    return [seed for seed in [*fuzz.seeds(), *trees] if re.search(pattern, seed[0])]


def _damaged(draw: fuzz.Draw, given: list[fuzz.Seed]) -> tuple[str, bytes, fuzz.Feed]:
    """Draw a model that is damaged by its fields, and maybe cut short or flipped as well."""
    done, data, fed = fuzz.example(draw, given)
    if draw(st.integers(0, 9)) == 0:
        data = data[: draw(st.integers(0, len(data)))]
        done += "; truncated"
    return done, data, fed


def attempt(data: bytes, known: fuzz.Feed) -> str:
    """Load and run a model: "ran", "loaded", "refused, ..." or "defect, ..."."""
    try:
        with vklab.load(data) as session, np.errstate(all="ignore"):
            try:
                fed = fuzz.feed(data, known)
            except Exception:  # onnx raises anything for a damaged model
                fed = None
            if fed is None or fed.keys() != {info.name for info in session.inputs}:
                return "loaded"
            session.run(fed)
    except (DeviceLostError, DeviceTimeout) as error:
        return f"defect, {type(error).__name__}: {error}"
    except VklabError as error:
        return f"refused, {type(error).__name__}"
    except Exception as error:
        return f"defect, {type(error).__name__}: {error}"
    return "ran"


def batch(folder: Path, seed: int, count: int, pattern: str) -> None:
    """Attempt damaged models one after the other; a line of outcomes.jsonl tells of each."""
    fuzz.limit_memory(fuzz.MEMORY_BYTES)
    warnings.simplefilter("ignore")
    given = _seeds(pattern)

    def one(data: st.DataObject) -> None:
        done, model, known = _damaged(data.draw, given)
        (folder / "model.onnx").write_bytes(model)
        (folder / "done.txt").write_text(done, encoding="utf-8", errors="replace")
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        outcome = attempt(model, known)
        faulthandler.cancel_dump_traceback_later()
        kept = {"done": done, "model": base64.b64encode(model).decode()}
        line = {"outcome": outcome, **(kept if outcome.startswith("defect") else {})}
        with (folder / "outcomes.jsonl").open("a", encoding="utf-8") as lines:
            print(json.dumps(line), file=lines)

    examples = hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.seed(seed)(examples(hypothesis.given(st.data())(one)))()


def _outcomes(folder: Path, seed: int, count: int, pattern: str) -> Iterator[dict[str, str]]:
    """Run a batch in a process of its own, and yield its outcomes; a crash is one."""
    words = [
        sys.executable,
        __file__,
        "--batch",
        str(folder),
        "--seed",
        str(seed),
        "--models",
        str(count),
        "--seeds",
        pattern,
    ]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), "VKLAB_LOOP_LIMIT": "4096"}
    with (folder / "stderr.txt").open("w") as errors:
        try:
            code = subprocess.run(
                words,
                stdout=errors,
                stderr=errors,
                env=env,
                check=False,
                timeout=START_S + 20 * count,
            ).returncode
        except subprocess.TimeoutExpired:
            code = 1
    lines = folder / "outcomes.jsonl"
    yield from map(json.loads, lines.read_text().splitlines() if lines.exists() else ())
    if code:
        model, done = folder / "model.onnx", folder / "done.txt"
        said = (folder / "stderr.txt").read_text(errors="replace")[-2000:]
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        yield {
            "outcome": f"defect, crash: {name}",
            "done": done.read_text(errors="replace") if done.exists() else "at the start",
            "model": base64.b64encode(model.read_bytes()).decode() if model.exists() else "",
            "stderr": said,
        }


def models(count: int, jobs: int, seed: int, pattern: str, folder: Path) -> Report:
    """Attempt damaged models in several processes; count the outcomes and keep the defects.

    Args:
        count: the number of models; a process that crashed is followed by another one.
        jobs: the number of processes at a time.
        seed: the seed of the first batch; equal seeds give equal models.
        pattern: a regular expression over the names of the models that are damaged.
        folder: an empty folder.
    """
    counts: Counter[str] = Counter()
    defects: list[dict[str, str]] = []
    lock = threading.Lock()

    def work(number: int) -> None:
        wanted = min(BATCH, count - number * BATCH)
        for restart in range(wanted):
            place = folder / f"{number}-{restart}"
            place.mkdir()
            found = list(_outcomes(place, seed + 1000 * number + restart, wanted, pattern))
            with lock:
                counts.update(line["outcome"].partition(":")[0] for line in found)
                defects.extend(line for line in found if line["outcome"].startswith("defect"))
            wanted -= max(1, len(found))
            if wanted <= 0 or not found:
                return

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(work, range(-(-count // BATCH))))
    return {"count": counts.total(), "outcomes": dict(counts.most_common()), "defects": defects}


def soak(load_count: int, model_count: int, jobs: int, seed: int, pattern: str) -> Report:
    """Return the report of both parts, each in processes of its own."""
    with tempfile.TemporaryDirectory(prefix="soak") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        os.environ.setdefault("VKLAB_CACHE", str(folder / "cache"))
        os.environ.setdefault("TESTS_SHARE", name)
        Path(os.environ["VKLAB_CACHE"]).mkdir(exist_ok=True)
        stack.enter_context(slang_server.running(folder))
        report: Report = {"ok": True}
        if load_count:
            words = [sys.executable, __file__, "--loads", str(load_count), "--here"]
            env = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), "VKLAB_LOOP_LIMIT": "4096"}
            done = subprocess.run(words, capture_output=True, text=True, env=env, check=False)
            report["loads"] = (
                json.loads(done.stdout.splitlines()[-1])
                if done.returncode == 0
                else {"steady": False, "stderr": done.stderr[-3000:]}
            )
            report["ok"] = report["loads"]["steady"]
        if model_count:
            suite_cases.all_cases()  # computed once; the processes read them
            report["models"] = models(model_count, jobs, seed, pattern, folder)
            report["ok"] &= not report["models"]["defects"]
    return report


def main() -> int:
    """Run what the command line asks for, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loads", type=int, default=0, help="sound models to load, run and close")
    parser.add_argument("--models", type=int, default=0, help="damaged models to try")
    parser.add_argument("--jobs", type=int, default=1, help="processes for damaged models")
    parser.add_argument("--seed", type=int, default=0, help="of the damage")
    parser.add_argument("--seeds", default="", help="pattern of the models that are damaged")
    parser.add_argument("--batch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.batch:
        batch(given.batch, given.seed, given.models, given.seeds)
        return 0
    if given.here:
        print(json.dumps(loads(given.loads)))
        return 0
    report = soak(given.loads, given.models, given.jobs, given.seed, given.seeds)
    print(json.dumps(report, indent=1))
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
