"""Damaged models: small valid ones, changed at random, run here and in ONNX Runtime.

`python fuzz.py FOLDER SEED EXAMPLES SECONDS` is a process of its own, as a native crash would end
the tests: before each example it leaves the model and what is being done in FOLDER.
"""

from __future__ import annotations

import base64
import contextlib
import faulthandler
import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests/, for a run of this file

import vklab
from support.models import suite_cases
from support.runs.mutators import MUTATORS, flip_bytes
from vklab import settings
from vklab.errors import DeviceLostError, VklabError
from vklab.errors import TimeoutError as DeviceTimeout
from vklab.runtime import host
from vklab.runtime.observe import compare
from vklab.runtime.on_cpu import cpu_session, onnx_evaluator
from vklab.runtime.on_cpu.reference_process import ProcessModel

__all__ = ["Seed", "examine", "example", "feed", "fuzz", "limit_memory", "seeds"]

Feed = dict[str, np.ndarray]
Seed = tuple[str, onnx.ModelProto, Feed]
Draw = Callable[[Any], Any]
SEED_BYTES, FED_ELEMENTS = 20_000, 100_000
HANG_SECONDS, REFERENCE_SECONDS, MEMORY_BYTES = 100, 20, 16 << 30
RTOL, ATOL = 2e-3, 1e-4
BATCH = 100
# What an error may speak of instead of a name: there may be none in what is left of a model.
USEFUL = re.compile(
    r"opset|ONNX model|ONNX Runtime|IR version|graph|function|input|output|dimens|push constant"
)


def seeds() -> list[Seed]:
    """Return the small cases of onnx's suite: name, model and the inputs that fit it."""
    found: list[Seed] = []
    for case in suite_cases.node_cases():
        if case.is_random or case.is_expanded or case.model.ByteSize() > SEED_BYTES:
            continue
        inputs = next(iter(case.data_sets()))[0]
        if all(isinstance(value, np.ndarray) and value.size < 2000 for value in inputs):
            names = (value.name for value in case.model.graph.input)
            found.append((case.name, case.model, dict(zip(names, inputs, strict=False))))
    return found


def example(draw: Draw, given: list[Seed]) -> tuple[str, bytes, Feed]:
    """Draw a seed and damage it: what was done, the bytes of the model, the inputs of the seed."""
    name, proto, fed = given[draw(st.integers(0, len(given) - 1))]
    model = onnx.ModelProto()
    model.CopyFrom(proto)
    fed = dict(fed)
    done = [name]
    for _ in range(draw(st.integers(1, 3))):
        mutator = draw(st.sampled_from(MUTATORS))
        # What a model does not have (initializers, attributes) cannot be damaged.
        with contextlib.suppress(ValueError, IndexError, TypeError):
            done.append(f"{mutator.__name__}: {mutator(draw, model, fed)}")
    data = model.SerializeToString()
    if draw(st.integers(0, 19)) == 0:
        data = flip_bytes(draw, data)
        done.append("flip_bytes")
    return "; ".join(done), data, fed


def feed(data: bytes, known: Mapping[str, np.ndarray]) -> Feed | None:
    """Return arrays for a model's inputs: the known ones where they fit, else made up."""
    proto = onnx.load_from_string(data)
    initialized = {tensor.name for tensor in proto.graph.initializer}
    made: Feed = {}
    for value in proto.graph.input:
        if value.name in initialized:
            continue
        kind = value.type.tensor_type
        dims = [dim.dim_value if dim.HasField("dim_value") else 2 for dim in kind.shape.dim]
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
        array = known.get(value.name)
        if array is not None and array.dtype == dtype and list(array.shape) == dims:
            made[value.name] = array
        elif len(dims) <= 8 and 0 <= np.prod(dims, dtype=np.float64) <= FED_ELEMENTS:
            made[value.name] = (np.arange(np.prod(dims, dtype=int)) % 5).reshape(dims).astype(dtype)
        else:
            return None
    return made


def examine(data: bytes, known: Mapping[str, np.ndarray]) -> str:
    """Load and run a model; return what became of it.

    Raises AssertionError for a result that ONNX Runtime and onnx.reference contradict, and for an
    error that says nothing. What is no error of vklab's own goes through.
    """
    try:
        with vklab.load(data) as session, np.errstate(all="ignore"):
            try:
                fed = feed(data, known)
            except Exception:  # onnx raises anything for a dtype that is none
                fed = None
            if fed is None or fed.keys() != {info.name for info in session.inputs}:
                return "loaded"
            outputs = session.run(fed)
    except (DeviceLostError, DeviceTimeout) as error:
        raise AssertionError(f"a model stops the device: {error}") from error
    except VklabError as error:
        _require_useful(data, str(error))
        return f"refused, {type(error).__name__}"
    return _compare(data, fed, outputs)


