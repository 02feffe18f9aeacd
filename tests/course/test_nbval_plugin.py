"""The nbval plugin: what stock nbval lets pass fails here, and nothing is left running."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.course import notebooks

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("loaded_notebooks")]

# The cell swallows the interrupt that nbval sends, and the one behind it prints something else.
HUNG = [
    ("print(1)", "1\n"),
    ("import time\ntry:\n    time.sleep(600)\nexcept KeyboardInterrupt:\n    pass", ""),
    ("print(2)", "3\n"),
]
LIMIT = ("--nbval", "--nbval-cell-timeout", "2")


def statuses(report):
    return [cell["status"] for cell in report["cells"]]


@pytest.mark.slow
def test_stock_nbval_passes_a_hung_notebook_and_ours_fails_it(tmp_path):
    path = notebooks.notebook(tmp_path / "hung.ipynb", HUNG)
    stock = notebooks.nbval(path, *LIMIT, plugin=False)
    assert stock.returncode == 0 and "2 passed, 1 xfailed" in stock.stdout
    ours = notebooks.nbval(path, *LIMIT, "--nbval-out", str(tmp_path / "out"))
    assert ours.returncode == 1 and "cell c1 did not end in time (limit 2 s)" in ours.stdout
    assert "xfailed" not in ours.stdout


@pytest.mark.parametrize(("cells", "expected", "broken"), [
    (HUNG, ["passed", "timeout", "not_run"], "cell c1 did not end in time (limit 2 s)"),
    ([("import os\nos._exit(3)", ""), ("print(1)", "1\n")], ["failed", "not_run"],
     "cell c0 ended its kernel"),
    ([("while True:\n    try:\n        while True: print('x' * 1000)\n"
       "    except KeyboardInterrupt: pass", ""), ("print(1)", "1\n")],
     ["timeout", "not_run"], "cell c0 did not end in time (limit 2 s)"),
    ([("print(1)", "1\n"), ("1 / 0", ""), ("print(2)", "3\n"), ("print(4)", "4\n")],
     ["passed", "failed", "failed", "passed"], ""),
    ([("print(1)", "1\n"), ("print(2)", "2\n")], ["passed", "passed"], ""),
])  # fmt: skip
def test_the_report_says_what_became_of_each_cell(tmp_path, cells, expected, broken):
    path = notebooks.notebook(tmp_path / "a.ipynb", cells)
    report, executed = notebooks.run(path, tmp_path / "out", *LIMIT)
    assert statuses(report) == expected, report
    assert report["broken"] == broken and report["ok"] == (set(expected) == {"passed"})
    assert [cell["id"] for cell in report["cells"]] == [f"c{n}" for n in range(len(cells))]
    if expected[0] == "passed":
        assert executed.cells[0].outputs[0].text == "1\n"


@pytest.mark.slow
def test_the_whole_notebook_has_one_clock(tmp_path):
    cells = [("import time; time.sleep(1.5)", "")] * 4
    path = notebooks.notebook(tmp_path / "slow.ipynb", cells)
    report, _ = notebooks.run(path, tmp_path / "out", "--nbval", "--nbval-wall-timeout", "4")
    assert "wall clock" in report["broken"] and not report["ok"]
    assert statuses(report)[0] == "passed" and statuses(report)[-1] == "not_run"


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="looks for processes in /proc")
def test_everything_that_a_kernel_started_ends_with_it(tmp_path, fresh_interpreter):
    code = (
        "import subprocess, sys\n"
        "for own in (False, True):\n"
        "    p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],\n"
        "                         start_new_session=own)\n"
        "    open('pids', 'a').write(f'{p.pid}\\n')"
    )
    path = notebooks.notebook(tmp_path / "a.ipynb", [(code, "")])
    report, _ = notebooks.run(path, tmp_path / "out", "--nbval")
    assert report["ok"], report
    for pid in (tmp_path / "pids").read_text().split():
        stat = Path(f"/proc/{pid}/stat")
        assert not stat.exists() or ") Z" in stat.read_text(), pid


@pytest.mark.slow
def test_lax_runs_and_compares_nothing(tmp_path):
    path = notebooks.notebook(tmp_path / "a.ipynb", [("print(1)", "2\n")])
    report, executed = notebooks.run(path, tmp_path / "out", "--nbval-lax")
    assert report["ok"] and executed.cells[0].outputs[0].text == "1\n"
