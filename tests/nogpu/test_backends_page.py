"""docs/backends.md: each command, option, model, backend and file that it names exists."""

from __future__ import annotations

import functools
import re
import shlex
from pathlib import Path
from typing import Any

import typer

from vklab.apps.cli import app
from vklab.apps.compare import models, registry, vulkan
from vklab.apps.compare.coreml import backend as apple
from vklab.apps.compare.coreml import on_vulkan, options
from vklab.apps.compare.onnxruntime import backend as onnxruntime

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/backends.md").read_text("utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", TEXT, re.S)
COMMANDS = sorted(
    {
        *(
            line
            for block in BLOCKS
            for line in block.replace("\\\n", "").splitlines()
            if line.startswith("vklab ")
        ),
        *re.findall(r"`(vklab (?:parity|coreml \w+) [^`]+)`", TEXT.replace("\n", " ")),
    }
)


@functools.cache
def built(name: str) -> Any:
    """Return the program with one of its commands."""
    return typer.main.get_command(app.build(name))


def parsed(text: str) -> dict[str, Any]:
    """Return the arguments of a command line by name; unknown options and values are refused."""
    words = shlex.split(text)[1:]
    command = built(words[0])
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    return command.make_context(text, words).params


def test_the_page_has_many_commands():
    assert len(COMMANDS) >= 20


def test_each_command_of_the_page_exists():
    rows = [*apple.every(), *onnxruntime.every(), *on_vulkan.every((vulkan.Vulkan(0, "d"),))]
    for text in COMMANDS:
        given = parsed(text)
        model, factory = given.get("model") or "", given.get("factory")
        module, colon, function = model.partition(":")
        if colon and model != "MODULE:FUNCTION":
            assert module == models.__name__ and function in models.MODELS, text
        elif model and model != "MODEL":
            assert (ROOT / model).exists(), text
        assert factory is None or factory in models.MODELS, text
        for pattern in given.get("backends") or ():
            assert registry.choose(rows, [pattern]), text


def test_conversions_of_the_page_have_choices_that_go_together():
    conversions = [parsed(text) for text in COMMANDS if text.startswith("vklab coreml convert")]
    assert len(conversions) >= 6
    for given in conversions:
        kind = given["kind"]
        precision = given["precision"] or ("float16" if kind == "mlprogram" else "float32")
        shapes = tuple(options.parse_sizes(each) for each in given["shape"] or ())
        options.check(
            options.Options(
                given["frontend"], kind, precision, given["target"], given["weights"], shapes
            )
        )
        assert re.fullmatch(r"((iOS|macOS)\d\d)?", given["target"])


def test_files_and_packages_that_the_page_names_exist():
    for name in re.findall(r"(?:data|vklab)/[\w./]+\.\w+", TEXT):
        assert (ROOT / name).exists(), name


def test_the_python_of_the_page_compiles():
    [code] = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    compile(code, "docs/backends.md", "exec")


def test_every_item_of_the_first_lab_has_its_line():
    for item in (
        "1.1",
        "1.2",
        "1.3",
        "1.4",
        "1.5",
        "2.1",
        "2.2",
        "2.3",
        "2.4",
        "2.5",
        "2.6",
        "4.1",
    ):
        assert f"| {item} " in TEXT
    for exercise in ("5.1", "5.2", "5.3", "5.6"):
        assert f"**{exercise} " in TEXT
