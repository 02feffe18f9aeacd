"""Record of lab 17: shares by layer of the backends of this machine.

python tests/support/course/parity_layers_record.py DATE [PEERS] writes data/recorded/parity_layers.json
from `vklab parity mini_classifier --layers --json`, which needs torch. PEERS is a folder of packages
that `vklab bench peers` fills.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
TARGET = ROOT / "data" / "recorded" / "parity_layers.json"
PACKAGES = ("onnxruntime", "torch", "coremltools", "onnx")
COMMAND = ["parity", "mini_classifier", "--layers", "--rounds", "0", "--json"]


def version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def main(date: str, peers: str = "") -> None:
    """Write the record."""
    more = ["--peers", peers] if peers else []
    done = subprocess.run(
        [sys.executable, "-m", "vklab", *COMMAND, *more], capture_output=True, text=True, check=False
    )
    report = json.loads(done.stdout)
    layers: dict[str, Any] = {}
    for row, more_of in zip(report["parity"]["rows"], report["details"]["rows"], strict=True):
        found = [
            {
                "name": layer["name"],
                "local": layer["share"],
                "cumulative": layer["cumulative_share"],
            }
            for layer in more_of.get("layers") or ()
        ]
        if row["status"] == "ran" and any(layer["local"] is not None for layer in found):
            layers[row["backend"]] = found
    names = {name: version(name) for name in PACKAGES}
    provenance = {
        "date": date,
        "command": "vklab " + " ".join(COMMAND),
        "machine": f"{platform.system()} {platform.machine()}, lavapipe",
        "versions": {name: found for name, found in names.items() if found != "absent"},
        "not_judged": sum(row["passed"] is None for row in report["parity"]["rows"]),
        "rows": len(report["parity"]["rows"]),
        "nodes": {
            row["backend"]: row["nodes"] for row in report["parity"]["rows"] if row["nodes"]
        },
    }
    TARGET.write_text(json.dumps({"provenance": provenance, "layers": layers}, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
