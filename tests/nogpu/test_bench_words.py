"""Sub-commands of vklab bench, the former words that mean them, and groups of options."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from vklab.apps import cli
from vklab.apps.cli import app, bench_words, options
from vklab.apps.compare import peers

SUB_COMMANDS = typer.main.get_command(app.build("bench")).commands["bench"].commands
# The options of the former `vklab bench`, by what each took.
FORMER = {"--suite": "vkml", "--runner": "vklab", "--device": "0", "--dtype": "float16",
          "--precision": "bf16x3", "--rounds": "3", "--seconds": "0.5", "--limit": "9",
          "--peers": "there", "--output": "a.json", "-o": "a.json", "--markdown": "a.md",
          "--plots": "p", "--devices": "0,1", "--shape": "tiny", "--type": "F16", "--prompt": "7",
          "--generate": "8", "--depth": "9", "--cache": "F32", "--llama-bench": "llama",
          "--gather": "r.json", "--setup-peers": "", "--ablations": "", "--throughput": "",
          "--growing": "", "--llm": "", "--json": ""}  # fmt: skip


@pytest.mark.parametrize(("former", "now"), [
    ("", "run"),
    ("mlp", "run mlp"),
    ("--runner torch mlp a.onnx --json", "run mlp a.onnx --runner torch --json"),
    ("-- mlp", "run mlp"),
    ("mlp --ablations -o a.json", "ablate mlp -o a.json"),
    ("--ablations --precision bf16x3 -oa.json mlp", "ablate mlp -oa.json"),
    ("--gather a.json --gather=b.json --plots p", "gather a.json b.json --plots p"),
    ("mlp --gather a.json --rounds 3", "gather a.json"),
    ("mlp --throughput --devices 0,1 --device 3", "rate mlp --devices 0,1"),
    ("mlp --growing --device=1 --seconds=2", "grow --device=1"),
    ("--llm m.gguf --shape tiny --markdown a.md", "llm m.gguf --shape tiny"),
    ("--setup-peers --peers there mlp", "peers --peers there"),
    ("--ablations --gather a.json", "gather a.json"),
    ("--llm --throughput", "rate"),
    ("mlp --nothing 3", "run mlp 3 --nothing"),
])  # fmt: skip
def test_former_words_are_translated(former, now):
    assert bench_words.current(former.split(), SUB_COMMANDS) == now.split()


@pytest.mark.parametrize("mode", ["", *bench_words.OLD])
def test_every_former_option_is_understood(mode):
    words = [mode] * bool(mode) + ["r.json"] * (mode == "--gather")
    for option, value in FORMER.items():
        if option not in bench_words.OLD:
            words += [option, value][: 1 + bool(value)]
    name, *rest = bench_words.current(words, SUB_COMMANDS)
    assert name == bench_words.OLD.get(mode, "run")
    own = {spelling for option in SUB_COMMANDS[name].params for spelling in option.opts}
    assert {word for word in rest if word.startswith("-")} == own & {*FORMER}


def test_every_option_of_a_sub_command_was_one_before():
    every = {
        spelling
        for command in SUB_COMMANDS.values()
        for option in command.params
        for spelling in option.opts
        if spelling.startswith("-")
    }
    assert every == {*FORMER} - {*bench_words.OLD}


def test_former_words_give_the_same_and_one_line(monkeypatch, capsys):
    monkeypatch.setattr(peers, "set_up_all", lambda names, root, tell: [(n, "") for n in names])
    assert cli.main(["bench", "peers", "--json"]) == 0
    now = capsys.readouterr()
    assert cli.main(["bench", "--setup-peers", "--json"]) == 0
    former = capsys.readouterr()
    assert json.loads(former.out) == json.loads(now.out) and now.err == ""
    assert former.err.splitlines() == [
        "vklab: this form of `vklab bench` ends with the next "
        "release; write: vklab bench peers --json"
    ]
    assert cli.main(["bench", "no_such_model"]) == 2
    assert "unknown benchmark model 'no_such_model'" in capsys.readouterr().err


@pytest.mark.parametrize("name", SUB_COMMANDS)
def test_each_sub_command_has_help_of_its_own(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.main(["bench", name, "-h"]) == 0
    shown = capsys.readouterr()
    own = {
        spelling
        for option in SUB_COMMANDS[name].params
        for spelling in option.opts
        if spelling.startswith("-")
    }
    assert shown.err == "" and all(spelling in shown.out for spelling in own)
    assert "--throughput" not in shown.out


@dataclass(frozen=True)
class Size:
    """A group of options."""

    width: Annotated[int, typer.Option(min=1, help="In cells.")] = 3
    names: Annotated[list[str] | None, typer.Option("--name", "-n")] = None


def test_a_group_is_its_options():
    seen = []

    @options.grouped
    def command(given: str, *, size: Size, as_json: options.Json = False) -> None:
        """Do it."""
        seen.append((given, size, as_json))

    made = typer.Typer()
    made.command()(command)
    for line in ("a", "a --width 5 -n b --name c --json"):
        assert CliRunner().invoke(made, line.split()).exit_code == 0
    assert seen == [("a", Size(), False), ("a", Size(5, ["b", "c"]), True)]
    assert CliRunner().invoke(made, ["a", "--width", "0"]).exit_code == 2
