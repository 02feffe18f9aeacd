"""Release of labs to a class: student notebooks in the class's variants, and no solutions.

A release has no solutions, answers, sources, cases or oracles. It is written to a new folder, and
only after the leak gate has found no expression of a solution in any of its texts.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import json
import re
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import jinja2
import nbformat

import vklab
from vklab_course import places
from vklab_course.author import build, leaks, strip
from vklab_course.author.answers import taught_in
from vklab_course.author.lab import Lab
from vklab_course.definition import draw
from vklab_course.definition.exercise import exercises_of
from vklab_course.grade.assignment import data_files, manifest
from vklab_course.grade.assignment.manifest import Manifest
from vklab_course.grade.batch import BY_HAND
from vklab_course.grade.results.folder import write_atomic
from vklab_course.grade.results.schema import GradeError, digest
from vklab_course.student import copies, paths

__all__ = ["PAGES", "choose_variants", "leak_problems", "release", "student_notebook", "texts_of"]

PAGES = Path(__file__).resolve().parent / "pages"
LAB_LINK = re.compile(r"\[([^\]]+)\]\((\w+)\.ipynb\)")


def choose_variants(labs: Sequence[Lab], seed: str) -> dict[str, int]:
    """Return the variant of every exercise, drawn from a class's seed; no seed: the first."""
    chosen = {}
    for lab in labs:
        for identifier, exercise in exercises_of(lab.number, {}).items():
            count = len(exercise.variants)
            drawn = hashlib.sha256(f"{seed}/{identifier}".encode()).digest()
            chosen[identifier] = int.from_bytes(drawn[:8], "big") % count if seed else 0
    return chosen


def release(labs: Sequence[Lab], out: Path, seed: str = "", extra: bool = False) -> Manifest:
    """Write a release of labs to a new or empty folder, and return its manifest.

    Args:
        labs: the labs.
        out: the folder.
        seed: the class's seed of variants; the first variants if empty.
        extra: whether extra exercises are graded.

    Raises GradeError if the folder is not empty, or if a text holds a part of a solution.
    """
    if not labs:
        raise GradeError(f"there are no labs in {places.labs_folder()}; give numbers of labs")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise GradeError(
            f"{out} is not empty; give a new folder, so that nothing of an older "
            "release stays in it"
        )
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        made = _fill(labs, partial, seed, extra)
        problems = leak_problems(labs, partial)
        if problems:
            raise GradeError(
                "the release is not made, because it would hold parts of solutions:\n"
                + "\n".join(f"  {problem}" for problem in problems)
            )
        if out.exists():
            out.rmdir()
        out.parent.mkdir(parents=True, exist_ok=True)
        partial.replace(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return made


def _fill(labs: Sequence[Lab], folder: Path, seed: str, extra: bool) -> Manifest:
    variants = choose_variants(labs, seed)
    root = folder / "labs"
    (root / "checks").mkdir(parents=True)
    write_atomic(root / places.VARIANTS, json.dumps(variants, indent=1, sort_keys=True) + "\n")
    facts = []
    for lab in labs:
        notebook = student_notebook(lab, variants, [each.name for each in labs])
        build.write_notebook(notebook, root / f"{lab.name}.ipynb")
        write_atomic(root / "checks" / f"lab_{lab.number}.py", _definitions(lab, variants))
        known = exercises_of(lab.number, variants)
        facts.append(manifest.lab_facts(lab.name, notebook, known, extra))
        for identifier, exercise in known.items():
            if exercise.takes not in BY_HAND:
                data = draw.freeze(exercise, draw.draw(exercise, draw.PUBLIC))
                write_atomic(root / "checks" / "frozen" / f"{identifier}.bin", data)
    for name in [*copies.pages(places.labs_folder()), paths.NAME]:
        if (places.labs_folder() / name).is_file():
            copies.copy_file(places.labs_folder() / name, root / name)
    data_files.copy_to(folder, [text for _, text in texts_of(folder)])
    page = jinja2.Environment(autoescape=False, keep_trailing_newline=True).from_string(
        (PAGES / "release.md.j2").read_text("utf-8")
    )
    write_atomic(folder / "README.md", page.render(labs=facts, version=vklab.__version__))
    files = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    made = Manifest(
        id=digest(files)[:16],
        vklab=vklab.__version__,
        variants=variants,
        labs=tuple(facts),
        files=files,
    )
    write_atomic(folder / manifest.NAME, made.model_dump_json(indent=1) + "\n")
    return made


def student_notebook(lab: Lab, variants: dict[str, int], names: Collection[str]) -> Any:
    """Return a lab's student notebook, with its version in the metadata.

    Args:
        lab: the lab.
        variants: the variant of each exercise.
        names: names of the released labs; a link to another one becomes plain text.
    """
    notebook = build.student_notebook(dataclasses.replace(lab, variants=variants))
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = LAB_LINK.sub(lambda m: m[0] if m[2] in names else m[1], cell.source)
    notebook.metadata["vklab"] = {
        **notebook.metadata["vklab"],
        "version": manifest.lab_version(notebook.cells),
    }
    return notebook


def _definitions(lab: Lab, variants: dict[str, int]) -> str:
    path = places.labs_folder() / "checks" / f"lab_{lab.number}.py"
    parameters = {
        key: [one if n == variants[key] else {} for n, one in enumerate(exercise.variants)]
        for key, exercise in exercises_of(lab.number, variants).items()
    }
    return strip.stripped(path.read_text("utf-8"), parameters, path.name)


def texts_of(folder: Path) -> list[tuple[str, str]]:
    """Return every text of a release: cells of notebooks, strings and code of definitions."""
    texts = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".ipynb":
            cells = nbformat.read(path, as_version=4).cells
            texts += [(f"{name}, cell {cell.id}", cell.source) for cell in cells]
        elif path.suffix == ".py":
            text = path.read_text("utf-8")
            texts.append((name, text))
            texts += [
                (f"{name}, line {node.lineno}", node.value)
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            ]
        elif path.suffix in (".md", ".json", ".txt", ".toml", ".svg"):
            texts.append((name, path.read_text("utf-8")))
    return texts


def leak_problems(labs: Sequence[Lab], folder: Path) -> list[str]:
    """Return the parts of solutions that a release holds."""
    texts = texts_of(folder)
    problems = [p for lab in labs for p in leaks.problems(lab, texts, taught_in(lab))]
    for name in ("solutions", "answers", "source"):
        problems += [f"{name}/ is in the release" for path in folder.rglob(name) if path.is_dir()]
    return problems
