"""Times of a report: plain and bound runs in turn, and what becomes of a provider that refuses."""

import json
from dataclasses import dataclass, field

import pytest

from vklab.apps import cli
from vklab.apps.compare.children import timing
from vklab.base.worker import Failure


@dataclass
class Live:
    """A stand-in for a backend at work.

    Args:
        binds: whether it has bound runs.
        status: of the failure of bound runs; "" for none.
    """

    binds: bool = True
    status: str = ""
    calls: list[bool] = field(default_factory=list)

    def measure(self, inputs, seconds, runs, bound=False):
        """Note the call; a bound run takes half the time."""
        self.calls.append(bound)
        if bound and self.status:
            raise Failure(self.status, "the provider keeps nothing")
        return (1000,) if bound else (2000,)


def test_a_round_begins_with_another_one_each_time():
    found = list(timing.alternating("abc", 4))
    assert "".join(name for _, name in found) == "abcbcacababc"
    assert [number for number, _ in found][::3] == [0, 1, 2, 3]
    assert not list(timing.alternating("", 2))


def test_bound_runs_stand_beside_plain_ones_in_each_turn():
    live, other = Live(), Live(binds=False)
    times, failures = timing.in_turn({"a": live, "b": other}, {}, 2, 0.1)
    assert (times["a"].plain, times["a"].bound) == ([2000] * 2, [1000] * 2)
    assert (times["b"].plain, times["b"].bound) == ([2000] * 2, [])
    assert live.calls == [False, False, True, False, True] and not failures  # the first warms up


def test_refused_bound_runs_are_a_note_and_asked_for_once():
    live = Live(status="failed")
    times, failures = timing.in_turn({"a": live}, {}, 3, 0.1)
    assert (len(times["a"].plain), times["a"].bound) == (3, [])
    assert times["a"].note == "no bound runs: the provider keeps nothing"
    assert live.calls.count(True) == 1 and not failures


@pytest.mark.parametrize("status", ["crashed", "timeout"])
def test_a_bound_run_that_ends_the_child_fails_the_backend(status):
    times, failures = timing.in_turn({"a": Live(status=status)}, {}, 2, 0.1)
    assert not times and failures["a"].status == status


@pytest.mark.slow
def test_the_report_shows_bound_runs_and_takes_session_options(capsys):
    arguments = ["parity", "data/mini_classifier.onnx", "--backends", "onnxruntime-cpu-float32"]
    assert (
        cli.main(
            [*arguments, "--rounds", "1", "--session-option", "intra_op_num_threads=1", "--json"]
        )
        == 0
    )
    [row] = json.loads(capsys.readouterr().out)["details"]["rows"]
    assert row["bound_us"]["median"] > 0 and row["bound_us"]["runs"] >= 1
    assert cli.main([*arguments, "--rounds", "0", "--session-option", "threads=1", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["parity"]["rows"]
    assert row["status"] == "refused" and "no session option 'threads'" in row["reason"]
    assert cli.main([*arguments, "--session-option", "threads"]) == 2
    assert "write NAME=VALUE" in capsys.readouterr().err
