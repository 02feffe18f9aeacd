"""Make Core ML packages, so that tests and labs have them without coremltools.

    python data/make_packages.py

Needs coremltools and torch: macOS, or Linux x86-64. Takes about half a minute. Two packages have
the names of their models; the six of lab 15 in `packages/unnamed` have numbers.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import checksums

from vklab.apps.compare import models
from vklab.apps.compare.coreml import convert, options

FOLDER = checksums.DATA / "packages"
# The target decides the operators: from iOS 17 on, `gather` brings comparisons with it.
PACKAGES = {
    "mini_classifier": options.Options(target="iOS16"),
    "text_classifier": options.Options(target="iOS17"),
}
MINI, TEXT = PACKAGES
NETWORK = options.Options(kind="neuralnetwork", precision="float32")
PLAIN = options.Options(precision="float32", target="iOS15")
WIDE = options.Options(precision="float32", target="iOS17", weights="int8")
# What lab 15 asks its readers to find out: by file, the model and its conversion.
UNNAMED = {
    "p1.mlmodel": (MINI, NETWORK),
    "p2.mlpackage": (MINI, PLAIN),
    "p3.mlpackage": (MINI, WIDE),
    "p4.mlpackage": (MINI, options.Options(target="iOS16", weights="palette")),
    "p5.mlpackage": (TEXT, options.Options(target="iOS17", weights="int8")),
    "p6.mlpackage": (TEXT, options.Options(target="iOS18", weights="palette")),
}


def fix_identifiers(package: Path) -> None:
    """Replace the manifest's random identifiers, so that the file is the same every time."""
    path = package / "Manifest.json"
    manifest = json.loads(path.read_bytes())
    entries, root = manifest["itemInfoEntries"], manifest["rootModelIdentifier"]
    named = {
        key: str(uuid.uuid5(uuid.NAMESPACE_URL, item["path"])).upper()
        for key, item in entries.items()
    }
    manifest["itemInfoEntries"] = {named[key]: item for key, item in entries.items()}
    manifest["rootModelIdentifier"] = named[root]
    path.write_bytes((json.dumps(manifest, indent=2, sort_keys=True) + "\n").encode())


def make(model: str, package: Path, chosen: options.Options) -> None:
    """Convert a model of `models.MODELS`, and write the package and the checksums of its files."""
    module, examples = models.MODELS[model](1)
    convert.convert(module, examples, package, chosen)
    if package.is_dir():
        (package / "executorch_debug_handle_mapping.json").unlink(missing_ok=True)
        fix_identifiers(package)
    files = sorted(path for path in (package, *package.rglob("*")) if path.is_file())
    for path in files:
        path.chmod(0o644)
    checksums.update(*(path.relative_to(checksums.DATA).as_posix() for path in files))
    print(f"{package.name}  {sum(path.stat().st_size for path in files)} bytes")


def main() -> None:
    """Write all packages; print sizes."""
    (FOLDER / "unnamed").mkdir(parents=True, exist_ok=True)
    for name, chosen in PACKAGES.items():
        make(name, FOLDER / f"{name}.mlpackage", chosen)
    for file, (name, chosen) in UNNAMED.items():
        make(name, FOLDER / "unnamed" / file, chosen)


if __name__ == "__main__":
    main()
