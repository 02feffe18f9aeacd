"""Tables and lines fit the terminal: nothing is wider, and no number is cut or folded."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vklab.apps.cli import bench, console, plan
from vklab.apps.compare.speed import measure, throughput

NAME = "/model/decoder/layers.12/self_attention/projection_of_queries/MatMul_output_0"
ROWS = measure.Row(
    NAME,
    "onnxruntime-cuda-graph-tf32",
    median_us=123456.7,
    p05_us=98765.4,
    p95_us=234567.8,
    device_us=1234.5,
    overhead_us=345.6,
    max_abs_error=1.5e-3,
    load_ms=12.5,
    first_ms=987654.3,
    host_bytes=87654321098,
    floor_us=0.321,
    ratio=4321.987,
    clock_mhz=1980,
)
PLANNED = [
    (NAME, "matmul + add + gelu", "65535x1x1", f"{NAME}: float32[1,12,1024,1024]"),
    (NAME, "ai.onnx.ml.TreeEnsembleClassifier", "host", "a kernel of no device runs it; " * 9),
    ("relu", "relu", "1x1x1", "relu: float32[1,8], other: int64[16,1000000]"),
]
NUMBER = re.compile(r"\d[\d.]{3,}(?:e-\d+)?")


def printed(capsys, monkeypatch, width, *arguments, **more) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    console.table(*arguments, **more)
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_bench_cuts_no_figure(capsys, monkeypatch, width):
    cells = bench.cells(ROWS)
    shown = printed(
        capsys,
        monkeypatch,
        width,
        "",
        bench.HEADERS,
        [cells, cells],
        " ".join(bench.HEADERS[2:]),
        "model runner",
    )
    assert max(map(len, shown.splitlines())) <= width
    for cell in cells[2:]:
        assert len(re.findall(rf"(?<![\w.]){re.escape(cell)}(?![\w.])", shown)) == 2, (cell, shown)


@pytest.mark.parametrize("width", [60, 80, 100])
def test_throughput_cuts_no_figure(capsys, monkeypatch, width):
    row = throughput.Row(NAME, "replicas map", (0, 1, 2, 3), 2646.123, "run", 2.0)
    cells = bench.rate_cells(row)
    shown = printed(capsys, monkeypatch, width, "", bench.RATES, [cells], "frames/s ratio", "model")
    assert max(map(len, shown.splitlines())) <= width and "2646" in shown and "2.00" in shown


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_a_plan_fits_and_gives_reasons_their_own_lines(width):
    lines = list(plan._table(PLANNED, width))
    assert max(map(len, lines)) <= width, "\n".join(lines)
    text = "\n".join(lines)
    for whole in ("65535x1x1", "float32[1,12,1024,1024]", "float32[1,8]", "int64[16,1000000]"):
        assert whole in text
    reason = [line for line in lines if line.startswith("     ") and "kernel" in line]
    assert all(len(line) > width * 0.6 for line in reason[:-1]), text


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("columns", [2, 5, 9])
def test_a_table_of_long_cells_fits(capsys, monkeypatch, width, columns):
    headers = [f"header {n}" for n in range(columns)]
    shown = printed(capsys, monkeypatch, width, "", headers, [[NAME] * columns] * 2)
    assert max(map(len, shown.splitlines())) <= width


def test_a_narrow_table_is_left_as_it_is(capsys, monkeypatch):
    shown = printed(capsys, monkeypatch, 60, "", ("name", "n"), [("a b", 1), ("c", 234)], right="n")
    assert shown == "name    n\na b     1\nc     234\n"


def test_a_number_stays_with_its_unit():
    lines = console.hang("latency  first 243.7 ms; median 1.7 ms (5 % 1.1 ms, 95 % 5.5 ms)", 30, 9)
    assert all(len(line) <= 30 for line in lines) and len(lines) > 2
    assert not any(re.search(r"\d$", line) or re.match(r" *(ms|%)", line) for line in lines)


@given(
    st.lists(st.tuples(st.text("ab c", max_size=90), st.integers(0, 10**9)), min_size=1),
    st.integers(40, 120),
)
def test_any_table_fits_and_keeps_its_numbers(rows, width):
    texts = [(" ".join(name.split()), str(number)) for name, number in rows]
    laid = list(console.lines(("name", "n"), texts, width, frozenset("n"), frozenset()))
    joined = ["  ".join(cells).rstrip() for cells in laid]
    assert max(map(len, joined)) <= width
    assert all(any(number in line for line in joined) for _, number in texts)


def test_a_narrow_column_is_whole_beside_a_very_wide_one(capsys, monkeypatch):
    rows = [("queue families", "16 x compute graphics transfer; " * 9)]
    shown = printed(capsys, monkeypatch, 80, "", ["property", "value"], rows)
    assert "\nqueue families  16 x compute" in shown
