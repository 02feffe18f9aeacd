"""Shader files: search them by name, and expand their imports into one text.

The folder of the SHADERS switch is searched before the package's own. Visited by lab 04.
"""

from __future__ import annotations

import re
from pathlib import Path

from vklab import settings
from vklab.errors import ShaderError

_SUFFIXES = {".slang": "slang", ".comp": "glsl"}
IMPORT = re.compile(r'^\s*(?:__exported\s+)?import\s+([\w.]+)\s*;|^\s*#include\s+"([^"]+)"', re.M)
_PACKAGE = Path(__file__).resolve().parent.parent
# A checkout has them beside the package, a wheel inside it; a plan asks for each of its kernels.
_OWN = [path for path in (_PACKAGE.parent / "shaders", _PACKAGE / "_shaders") if path.is_dir()]


def roots() -> list[Path]:
    """Return the folders of shaders, in search order."""
    override = str(settings.get("SHADERS"))
    if override and not Path(override).is_dir():
        raise ShaderError(f"VKLAB_SHADERS={override} is not a folder")
    return [*map(Path, filter(None, [override])), *_OWN]


def language(path: Path) -> str:
    """Return the language of a file by its suffix: slang or glsl."""
    if path.suffix not in _SUFFIXES:
        raise ShaderError(f"{path}: unknown suffix; a shader ends in {' or '.join(_SUFFIXES)}")
    return _SUFFIXES[path.suffix]


def find(name: str) -> Path:
    """Return the file of a kernel, given as `softmax`, `labs/vector_add.comp` or a path.

    Raises ShaderError with the searched folders.
    """
    path = Path(name)
    if path.suffix in _SUFFIXES and path.is_file():
        return path
    names = [name] if path.suffix in _SUFFIXES else [f"{name}{suffix}" for suffix in _SUFFIXES]
    for root in roots():
        for folder in (root / "ops", root):
            for candidate in names:
                if (folder / candidate).is_file():
                    return folder / candidate
    searched = ", ".join(str(root) for root in roots()) or "no folder exists"
    raise ShaderError(f"there is no shader {name!r} (searched {searched})")


def expand(path: Path, fragment: str = "") -> str:
    """Return the text of a shader after the text of every file that it imports, each once.

    `fragment` is generated text, possibly with imports, to be placed before the file's own text.
    The result serves cache keys only: the compiler resolves imports itself.
    """
    parts: list[str] = []
    seen: set[Path] = set()
    if fragment:
        _imports(path, fragment, parts, seen)
        parts.append(f"// ---- generated\n{fragment}")
    _collect(path, parts, seen)
    return "\n".join(parts)


def _imports(path: Path, text: str, parts: list[str], seen: set[Path]) -> None:
    for match in IMPORT.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        name = match[2] or match[1].replace(".", "/") + ".slang"
        _collect(_resolve(name, path, line), parts, seen)


def _collect(path: Path, parts: list[str], seen: set[Path]) -> None:
    resolved = path.resolve()
    if resolved in seen:
        return
    seen.add(resolved)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ShaderError(f"{path} cannot be read as text: {error}") from error
    _imports(path, text, parts, seen)
    parts.append(f"// ---- {path.parent.name}/{path.name}\n{text}")


def _resolve(name: str, importer: Path, line: int) -> Path:
    folders = (importer.parent, *roots())
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    searched = ", ".join(map(str, folders))
    raise ShaderError(
        f"{importer}:{line}: imports {name}, which does not exist (searched {searched})"
    )
