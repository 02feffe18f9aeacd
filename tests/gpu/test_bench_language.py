"""vklab bench llm: rates of a language model with random weights, and llama.cpp's beside them."""

from __future__ import annotations

import json
import mmap

import pytest

from support.runs import child
from support.runs.waits import until
from vklab.apps import cli
from vklab.apps.compare.speed import language, language_peer, language_runs, loading_memory
from vklab.errors import ModelError

# Two turns: of each rate, the median of the faster half counts.
SAYS = """{script}
import json, os, pathlib, sys
assert {{"-p", "-n", "3", "-d", "0,2", "-ngl"}} <= set(sys.argv), sys.argv
assert {{"9", "2048,9"}} & set(sys.argv), sys.argv
turns = pathlib.Path(__file__).with_suffix(".turns")
turns.write_text(turns.read_text() + "." if turns.exists() else ".")
on_cpu = os.environ.get("GGML_VK_VISIBLE_DEVICES") == ""
rate = (1000 if on_cpu else 0) + len(turns.read_text())
print(json.dumps([each for depth in (0, 2) for each in (
    {{"n_prompt": 2048, "n_gen": 0, "n_depth": depth, "avg_ts": 1e9}},
    {{"n_prompt": 9, "n_gen": 0, "n_depth": depth, "avg_ts": 7, "samples_ts": [rate, 1]}},
    {{"n_prompt": 0, "n_gen": 3, "n_depth": depth, "avg_ts": depth + 0.5}})]))
"""
FAILS = "{script}\nimport sys\nsys.exit('no such model')\n"


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(language_runs, "SETTLE_S", 0.0)
    monkeypatch.setattr(language_runs, "REPEATS", 1)


def program(tmp_path, text):
    """Return a program that takes llama-bench's place."""
    path = tmp_path / "llama-bench"
    path.write_text(text.format(script=child.SCRIPT))
    path.chmod(0o755)
    return str(path)


def test_both_runners_have_rows(tmp_path, device_index, capsys):
    llama, output = program(tmp_path, SAYS), tmp_path / "rows.json"
    asked = [
        "bench",
        "llm",
        "--shape",
        "tiny",
        "--type",
        "Q4_K_M",
        "--prompt",
        "9",
        "--generate",
        "3",
        "--depth",
        "0",
        "--depth",
        "2",
        "--device",
        str(device_index),
        "-o",
        str(output),
    ]
    assert cli.main([*asked, "--llama-bench", llama, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads(output.read_text("utf-8"))
    assert [path.name for path in tmp_path.iterdir() if "writing" in path.name] == []
    on_cpu = told["machine"]["type"] == "cpu"
    assert (told["machine"]["bytes_per_s"] is None) == on_cpu
    runners = ["vklab", "llama.cpp", *["llama.cpp CPU"] * on_cpu]
    rows = told["rows"]
    assert [(row["runner"], row["depth"]) for row in rows] == [
        (runner, depth) for runner in runners for depth in (0, 2)
    ]
    for ours in rows[:2]:
        assert (ours["model"], ours["kind"], ours["error"]) == ("tiny", "Q4_K_M", "")
        assert ours["prompt_per_s"] > 0 and ours["decode_per_s"] > 0 and ours["device_us"] > 0
        # 2 layers of 256 x 256, 256 x 128 twice, 256 x 512 thrice, and 512 x 256 for the logits
        assert 600_000 < ours["bytes_per_token"] < 900_000 and ours["dispatches"] > 10
        assert (ours["roof_share"] is None) if on_cpu else 0 < ours["roof_share"] < 1
    first = rows[0]
    assert set(first["samplers"]) == set(language_runs.SAMPLERS)
    assert first["load_s"] > 0 and first["first_token_s"] > 0 and first["reload_s"] > 0
    assert first["load_staging_bytes"] < 64 << 20
    shares = [
        row["products_us"] and row["products_us"] * 1e-6 / (9 / row["prompt_per_s"]) for row in rows
    ]
    assert first["products_us"] > 0 and first["products_share"] == pytest.approx(shares[0])
    assert shares[1:] == [None] * (len(rows) - 1), "once for each model"
    turns = (1, 3, 1002, 1004) if on_cpu else (1, 2)
    assert rows[2]["prompt_per_s"] == sum(turns[:2]) / 2
    assert [row["decode_per_s"] for row in rows[2:4]] == [0.5, 2.5]
    assert not on_cpu or rows[4]["prompt_per_s"] == 1003
    assert cli.main([*asked[:-2], "--cache", "F32"]) == 0
    shown = capsys.readouterr().out
    assert "decode t/s" in shown and "products" in shown and "Q4_K_M" in shown


@pytest.mark.full
def test_a_failing_llama_bench_is_a_row_with_its_reason(tmp_path, device_index):
    model = next(language.models(["data/novels_llama.gguf"], (), ()))
    assert model[:2] == ("novels_llama", "F16")
    one, rows = language.measure(
        model,
        language.Lengths(9, 3),
        device_index,
        language.Machine({}, None),
        program(tmp_path, FAILS),
    )
    assert rows[0].decode_per_s > 0 and one[0].samplers == rows[0].samplers
    assert rows[1].error == "no such model" and rows[1].decode_per_s is None
    [[row]] = language.measure(
        model, language.Lengths(9, 3, (5000,)), device_index, language.Machine({}, None)
    )
    assert "5009 is not among 1 to" in row.error


def test_host_memory_is_watched(opened):
    size = 40 << 20
    # Pages of its own: the heap may have that much free from an earlier test.
    with loading_memory.watched(opened) as found, mmap.mmap(-1, size, mmap.MAP_PRIVATE) as kept:
        kept.write(bytes(size))
        until(lambda: not loading_memory.STATUS.exists() or (found.anonymous or 0) >= size)
    assert found.anonymous is None or size <= found.anonymous < 3 * size
    assert found.staging == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [(["--shape", "2B"], "unknown shape '2B'"), (["--type", "Q3_K"], "unknown type 'Q3_K'")],
)
def test_unknown_names_are_refused(given, message, capsys):
    assert cli.main(["bench", "llm", *given]) == 2
    assert message in capsys.readouterr().err


def test_lengths_and_programs_that_are_none():
    with pytest.raises(ModelError, match="choose 1 or more tokens"):
        language.Lengths(0)
    with pytest.raises(ModelError, match="/nowhere/llama-bench is no program"):
        language_peer.program("/nowhere/llama-bench")
