"""Which ways between devices this machine accepts, and how fast and how right each of them is.

    python3 tests/support/runs/try_transfers.py [--all] [--seconds 110] [--pairs 0:1,1:0]
                                                [--mib 1,16,256]

Every way runs in a process of its own with a time limit; what fails is printed, and the rest goes
on. "move" times the transfer alone; "run" a whole run, less the same run on the first device.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests/, for a run of this file

from support.runs.child import search_path

ROOT = Path(__file__).resolve().parents[3]
# Each way and the switches that leave no better one.
RING = {"DISABLE_DMA_BUF": "1", "DISABLE_DIRECT_IO": "1"}
WHOLE = {"DISABLE_STAGING_RING": "1"}
WAYS: dict[str, dict[str, str]] = {
    "dma-buf": {"DISABLE_DIRECT_IO": "1"},
    "ring in shared host memory": RING,
    "ring with host copies": {**RING, "DISABLE_SHARED_MEMORY": "1"},
    "shared host memory": WHOLE,
    "host copy": {**WHOLE, "DISABLE_SHARED_MEMORY": "1"},
    "ring in shared host memory, slots of 1 MiB": {**RING, "STAGING_SLOT_BYTES": str(1 << 20)},
    "ring in shared host memory, slots of 16 MiB": {**RING, "STAGING_SLOT_BYTES": str(16 << 20)},
}


def main() -> None:
    """Ask, then try every way of every pair while there is time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true", help="pairs with CPU devices too")
    parser.add_argument("--seconds", type=float, default=110.0, help="time for everything")
    parser.add_argument("--pairs", default="", help="such as 0:1,1:0")
    parser.add_argument("--mib", default="1,16,256", help="sizes of the value that crosses")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*json.loads(options.child))
        return
    deadline = time.monotonic() + options.seconds
    devices = None
    for found in ask(["ask", [], []], {}, deadline):
        devices = found.pop("devices", devices)
        show(found)
    chosen = [d["index"] for d in devices or () if options.all or not d["is_cpu"]]
    pairs = [tuple(map(int, pair.split(":"))) for pair in filter(None, options.pairs.split(","))]
    sizes = [int(size) for size in options.mib.split(",")]
    for pair in pairs or itertools.permutations(chosen, 2):
        print(f"\n== {pair[0]} -> {pair[1]}", flush=True)
        for name, switches in WAYS.items():
            print(f"{name}:", flush=True)
            for found in ask(["try", list(pair), sizes], switches, deadline):
                show(found)


def ask(task: list[Any], switches: dict[str, str], deadline: float) -> list[dict[str, Any]]:
    """Run a task in a child; return what it says, or why it says nothing."""
    left = min(deadline - time.monotonic(), 60.0)
    if left < 3:
        return [{"left out": "no time is left"}]
    changes = {f"VKLAB_{key}": value for key, value in switches.items()}
    env = {
        **os.environ,
        **changes,
        "PYTHONPATH": search_path(ROOT),
        "VKLAB_DISABLE_FUSION": "1",
        "VKLAB_TIMEOUT": "20",
    }
    command = [sys.executable, __file__, "--child", json.dumps(task)]
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=left, check=False
        )
        said, ending = done.stdout, f"exit code {done.returncode}: {done.stderr[-600:].strip()}"
        failed = bool(done.returncode)
    except subprocess.TimeoutExpired as error:
        said, ending, failed = _text(error.stdout), f"no answer within {left:.0f} s", True
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return [*found, {"failed": ending}] if failed else found


def _text(said: bytes | str | None) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said or ""


def show(found: dict[str, Any]) -> None:
    """Print what a child says in a line."""
    print("  " + ", ".join(f"{key}: {value}" for key, value in found.items()), flush=True)


# --------------------------------------------------------------------------------- in the child


