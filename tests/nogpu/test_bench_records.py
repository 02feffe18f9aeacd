"""Recorded runs of vklab bench: gathered, as tables, as plots, through the command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from vklab.apps import cli
from vklab.apps.compare.speed import markdown, plots, record
from vklab.apps.compare.speed.measure import Row
from vklab.errors import ModelError


def recorded(device: str = "Device A", factor: float = 1.0) -> dict:
    """Return a run with chains, a product, an absent peer and a crash."""
    rows = []
    for length in (1, 10, 100):
        for runner, scale in (("vklab", 1.0), ("peer", 3.0)):
            rows.append(
                Row(
                    f"chain_add_{length}",
                    runner,
                    median_us=factor * scale * (20 + length),
                    ratio=scale,
                    over="vklab",
                    floor_us=15.0,
                    max_abs_error=0.0,
                )
            )
    for runner, dtype in (("vklab", "float32"), ("vklab-fp16", "float16")):
        rows.append(
            Row(
                "matmul_64x64x64",
                runner,
                dtype=dtype,
                median_us=50.0 * factor,
                device_us=30.0 * factor,
                compares="device",
                ratio=1.0,
                over="vklab",
                floor_us=20.0,
                host_bytes=10**8,
                max_abs_error=1e-5,
            )
        )
    rows.append(Row("matmul_64x64x64", "peer", status="crashed", reason="ended by SIGSEGV"))
    rows.append(Row("matmul_64x64x64", "gone", status="absent", reason="no", install="pip x"))
    return {
        "machine": {
            "device": device,
            "driver": "1.2",
            "started": "2026-11-27T00:00:00",
            "clocks": {"sm_mhz": 1980, "memory_mhz": 2619},
            "versions": {"peer": "3"},
        },
        "settings": {"rounds": 5},
        "peers": {"gone": {"reason": "no", "install": "pip x"}},
        "roofs": {
            "bytes_per_s": 4e12,
            "flops_per_s": {"float32": 5e13, "float16": 4e14},
            "submission_us": 15.0,
        },
        "kernels": {
            "matmul_64x64x64": {
                "vklab": [
                    {
                        "kernel": "matmul",
                        "dispatches": 1,
                        "time_us": 28.0,
                        "flops": 2 * 64**3,
                        "bytes": 3 * 4 * 64**2,
                    }
                ]
            }
        },
        "models": {"matmul_64x64x64": {"flops": 2 * 64**3, "bytes": 3 * 4 * 64**2}},
        "rows": [row.summary() for row in rows],
    }


def test_gathered_runs_keep_their_ratios_and_their_machines(tmp_path):
    one, two = recorded(), recorded("Device B", 2.0)
    both = record.gather([one, two])
    assert [run["machine"]["device"] for run in both["runs"]] == ["Device A", "Device B"]
    assert len(both["rows"]) == 2 * len(one["rows"])
    assert {row["run"] for row in both["rows"]} == {0, 1}
    assert [row["ratio"] for row in both["rows"]] == [
        row["ratio"] for row in one["rows"] + two["rows"]
    ]
    assert record.gather([both, one])["rows"][-1]["run"] == 2
    path = tmp_path / "run.json"
    path.write_text(json.dumps(both))
    assert record.rows_of(record.read(path))[0] == Row.read(both["rows"][0])
    for text in ("", "[]", '{"machine": 1}', '{"machine": {}, "rows": [{}]}', "\udc00"):
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        with pytest.raises(ModelError, match=r"run.json is no file of `vklab bench run --json`"):
            record.read(path)


def test_tables_tell_times_ratios_floors_and_what_is_missing():
    text = markdown.document(recorded())
    assert "| chain_add_10 | 30 | 90 (3.00) |" in text.replace("  |", " |")
    assert "| matmul_64x64x64 (device) | 30 | crashed |" in text
    assert "1980 MHz, memory 2619 MHz" in text and "peer 3" in text and "4,000 GB/s" in text
    assert "* gone: no (pip x)" in text
    assert "| vklab | 1 | 10 to 100 |" in text and "| peer | 3 | 10 to 100 |" in text
    assert "| `matmul` | 1 | 28 | 100% | 0.0187 | 0% | 1.76 | 0% |" in text
    assert re.search(r"\| matmul_64x64x64 \| vklab \| 50 \| 30 \| 20 \| 1\.50 \|", text)


def test_gaps_tell_host_work_launches_and_rest():
    data = recorded()
    data["roofs"]["dispatch_us"] = 2.5
    text = markdown.gaps(data)
    assert "| matmul_64x64x64 | vklab | 50 | 20 | 0.0123 | 1 | 2.5 | 27.5 | 55% |" in text
    assert markdown.gaps(record.gather([recorded("Device B"), data]), 1) == text
    old = recorded()
    assert "| 1 | ? | 30 | 60% |" in markdown.gaps(old)
    assert markdown.gaps({**old, "roofs": None}).count("\n") == 1


def test_times_can_be_those_of_strict_float32_or_of_less():
    rows = record.rows_of(recorded())
    strict, less = markdown.times(rows, "float32"), markdown.times(rows, "less")
    assert "| us | vklab | peer |" in strict and "| us | vklab | vklab-fp16 |" in less
    assert "crashed" in strict and "crashed" not in less


def test_floors_stand_under_the_higher_roofs():
    low, high = recorded(), recorded()
    high["roofs"] = {**high["roofs"], "bytes_per_s": 8e12, "submission_us": 99.0}
    low["models"]["chain_add_1"] = {"flops": 0, "bytes": 8 * 10**6}
    low["rows"] = [row for row in low["rows"] if row["model"] in low["models"]]
    raised = record.under_roofs(low, high)
    assert raised["roofs"]["bytes_per_s"] == 8e12 and raised["roofs"]["submission_us"] == 15.0
    by_row = {(row["model"], row["runner"]): row["floor_us"] for row in raised["rows"]}
    assert by_row["chain_add_1", "vklab"] == pytest.approx(1.0 + 15.0)
    assert by_row["matmul_64x64x64", "peer"] is None
    high["rows"] = []
    again = record.under_roofs(high, recorded())
    assert again["roofs"]["bytes_per_s"] == 8e12


def test_ablations_are_a_table_with_a_column_a_model():
    rows = [
        Row(model, runner, median_us=us, ratio=ratio, over="vklab")
        for model in ("m", "n")
        for runner, us, ratio in (("vklab", 1234.5, 1.0), ("without fusion", 2469.0, 2.0))
    ]
    rows[-1] = Row("n", "without fusion", status="timeout")
    data = {**recorded(), "rows": [row.summary() for row in rows]}
    text = markdown.document(data)
    assert "| vklab, us | 1,234 | 1,234 |" in text and "| without fusion | 2.00 | timeout |" in text


def test_plots_are_written_from_a_record(tmp_path):
    chain = {
        **recorded("Device B"),
        "rows": [row for row in recorded()["rows"] if row["runner"] == "vklab"],
    }
    written = plots.draw(record.gather([recorded(), {**chain, "roofs": None}]), tmp_path)
    assert [path.name for path in written] == [
        "ratios.png",
        "slope.png",
        "roofline.png",
        "slope1.png",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)
    assert markdown.slope_us({1: 20.0, 10: 29.0, 100: 119.0}) == pytest.approx(1.0)
    assert markdown.slope_us({5: 1.0}) is None
    bare = {**recorded(), "roofs": None, "rows": recorded()["rows"][:1]}
    assert plots.draw(bare, tmp_path / "bare") == []


def test_the_command_reads_gathers_and_writes(tmp_path, capsys):
    files = [tmp_path / f"{name}.json" for name in "ab"]
    for path in files:
        path.write_text(json.dumps(recorded(path.stem)))
    both, text = tmp_path / "both.json", tmp_path / "both.md"
    words = ["bench", "gather", *map(str, files)]
    assert cli.main([*words, "-o", str(both), "--markdown", str(text), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(both.read_text()) and len(printed["runs"]) == 2
    assert text.read_text().count("1980 MHz") == 2
    assert cli.main(words) == 0
    shown = capsys.readouterr().out
    assert "matmul_64x64x64, peer: crashed" in shown and "absent: gone" in shown
    assert cli.main(["bench", "gather", str(Path(tmp_path / "c.json"))]) == 2


@pytest.mark.parametrize(("known", "columns"), [
    ({}, "1 | 28"), ({"workgroups": 16}, "1 | 16 | 28"),
])  # fmt: skip
def test_kernels_tell_their_workgroups_where_they_are_recorded(known, columns):
    run = recorded()
    run["kernels"]["matmul_64x64x64"]["vklab"][0].update(known)
    assert f"| `matmul` | {columns} | 100% |" in markdown.kernels(run, "matmul_64x64x64")


def test_the_fastest_other_runtime_stands_beside_vklab():
    rows = [
        Row("m", runner, dtype=dtype, median_us=us, ratio=us / 10, over=over)
        for runner, dtype, us, over in (
            ("vklab", "float32", 10.0, "vklab"),
            ("slow", "float32", 40.0, "vklab"),
            ("fast", "float32", 20.0, "vklab"),
            ("tensor", "tfloat32", 5.0, "vklab"),
            ("vklab-fp16", "float16", 8.0, "vklab"),
            ("half", "float16", 4.0, "vklab-fp16"),
        )
    ]
    rows.append(Row("m", "broken", status="crashed"))
    assert "| m | 10 | fast 20 (2.00) | tensor 5 (0.50) | 8 (0.80) | half 4 (0.40) |" in (
        markdown.best(rows)
    )
