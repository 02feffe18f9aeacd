"""Make two Core ML packages, so that tests and labs have them without coremltools.

    python data/make_packages.py

Needs coremltools and torch: macOS, or Linux x86-64. Takes about half a minute.
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


def main() -> None:
    """Write the packages and the checksums of their files; print sizes."""
    FOLDER.mkdir(exist_ok=True)
    for name, chosen in PACKAGES.items():
        module, examples = models.MODELS[name](1)
        package = FOLDER / f"{name}.mlpackage"
        convert.convert(module, examples, package, chosen)
        (package / "executorch_debug_handle_mapping.json").unlink(missing_ok=True)
        fix_identifiers(package)
        files = sorted(path for path in package.rglob("*") if path.is_file())
        for path in files:
            path.chmod(0o644)
        checksums.update(*(path.relative_to(checksums.DATA).as_posix() for path in files))
        print(f"{package.name}  {sum(path.stat().st_size for path in files)} bytes")


if __name__ == "__main__":
    main()