def child(task: str, pair: list[int], sizes: list[int]) -> None:
    """Do one task; print an object a line."""
    try:
        if task == "ask":
            capabilities()
        else:
            for size in sizes:
                try:
                    measure(pair, size)
                except Exception as error:
                    say({"MiB": size, "failed": f"{type(error).__name__}: {error}"})
                    traceback.print_exc()
    finally:
        from vklab.runtime import open_devices
        from vklab.vulkan import api

        open_devices.close_all()
        if api.live_handles():
            say({"left behind": api.live_handles()})


def say(found: dict[str, Any]) -> None:
    """Tell the parent."""
    print(json.dumps(found, default=str), flush=True)


def capabilities() -> None:
    """Say what every device has, and which ways between two are refused."""
    import vklab
    from vklab.runtime import open_devices
    from vklab.runtime.many import device_copies
    from vklab.vulkan import dma_buf, host_memory

    infos = [info for info in vklab.devices() if not info.refusal]
    say({"devices": [{"index": i.index, "is_cpu": i.is_cpu} for i in infos], "count": len(infos)})
    opened = [open_devices.open_device(info.index) for info in infos]
    for each in opened:
        wanted = (host_memory.EXTENSION, *dma_buf.EXTENSIONS)
        say(
            {
                "device": each.info.label,
                "driver": each.info.driver,
                "uuid": each.info.uuid,
                "has": [name for name in wanted if name in each.device.extensions],
                "dma-buf": sorted(dma_buf.features(each.device)),
                "queue families": each.device.queue_family_indices,
            }
        )
    for source, target in itertools.permutations(opened, 2):
        for name, refusal in (
            ("dma-buf", device_copies.dma_buf_refusal),
            ("host memory", device_copies.host_memory_refusal),
        ):
            try:
                why = refusal(source, target)
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
            say({f"{source.info.index} -> {target.info.index}": name, "refused": why or "no"})


def measure(pair: list[int], mib: int) -> None:
    """Run a model whose one value crosses, and say how long it took and whether it is right."""
    import numpy as np

    import vklab

    side = int((mib << 18) ** 0.5)
    model = outer_product(side)
    x = ((np.arange(side) % 1009) / 1009 + 0.5).astype(np.float32)[None]
    want = (np.arange(side) % 13 + 1) * x.sum(dtype=np.float64)
    names = {"make": pair[0], "read": pair[1]}
    with vklab.load(model, device=pair[0]) as session:
        alone = seconds(lambda: session.run(x))
    with vklab.load(model, devices=pair, place=names) as session:
        split = seconds(lambda: session.run(x))
        error = float(np.abs(session.run(x)["y"] / want - 1).max())
        (move,) = session.plan.summary()["moves"]
        (entry,) = session.roots[0].path()
        calls = [call for task in entry.runner.tasks for call in task.moves.values()]
        moved = seconds(calls[0]) if calls else 0.0
        size = move["bytes"]
        say(
            {
                "MiB": mib,
                "path": move["path"],
                "right": "yes" if error < 1e-3 else f"NO {error}",
                "move GB/s": round(size / moved / 1e9, 2) if moved else "-",
                "run GB/s": round(size / max(split - alone, 1e-9) / 1e9, 2),
                "split ms": round(split * 1e3, 3),
                "alone ms": round(alone * 1e3, 3),
                "why": move["reason"],
            }
        )


def seconds(call: Any, times: int = 7) -> float:
    """Return the median time of a call, after two that do not count."""
    taken = []
    for _ in range(times + 2):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[2:])


def outer_product(side: int) -> Any:
    """Return y[i] = sum over j of (i % 13 + 1) * x[j]: a small input, a large value, few sums."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    column = (np.arange(side) % 13 + 1).astype(np.float32)[:, None]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, side])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, [side])
    nodes = [
        helper.make_node("Mul", ["column", "x"], ["v"], "make"),
        helper.make_node("ReduceSum", ["v", "axes"], ["y"], "read", keepdims=0),
    ]
    known = [
        numpy_helper.from_array(column, "column"),
        numpy_helper.from_array(np.array([1], np.int64), "axes"),
    ]
    graph = helper.make_graph(nodes, "outer_product", [given], [made], known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


if __name__ == "__main__":
    main()
