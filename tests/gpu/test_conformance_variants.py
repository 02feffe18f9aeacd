"""vklab conformance: variants, one by name or a row for each, and crashes."""

from __future__ import annotations

import json
import os
import signal

import pytest

from support.models import suite_cases
from vklab.apps import cli, conformance
from vklab.apps.cli import conformance_variants
from vklab.base.worker import Failure
from vklab.runtime import open_devices
from vklab.runtime.observe import each_variant
from vklab.runtime.observe.each_variant import Variant

pytestmark = pytest.mark.full


def test_a_cpu_device_as_a_gpu(device_index, capsys):
    asked = ["conformance", "test_matmul_2d", "--device", str(device_index), "--json", "--as-gpu"]
    assert cli.main(asked) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["pass"] == 1


def test_a_device_is_what_it_was_after_a_variant(device_index):
    before = open_devices.open_device(device_index).info
    with each_variant.applied(Variant({"DISABLE_FUSION": "1"}, True), device_index) as classes:
        assert open_devices.open_device(device_index).info.type == "discrete"
        assert not len(classes)
    assert open_devices.open_device(device_index).info is before


def test_each_variant_has_a_row_and_a_line_of_the_table(
    device_index, capsys, tmp_path, monkeypatch
):
    chosen = [
        Variant(),
        Variant({"DISABLE_FUSION": "1"}),
        Variant({"VARIANT": "plain"}),
        Variant({"VARIANT": "one row"}),
        Variant({"NO_SWITCH": "1"}),
    ]
    monkeypatch.setattr(each_variant, "every", lambda info: chosen)
    table = tmp_path / "variants.md"
    table.write_text("# Old\n\n## Another device\n\nits rows\n")
    asked = [
        "conformance",
        "test_matmul_2d|test_relu$",
        "--device",
        str(device_index),
        "--each-variant",
        "--table",
        str(table),
        "--json",
    ]
    assert cli.main(asked) == 1  # the last one fails, and the others are run
    rows = json.loads(capsys.readouterr().out)["variants"]
    assert [row["status"] for row in rows] == ["ran", "ran", "ran", "ran", "failed"]
    assert [row.get("cases") for row in rows] == [2, 2, 1, 0, None]  # a kernel: what it computes
    assert [row.get("classes") for row in rows] == [0, 0, 1, 0, None]
    assert rows[0]["counts"]["pass"] == 2 and not rows[1]["worse"]
    assert "NO_SWITCH" in rows[4]["reason"]
    text = table.read_text()
    assert text.startswith(conformance_variants.HEAD) and text.count("\n## ") == 2
    assert "\n\n## Another device\n\nits rows\n\n## " in text
    assert "Each row is `vklab conformance 'test_matmul_2d|test_relu$'` with its options." in text
    assert "| `--set VARIANT=plain` | 1 | 1 |" in text and "| none | 2 | 2 |" in text
    assert "one row" not in text


def test_a_case_that_is_worse_is_named():
    usual = {"outcomes": {("node", "a"): _outcome("pass"), ("node", "b"): _outcome("skipped")}}
    made = {
        "outcomes": {("node", "a"): _outcome("wrong"), ("node", "b"): _outcome("skipped")},
        "products": [],
        "classes": set(),
        "failure": None,
    }
    row = conformance_variants._row(Variant(), made, usual, "")
    assert row["worse"] == {"a": {"status": "wrong", "reason": "because"}}
    assert row["command"] == "vklab conformance"


def test_a_failed_part_leaves_the_outcomes_of_the_others():
    usual = {"outcomes": {("node", name): _outcome("pass") for name in "abc"}}
    parts = [
        {
            "outcomes": {("node", name): _outcome(status)},
            "products": [("node", name)],
            "classes": {name},
        }
        for name, status in (("a", "pass"), ("c", "wrong"))
    ]
    failures = [Failure("crashed", "signal 11"), Failure("timeout", "7200 s")]
    joined = conformance_variants._joined([parts[0], *failures, parts[1]])
    row = conformance_variants._row(Variant(), joined, usual, "")
    assert joined["products"] == [("node", "a"), ("node", "c")]
    assert (row["status"], row["reason"], row["cases"]) == ("crashed", "signal 11", 2)
    assert row["counts"]["pass"] == 1 and set(row["worse"]) == {"c"}
    cells = conformance_variants._cells(row)
    assert len(cells) == len(conformance_variants.HEADERS)
    assert (cells[1], *cells[-2:]) == ("2", "crashed", "signal 11")
    alone = conformance_variants._row(Variant(), conformance_variants._joined(failures), usual, "")
    assert "cases" not in alone and conformance_variants._cells(alone)[1:-2] == ("",) * len(
        conformance_variants.HEADERS[1:-2]
    )


def _outcome(status):
    return conformance_variants.suite.Outcome(status, "because")


class Crash(conformance.Case):
    """A case whose model ends the process that reads it."""

    @property
    def model(self):
        """Return no model."""
        os.kill(os.getpid(), signal.SIGSEGV)


@pytest.mark.skipif(os.name != "posix", reason="a process is ended by a signal")
def test_a_crash_is_the_error_of_one_case(device_index):
    [relu] = [case for case in suite_cases.node_cases() if case.name == "test_relu"]
    chosen = [Crash("crash", "node", "", None), relu]
    report = conformance.run(chosen, f"VULKAN:{device_index}", jobs=1)
    crash, other = (report.outcomes[case] for case in chosen)
    assert crash.status == "error" and "crashed with SIGSEGV" in crash.reason, crash
    assert other.status == "pass"
