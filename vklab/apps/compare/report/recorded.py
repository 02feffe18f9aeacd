"""Recorded results: inputs, outputs and provenance of backends of another machine, in one file.

A recording stands in the row of a backend that this machine lacks. Its outputs are judged here,
against the oracle of its own inputs: parity is recomputed, not quoted.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vklab.apps.compare.backend import Dtypes, ModelSource
from vklab.base import forward, store
from vklab.errors import ModelError

# What a recording must say of its origin; `source` is a published source, or "".
PROVENANCE = ("machine", "versions", "date", "command", "measured_by", "source")
FOLDER = Path(__file__).resolve().parents[4] / "data" / "recorded"
_MANIFEST = "manifest.json"
MOST_TIMES = 201  # of a recording: their median and percentiles are those of all runs


@dataclass(frozen=True, eq=False)
class Recording:
    """Result of one backend on another machine, or at another time.

    Attributes:
        backend: name of the backend.
        device: device in words.
        dtypes: as in `backend.Row`.
        model: `key` of the model.
        inputs: arrays by input name.
        outputs: arrays by output name.
        provenance: the entries of PROVENANCE.
        nodes: nodes by provider.
        latencies_ns: nanoseconds of the measured runs; a file keeps MOST_TIMES of them.
        size_bytes: bytes of the model on that backend.
    """

    backend: str
    device: str
    dtypes: Dtypes
    model: Mapping[str, str]
    inputs: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]
    provenance: Mapping[str, Any]
    nodes: Mapping[str, int] = field(default_factory=dict)
    latencies_ns: tuple[int, ...] = ()
    size_bytes: int = 0


def key(source: ModelSource) -> dict[str, str]:
    """Return what identifies a model: its factory, or the SHA-256 of its ONNX file."""
    if source.factory:
        return {"factory": forward.current(source.factory)}
    path = source.onnx
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if path else ""
    return {"sha256": digest}


def is_of(recording: Recording, source: ModelSource) -> bool:
    """Tell whether a recording is of this model."""
    factory = recording.model.get("factory", "")
    named = {"factory": forward.current(factory)} if factory else {}  # recorded before a move
    return {**recording.model, **named} == key(source)


def shipped() -> list[Path]:
    """Return the recordings of the repository, `data/recorded/parity_*.npz`; none in a wheel."""
    return sorted(FOLDER.glob("parity_*.npz"))


def of_model(paths: Sequence[Path], source: ModelSource) -> dict[str, Recording]:
    """Return the recordings of a model by backend, of files that hold other models, too."""
    each = [recording for path in paths for recording in read(path)]
    return {recording.backend: recording for recording in each if is_of(recording, source)}


def record_command(model: str, backend: str) -> str:
    """Return the command that fills the empty row of a backend, on a machine that has it."""
    return f"vklab parity {model} --backends {backend} --save-outputs {backend}.npz"


def write(path: Path, recordings: Sequence[Recording]) -> int:
    """Write recordings that share their inputs into one file, whole or not at all.

    Returns the bytes of the file.
    """
    arrays: dict[str, np.ndarray] = {}
    entries = []
    for number, each in enumerate(recordings):
        first = next(n for n, other in enumerate(recordings) if other.inputs is each.inputs)
        arrays |= {f"inputs/{first}/{name}": array for name, array in each.inputs.items()}
        arrays |= {f"outputs/{number}/{name}": array for name, array in each.outputs.items()}
        entries.append(
            {
                "backend": each.backend,
                "device": each.device,
                "dtypes": asdict(each.dtypes),
                "model": dict(each.model),
                "provenance": dict(each.provenance),
                "nodes": dict(each.nodes),
                "latencies_ns": _thinned(each.latencies_ns),
                "size_bytes": each.size_bytes,
                "inputs": list(each.inputs),
                "inputs_of": first,
                "outputs": list(each.outputs),
            }
        )
    arrays[_MANIFEST] = np.array(json.dumps({"recordings": entries}, indent=1))
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
    store.write_whole(path, stream.getvalue())
    return stream.tell()


def _thinned(nanoseconds: Sequence[int]) -> list[int]:
    """Return at most MOST_TIMES of the times, evenly spaced in their sorted order."""
    if len(nanoseconds) <= MOST_TIMES:
        return list(nanoseconds)
    places = np.linspace(0, len(nanoseconds) - 1, MOST_TIMES).round().astype(int)
    return [int(each) for each in np.sort(np.array(nanoseconds))[places]]


def read(path: Path) -> list[Recording]:
    """Return the recordings of a file.

    Raises ModelError for a damaged file, and for provenance that is not complete.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            entries = json.loads(str(file[_MANIFEST]))["recordings"]
            return [_one(number, entry, file, path) for number, entry in enumerate(entries)]
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no recording {path}") from None
    except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ModelError(f"{path} is no recording of outputs, or a damaged one: {error}") from error


def _one(number: int, entry: Mapping[str, Any], file: Any, path: Path) -> Recording:
    """Return one recording.

    Args:
        number: its number in the file.
        entry: its part of the manifest.
        file: the arrays.
        path: the file, for messages.
    """
    missing = [name for name in PROVENANCE if name not in entry["provenance"]]
    if missing:
        raise ModelError(
            f"{path}: {entry['backend']} has no {', '.join(missing)} in its "
            "provenance; a result of unknown origin is not shown"
        )
    if not isinstance(entry["provenance"]["versions"], dict):
        raise ModelError(f"{path}: the versions of {entry['backend']} are no names with versions")
    return Recording(
        entry["backend"],
        entry["device"],
        Dtypes(**entry["dtypes"]),
        entry["model"],
        {name: file[f"inputs/{entry.get('inputs_of', number)}/{name}"] for name in entry["inputs"]},
        {name: file[f"outputs/{number}/{name}"] for name in entry["outputs"]},
        entry["provenance"],
        entry["nodes"],
        tuple(entry["latencies_ns"]),
        entry["size_bytes"],
    )
