"""vklab bench --llm: rates of a language model with random weights, and llama.cpp's beside them."""

from __future__ import annotations

import json
import sys

import pytest

from vklab import cli
from vklab.bench import language
from vklab.errors import ModelError

SAYS = """#!{python}
import json, sys
assert {{"-p", "9", "-n", "3", "-d", "2"}} <= set(sys.argv), sys.argv
print(json.dumps([{{"n_prompt": 9, "n_gen": 0, "avg_ts": 12.5}},
                  {{"n_prompt": 0, "n_gen": 3, "avg_ts": 2.5}}]))
"""
FAILS = "#!{python}\nimport sys\nsys.exit('no such model')\n"


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(language, "SETTLE_S", 0.0)
    monkeypatch.setattr(language, "WARM_S", 0.0)
    monkeypatch.setattr(language, "REPEATS", 1)


def program(tmp_path, text):
    """Return a program that takes llama-bench's place."""
    path = tmp_path / "llama-bench"
    path.write_text(text.format(python=sys.executable), "utf-8")
    path.chmod(0o755)
    return str(path)


def test_both_runners_have_a_row(tmp_path, device_index, capsys):
    llama = program(tmp_path, SAYS)
    asked = ["bench", "--llm", "--shape", "tiny", "--type", "Q4_K_M", "--prompt", "9", "--generate",
             "3", "--depth", "2", "--device", str(device_index)]  # fmt: skip
    assert cli.main([*asked, "--llama-bench", llama, "--json"]) == 0
    ours, theirs = json.loads(capsys.readouterr().out)["rows"]
    assert (ours["model"], ours["kind"], ours["runner"], ours["depth"]) == (
        "tiny", "Q4_K_M", "vklab", 2)  # fmt: skip
    assert ours["prompt_per_s"] > 0 and ours["decode_per_s"] > 0 and ours["device_us"] > 0
    # 2 layers of 256 x 256, 256 x 128 twice, 256 x 512 thrice, and 512 x 256 for the logits
    assert 600_000 < ours["bytes_per_token"] < 900_000 and ours["dispatches"] > 10
    assert ours["roof_share"] > 0
    assert (theirs["runner"], theirs["prompt_per_s"], theirs["decode_per_s"]) == (
        "llama.cpp", 12.5, 2.5)  # fmt: skip
    assert cli.main(asked) == 0
    shown = capsys.readouterr().out
    assert "decode t/s" in shown and "Q4_K_M" in shown


@pytest.mark.full
def test_a_failing_llama_bench_is_a_row_with_its_reason(tmp_path, device_index):
    lengths = language.Lengths(9, 3, 2)
    rows = list(language.measure(["tiny"], ["Q8_0"], lengths, device_index,
                                 program(tmp_path, FAILS)))  # fmt: skip
    assert rows[1].error == "no such model" and rows[1].decode_per_s is None


@pytest.mark.parametrize(("given", "message"), [
    (["--shape", "2B"], "unknown shape '2B'"), (["--type", "Q3_K"], "unknown type 'Q3_K'")])
def test_unknown_names_are_refused(given, message, capsys):
    assert cli.main(["bench", "--llm", *given]) == 2
    assert message in capsys.readouterr().err


def test_lengths_and_programs_that_are_none():
    with pytest.raises(ModelError, match="choose 1 or more tokens"):
        language.Lengths(0)
    with pytest.raises(ModelError, match="/nowhere/llama-bench is no program"):
        language.llama_bench("/nowhere/llama-bench")