def _require_useful(data: bytes, message: str) -> None:
    assert len(message) > 10, f"an error that says nothing: {message!r}"
    if USEFUL.search(message):
        return
    graph = onnx.load_from_string(data).graph
    names = {text for node in graph.node for text in (node.name, node.op_type, *node.output)}
    names |= {value.name for value in (*graph.input, *graph.output, *graph.initializer)}
    assert any(str(name) in message for name in names if name), f"an error names nothing: {message}"


def _compare(data: bytes, fed: Feed, outputs: Mapping[str, Any]) -> str:
    proto = onnx.load_from_string(data)
    verdicts = []
    for load in (cpu_session.load, onnx_evaluator.load):
        try:
            expected = _reference(proto, fed, load)
        except Exception as error:  # onnx raises anything for a damaged model
            verdicts.append(str(error) if getattr(error, "ended", False) else type(error).__name__)
            continue
        with np.errstate(all="ignore"):
            verdicts.append(_difference(outputs, expected))
        if not verdicts[-1]:
            return "ran, agrees" if len(verdicts) == 1 else "ran, agrees with onnx.reference"
    is_wrong = verdicts[0].startswith("DIFFERS") and "\n" in verdicts[0]
    assert not is_wrong, f"ONNX Runtime: {verdicts[0]}\nonnx.reference: {verdicts[1]}"
    if "\n" in verdicts[1]:
        return f"ran, reference {verdicts[1]}"
    return f"ran, no reference does: {' and '.join(verdicts)}"


def _reference(proto: onnx.ModelProto, fed: Feed, load: Any) -> dict[str, Any]:
    """Return outputs from the process of references, where a crash or a hang is an error."""
    model = ProcessModel(lambda: (host.serialized(proto), None), load)
    with contextlib.closing(model), settings.settings(REFERENCE_TIMEOUT=REFERENCE_SECONDS):
        return model.run(fed)


def _difference(outputs: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    arrays = {name: value for name, value in expected.items() if isinstance(value, np.ndarray)}
    numbers = {name: array for name, array in arrays.items() if array.dtype.kind in "fciubV"}
    comparison = compare.compare({n: outputs[n] for n in numbers}, numbers, RTOL, ATOL)
    return "" if comparison.passed else f"DIFFERS\n{comparison}"


def fuzz(folder: Path, seed: int, examples: int, seconds: float) -> dict[str, int]:
    """Examine damaged models until there were enough or the time is over; count the outcomes.

    A seed gives the same models every time.
    """
    runs = _Runs(folder, time.monotonic() + seconds)
    for batch in range(-(-examples // BATCH)):
        if time.monotonic() > runs.end:
            break
        test = hypothesis.given(st.data())(lambda data: runs.one(data.draw))
        hypothesis.seed(1000 * seed + batch)(
            hypothesis.settings(
                max_examples=BATCH,
                database=None,
                deadline=None,
                print_blob=False,
                phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
                suppress_health_check=list(hypothesis.HealthCheck),
            )(test)
        )()
    return runs.counts


class _Runs:
    """What is examined one after the other, and what became of it."""

    def __init__(self, folder: Path, end: float) -> None:
        self.folder = folder
        self.end = end
        self.given = seeds()
        self.counts: dict[str, int] = {}
        self.has_failed = False

    def one(self, draw: Draw) -> None:
        done, proto, known = example(draw, self.given)
        # Hypothesis draws on; what failed has to fail again while it is made smaller.
        if time.monotonic() > self.end and not self.has_failed:
            return
        self._leave(done, proto, known)
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        try:
            outcome = examine(proto, known)
        except BaseException as error:
            self.has_failed = True
            error.add_note(f"the model: {done}\n{base64.b64encode(proto).decode()}")
            raise
        finally:
            faulthandler.cancel_dump_traceback_later()
        first, *rest = outcome.splitlines()
        with (self.folder / "log.txt").open("a", encoding="utf-8") as log:
            log.write(f"{first} <- {done!r} {' '.join(rest)}\n")
        self.counts[first] = self.counts.get(first, 0) + 1

    def _leave(self, done: str, proto: bytes, known: Feed) -> None:
        """Write down what comes next: after a crash it is all that is left."""
        (self.folder / "model.onnx").write_bytes(proto)
        (self.folder / "done.txt").write_text(done, encoding="utf-8")
        numbers = {f"_{name}": array for name, array in known.items() if array.dtype.kind in "fiub"}
        np.savez(self.folder / "inputs.npz", **numbers)


def limit_memory(size_bytes: int) -> None:
    """Make allocations of this process fail beyond a size, where the system can."""
    with contextlib.suppress(ImportError):  # Windows
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (size_bytes, size_bytes))


if __name__ == "__main__":
    limit_memory(MEMORY_BYTES)
    print(fuzz(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
