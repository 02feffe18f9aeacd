"""The command line where no device is asked for: switches, usage, shaders, inputs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import typer

import vklab
from support.graphs.small_models import DATA, ROOT, stock_variant
from vklab import settings
from vklab.apps import cli
from vklab.apps.cli import app, inputs
from vklab.apps.cli.run import save
from vklab.errors import SetupError
from vklab.types import TensorInfo


@pytest.mark.parametrize(("given", "command", "expected"), [
    ("run m --debug 2", "run", "--debug 2 run m"),
    ("--validate run m", "run", "--validate run m"),
    ("run m --set A=1 --check --set=B=2", "run", "--set A=1 --set=B=2 run m --check=outputs"),
    ("test --debug -k x", "test", "test --debug -k x"),
    ("--debug 1 test --debug", "test", "--debug 1 test --debug"),
    ("run -- --debug 2", "run", "run -- --debug 2"),
    ("run --set", "", "--set"),
    ("--version", "--version", "--version"),
    ("", "", ""),
])  # fmt: skip
def test_switches_may_stand_after_the_command(given, command, expected):
    assert app.hoist_switches(given.split()) == (command, expected.split())


def test_switches_hold_during_the_command_only(capsys):
    line = ["settings", "--json", "--set", "vklab_disable_replay=1", "--debug", "2", "--validate"]
    assert cli.main(line) == 0
    found = {item["name"]: item for item in json.loads(capsys.readouterr().out)["settings"]}
    assert found.keys() == settings.SETTINGS.keys()
    assert found["DISABLE_REPLAY"]["value"] is True and found["DEBUG"]["value"] == 2
    assert found["VALIDATE"]["value"] is True
    assert not any(name in os.environ for name in ("VKLAB_DEBUG", "VKLAB_VALIDATE"))


@pytest.mark.parametrize(("line", "words"), [
    ("settings --set NIX=1", "NAME=VALUE"),
    ("settings --set DEBUG", "NAME=VALUE"),
    ("settings --set DEBUG=many", "is not a whole number"),
    ("settings --set DEBUG=99", "from 0 to 2"),
    ("settings --debug 9", "from 0 to 2"),
    ("plan nix.onnx --libraries", "give --show too"),
    ("settings --debug", "requires an argument"),
    ("nix", "No such command"),
    ("run", "Missing argument"),
    ("run nix.onnx", "no model file"),
    ("plan nix.onnx", "no model file"),
    ("shader show nix", "no shader"),
    ("shader compile nix", "no shader"),
])  # fmt: skip
def test_usage_ends_with_2_and_one_message(capsys, line, words):
    assert cli.main(line.split()) == 2
    captured = capsys.readouterr()
    assert words in captured.err and "Traceback" not in captured.err and not captured.out


@pytest.mark.parametrize("line", [
    "compile data/digits_cnn.onnx -o {}/m.vklab", "shader compile relu -o {}/r.spv",
    "plan data/digits_cnn.onnx --svg {}/p.svg", "trace data/digits_cnn.onnx --chrome {}/t.json",
    "trace data/digits_cnn.onnx --png {}/t.png", "conformance --table {}/t.md",
    "run data/digits_cnn.onnx --output {}/outputs",
])  # fmt: skip
def test_nothing_is_written_into_a_folder_that_is_not_there(tmp_path, capsys, line):
    missing = tmp_path / "missing" / "inner"
    assert cli.main([word.format(missing) for word in line.split()]) == 2
    said = "".join(capsys.readouterr().err.split()).replace("│", "")  # typer wraps its frame
    assert f"thereisnofolder{missing};" in said and "mkdir-p" in said
    assert not missing.parent.exists()


@pytest.mark.parametrize("line", [
    "compile data/digits_cnn.onnx -o {}", "shader compile softmax -o {}",
    "plan data/digits_cnn.onnx --svg {}",
])  # fmt: skip
def test_a_folder_is_no_file_to_write(tmp_path, capsys, line):
    assert cli.main([word.format(tmp_path) for word in line.split()]) == 2
    assert "is a folder" in " ".join(capsys.readouterr().err.replace("│", "").split())


def test_a_bad_environment_variable_is_a_message(capsys, monkeypatch):
    monkeypatch.setenv("VKLAB_DEBUG", "many")
    assert cli.main(["settings"]) == 2
    assert "VKLAB_DEBUG" in capsys.readouterr().err


def test_an_error_with_json_is_one_object(capsys):
    assert cli.main(["run", "nix.onnx", "--json"]) == 2
    captured = capsys.readouterr()
    assert json.loads(captured.out)["error"]["type"] == "FileNotFoundError"
    assert "nix.onnx" in captured.err


@pytest.mark.parametrize(("line", "words"), [
    ("run --json", "Missing argument"), ("plan m.onnx --json --nix", "No such option"),
    ("settings --set NIX=1 --json", "NAME=VALUE"),
])  # fmt: skip
def test_a_usage_error_with_json_is_one_object(capsys, line, words):
    assert cli.main(line.split()) == 2
    captured = capsys.readouterr()
    assert words in json.loads(captured.out)["error"]["message"] and words in captured.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device /dev/full")
@pytest.mark.parametrize("options", [["--json"], []])
def test_a_full_disk_is_one_message(options):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "vklab", "settings", *options],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1 and "No space left" in done.stderr


def test_a_file_for_trace_json_is_the_chrome_file():
    for given in ("--json=t.json", "--json t.json"):
        command, line = app.hoist_switches(["trace", "m.onnx", *given.split()])
        assert command == "trace"
        assert " ".join(line).replace("=", " ") == "trace m.onnx --chrome t.json"
    assert app.hoist_switches(["trace", "--json", "m.onnx"])[1] == ["trace", "--json", "m.onnx"]


def test_an_input_beyond_the_memory_is_a_usage_error():
    with pytest.raises(typer.BadParameter, match=r"needs .* GiB, more than the memory"):
        inputs.feed(INFOS, None, ["n=1000000000000"])


def test_compile_does_not_overwrite_its_input(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")  # a folder of any length leaves the sentence in one line
    path = tmp_path / "model.vklab"
    path.write_bytes(b"kept")
    assert cli.main(["compile", str(path)]) == 2
    assert "is the model itself" in capsys.readouterr().err and path.read_bytes() == b"kept"


def test_version_and_help(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"vklab {vklab.__version__}\n"
    assert cli.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f" {name} " in shown for name in (*app.MODULES, *app.COURSE))


# ----------------------------------------------------------- commands of other distributions


class Entry:
    """An entry point that fails as one does whose distribution lacks a package, or is another."""

    name, module, dist = "course", "vklab_course.cli.course", SimpleNamespace(name="vklab-course")

    def __init__(self, error):
        self.error = error

    def load(self):
        raise self.error


REFUSED = {
    "no course": (
        (),
        ["the course is not installed here", 'pip install "vklab-course[labs'],
    ),
    "no msgpack": (
        (Entry(ModuleNotFoundError("No module named 'msgpack'", name="msgpack")),),
        ["msgpack is not installed here; `vklab course` needs it", "vklab-course[labs,grade]"],
    ),
    "another version": (
        (Entry(SetupError("vklab-course 0.2 does not work with vklab 0.1", "pip install both")),),
        ["vklab-course 0.2 does not work with vklab 0.1", "pip install both"],
    ),
}


@pytest.mark.parametrize(("entries", "words"), REFUSED.values(), ids=REFUSED)
def test_a_course_that_cannot_be_used_says_why(capsys, monkeypatch, entries, words):
    monkeypatch.setattr(app, "entry_points", lambda group: entries)
    for arguments in (["course"], ["course", "grade", "--jobs", "2"], ["course", "--help"]):
        assert cli.main(arguments) == 2
        said = capsys.readouterr()
        assert all(word in said.err for word in words) and not said.out
    assert cli.main(["course", "progress", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["type"] == "SetupError"
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.main(["--help"]) == 0
    assert f"Not usable: {words[0]}." in capsys.readouterr().out


def test_other_distributions_are_not_looked_at_for_a_command_of_ours(capsys, monkeypatch):
    monkeypatch.setattr(app, "entry_points", lambda group: pytest.fail("it takes 75 ms"))
    assert cli.main(["settings"]) == 0 and capsys.readouterr().out


def test_test_passes_everything_on(monkeypatch):
    seen = []
    monkeypatch.setattr("vklab.apps.run_tests.main", lambda arguments: seen.append(arguments) or 1)
    assert cli.main(["test", "--quick", "-k", "softmax", "--debug", "-x"]) == 1
    assert seen == [["--quick", "-k", "softmax", "--debug", "-x"]]


# ----------------------------------------------------------------------------------- shaders

BROKEN = "[numthreads(1, 1, 1)]\nvoid main() {\n    nix();\n}\n"


@pytest.mark.full
def test_a_shader_shows_what_it_asks_for(capsys, tmp_path):
    target = tmp_path / "out.spv"
    assert cli.main(["shader", "compile", "softmax", "--json", "-o", str(target)]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["bindings"]["y_buffer"]["writable"] and facts["origin"] in ("compiler", "cache")
    offsets = [member["offset"] for member in facts["push_constants"].values()]
    assert offsets == sorted(offsets) and facts["push_bytes"] >= offsets[-1] + 4
    assert facts["bytes"] == target.stat().st_size
    defines = [item for pair in stock_variant("softmax")[1] for item in ("-D", "=".join(pair))]
    assert cli.main(["shader", "compile", "softmax", *defines]) == 0
    assert "storage buffers" in capsys.readouterr().out


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.full
def test_a_broken_shader_is_file_and_line(capsys, tmp_path, options):
    (tmp_path / "broken.slang").write_text(BROKEN)
    assert cli.main(["shader", "compile", str(tmp_path / "broken.slang"), *options]) == 1
    captured = capsys.readouterr()
    assert "broken.slang:3: undefined identifier 'nix'" in captured.err
    if options:
        facts = json.loads(captured.out)
        assert not facts["ok"] and "broken.slang:3" in facts["errors"][0]


def test_shaders_are_listed_and_shown(capsys):
    assert cli.main(["shader", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["shaders"]
    assert "ops/softmax.slang" in [item["name"] for item in listed]
    assert cli.main(["shader", "show", "softmax"]) == 0
    shown = capsys.readouterr().out
    assert "// ---- lib/reduce.slang" in shown and "// ---- ops/softmax.slang" in shown


# ------------------------------------------------------------------------------------ inputs

INFOS = (TensorInfo("a", "float32", ("n", 3)), TensorInfo("b", "int64", ("n",)))


def test_missing_inputs_are_the_same_random_numbers_every_time():
    one, two = inputs.feed(INFOS, None, ["n=5"]), inputs.feed(INFOS, None, ["n=5"])
    assert one.arrays["a"].shape == (5, 3) and one.arrays["b"].shape == (5,)
    assert all(np.array_equal(one.arrays[name], two.arrays[name]) for name in one.arrays)
    assert set(one.arrays["b"].tolist()) <= {0, 1}
    assert one.origins == ("a: float32[5, 3], random, seed 0", "b: int64[5], random, seed 0")
    assert inputs.feed(INFOS, None, None).arrays["a"].shape == (1, 3)


def test_a_file_decides_open_dimensions(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((7, 3), np.float32))
    fed = inputs.feed(INFOS, [f"a={tmp_path / 'a.npy'}"], None)
    assert fed.arrays["b"].shape == (7,) and fed.origins[0] == "a: float32[7, 3], from its file"
    np.savez(tmp_path / "both.npz", a=np.ones((2, 3), np.float32), b=np.zeros(2, np.int64))
    fed = inputs.feed(INFOS, [str(tmp_path / "both.npz")], None)
    assert [array.shape for array in fed.arrays.values()] == [(2, 3), (2,)]
    fed = inputs.feed(INFOS, [f"b={tmp_path / 'both.npz'}"], None)
    assert fed.origins[0].endswith("random, seed 0") and fed.arrays["a"].shape == (2, 3)


@pytest.mark.parametrize(("files", "dims", "words"), [
    (["a=text.npy"], [], "not a .npy or .npz"),
    (["a=empty.npy"], [], "not a .npy or .npz"),
    (["good.npy"], [], "write NAME="),
    (["c=good.npy"], [], "the model has a, b"),
    (["c=some.npz"], [], "holds a, not c"),
    ([], ["m=3"], "the model has n"),
    ([], ["n=-3"], "whole number"),
    ([], ["n"], "whole number"),
])  # fmt: skip
def test_bad_inputs_are_usage_errors(tmp_path, monkeypatch, files, dims, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.npy").write_text("not an array")
    (tmp_path / "empty.npy").write_text("")
    np.save("good.npy", np.ones(3, np.float32))
    np.savez("some.npz", a=np.ones(3))
    with pytest.raises(typer.BadParameter, match=words):
        inputs.feed(INFOS, files, dims)


def test_an_array_of_objects_is_not_unpickled(tmp_path):
    np.save(tmp_path / "evil.npy", np.array([object()]), allow_pickle=True)
    with pytest.raises(typer.BadParameter, match="not a .npy"):
        inputs.feed(INFOS, [f"a={tmp_path / 'evil.npy'}"], None)


def test_outputs_are_saved_inside_the_folder(tmp_path):
    folder = tmp_path / "new"
    outputs = {"../a": np.ones(1), ".._a": np.ones(2), "a:0": np.ones(3), "/": np.ones(4)}
    saved = save(outputs, folder)
    assert len(set(saved.values())) == 4 and len(list(tmp_path.iterdir())) == 1
    assert all(np.array_equal(np.load(saved[name]), outputs[name]) for name in outputs)


@pytest.mark.parametrize("command", ["plan", "compile", "run", "profile", "trace"])
def test_help_names_only_options_of_the_command(command, capsys):
    options = {
        name
        for each in typer.main.get_command(app.build(command)).commands[command].params
        for name in (*each.opts, *each.secondary_opts)
    }
    assert cli.main([command, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("\u2502", " ").split())
    assert set(re.findall(r"--[a-z][a-z-]*[a-z]", shown)) <= {*options, "--help"}
    assert "--input" in shown and "or 1." in shown


def test_compile_overwrites_compiled_models_only(capsys, tmp_path):
    model, path = DATA / "digits_cnn.onnx", tmp_path / "README.md"
    path.write_text("kept")
    assert cli.main(["compile", str(model), "--output", str(path)]) == 2
    assert "no compiled model" in capsys.readouterr().err and path.read_text() == "kept"


def test_a_pattern_that_is_no_regular_expression_is_named(capsys):
    assert cli.main(["conformance", "[", "--json"]) == 2
    assert "'[' is no regular expression" in json.loads(capsys.readouterr().out)["error"]["message"]


@pytest.mark.parametrize("name", ["FusedMatMul", "com.microsoft.FusedMatMul"])
def test_an_operator_outside_of_the_suite_is_sent_to_its_tests(capsys, name):
    assert cli.main(["conformance", name]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "no case of com.microsoft.FusedMatMul" in said and "tests/gpu/test_op_*.py" in said
