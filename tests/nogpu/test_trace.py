"""Traces: numbers against brute force, JSON that Perfetto reads, a chart that says what is so."""

from __future__ import annotations

import itertools
import json
import sys
import threading
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vklab.base.trace import HOST, KINDS, Recorder, Span, Trace
from vklab.errors import SetupError
from vklab.runtime.observe import timestamps
from vklab.runtime.observe.timestamps import DeviceClock, Sample

GPU, OTHER = "0: a GPU", "1: another"


def span(name: str, start: int, end: int, **facts: object) -> Span:
    fields = {"kind": "chunk", "device": GPU, **facts}
    return Span(name, start_ns=start, end_ns=end, **fields)  # type: ignore[arg-type]


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Spans anywhere in 60 ns; each waits for some of those before it in the list."""
    spans: list[Span] = []
    for number in range(draw(st.integers(0, 8))):
        start = draw(st.integers(0, 50))
        after = draw(st.sets(st.sampled_from([s.name for s in spans]))) if spans else set()
        spans.append(
            Span(
                f"s{number}",
                draw(st.sampled_from(KINDS)),
                draw(st.sampled_from([HOST, GPU, OTHER])),
                start,
                start + draw(st.integers(0, 10)),
                after=tuple(sorted(after)),
                queue=draw(st.sampled_from(["", "compute"])),
                bytes=draw(st.integers(0, 9)),
            )
        )
    return Trace(tuple(draw(st.permutations(spans))))


def ticks(trace: Trace, device: str) -> set[int]:
    """Return every nanosecond in which a device was busy."""
    return {
        moment
        for s in trace.spans
        if s.device == device and s.kind != "wait"
        for moment in range(s.start_ns, s.end_ns)
    }


@given(traces())
def test_busy_idle_and_overlap_are_what_counting_nanoseconds_gives(trace):
    busy = {device: ticks(trace, device) for device in trace.devices}
    for device in trace.devices:
        assert trace.busy_ns(device) == len(busy[device])
        assert trace.idle_ns(device) == trace.duration_ns - len(busy[device])
    pairs = itertools.combinations(busy.values(), 2)
    assert trace.overlap_ns() == len(set().union(*(a & b for a, b in pairs)))


def chains(trace: Trace) -> list[list[Span]]:
    named = {s.name: s for s in trace.spans}

    def ending_in(last: Span) -> list[list[Span]]:
        return [
            [last],
            *([*chain, last] for name in last.after for chain in ending_in(named[name])),
        ]

    return [chain for last in trace.spans for chain in ending_in(last)]


def length(chain: list[Span]) -> int:
    """Return what a chain takes; what a span shares with the one before counts once."""
    total, end = 0, 0
    for s in chain:
        total += 0 if s.kind == "wait" else max(0, s.end_ns - max(s.start_ns, end))
        end = s.end_ns
    return total


@given(traces())
def test_no_chain_of_dependencies_is_longer_than_the_critical_path(trace):
    path = trace.critical_path()
    assert bool(path) == bool(trace.spans)
    for before, after in itertools.pairwise(path):
        assert before.name in after.after
    assert length(path) == max(map(length, chains(trace)), default=0)


def test_waiting_is_no_work_on_the_critical_path():
    trace = Trace(
        (
            span("submit", 0, 5, device=HOST, kind="host"),
            span("work", 6, 9, after=("submit",)),
            span("wait", 5, 60, device=HOST, kind="wait", after=("submit",)),
            span("take", 60, 61, device=HOST, kind="host", after=("work", "wait")),
        )
    )
    assert [s.name for s in trace.critical_path()] == ["submit", "work", "take"]
    assert trace.critical_ns() == 5 + 3 + 1 and trace.busy_ns(HOST) == 6


def test_what_overlaps_in_a_queue_gets_another_lane():
    trace = Trace((span("a", 0, 10), span("b", 5, 15), span("c", 10, 12), span("d", 11, 13)))
    lanes = {name: [s.name for s in spans] for (_, name), spans in trace.lanes().items()}
    assert lanes == {"chunks": ["a", "c"], "chunks 2": ["b"], "chunks 3": ["d"]}


@given(traces())
def test_each_span_is_in_one_lane_and_those_of_a_lane_follow_each_other(trace):
    lanes = trace.lanes()
    assert sorted(id(s) for spans in lanes.values() for s in spans) == sorted(map(id, trace.spans))
    for (device, _), spans in lanes.items():
        assert {s.device for s in spans} == {device} and len({s.kind for s in spans}) == 1
        assert all(a.end_ns <= b.start_ns for a, b in itertools.pairwise(spans))


@given(traces())
def test_events_nest_and_arrows_lead_from_slice_to_slice(trace):
    found = json.loads(json.dumps(trace.to_chrome()))
    events = found["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    assert len(slices) == len(trace.spans) and {e["ph"] for e in events} <= set("XMsf")
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert {(processes[p], name) for (p, _), name in names.items()} == set(trace.lanes())
    for e in slices:
        assert e["ts"] >= 0 and e["dur"] >= 0 and (e["pid"], e["tid"]) in names
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    count = sum(len(s.after) for s in trace.spans)
    assert starts.keys() == ends.keys() and len(starts) == count
    for e in [*starts.values(), *ends.values()]:
        assert any(
            s["pid"] == e["pid"]
            and s["tid"] == e["tid"]
            and s["ts"] - 1e-6 <= e["ts"] <= s["ts"] + s["dur"] + 1e-6
            for s in slices
        )
    assert all(e["bp"] == "e" for e in ends.values())


FRAMES = Trace(
    tuple(
        span(
            name,
            100 * run + start,
            100 * run + end,
            run=run,
            after=after,
            kind=kind,
            device=device,
            queue=queue,
            node="conv1" if kind == "dispatch" else "",
            bytes=size,
        )
        for run in range(2)
        for name, start, end, kind, device, queue, after, size in (
            ("copy in", 0, 20, "transfer", HOST, "", ((run - 1, "copy out"),), 64),
            ("chunk 0", 20, 60, "chunk", GPU, "compute", ("copy in",), 0),
            ("a <b> & $x$ kernel", 20, 50, "dispatch", GPU, "compute", (), 7),
            ("0 -> 1", 60, 65, "transfer", HOST, "", ("chunk 0",), 32),
            ("chunk 1", 30, 55, "chunk", OTHER, "compute", ("copy in",), 0),
            ("chunk 2", 65, 90, "chunk", OTHER, "compute", ("chunk 1", "0 -> 1"), 0),
            ("wait", 20, 90, "wait", HOST, "", (), 0),
            ("copy out", 90, 100, "transfer", HOST, "", ("chunk 2",), 16),
        )
    ),
    {"device": "two"},
)


def test_the_summary_of_two_frames_over_two_devices():
    found = json.loads(json.dumps(FRAMES.summary()))
    names = ["copy in", "chunk 0", "0 -> 1", "chunk 2", "copy out"]
    assert [s["name"] for s in found["critical_path"]] == names * 2
    assert [s["run"] for s in found["critical_path"]] == [0] * 5 + [1] * 5
    assert found["duration_ns"] == found["critical_path_ns"] == 200
    assert found["overlap_ns"] == 2 * 25 and found["transferred_bytes"] == 2 * (64 + 32 + 16)
    assert found["devices"][OTHER] == {"busy_ns": 100, "idle_ns": 100}
    assert found["spans"] == {"host": 0, "chunk": 6, "dispatch": 2, "transfer": 6, "wait": 2}
    assert found["machine"] == {"device": "two"}
    assert "16 spans in 200.0 ns" in str(FRAMES)


def test_a_trace_of_nothing_is_no_error():
    trace = Trace(())
    assert trace.summary()["duration_ns"] == 0 and trace.critical_path() == []
    assert "<svg" in trace.svg() and trace.to_chrome()["traceEvents"] == []


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="'late' ends 2 ns before"):
        span("late", 5, 3)
    with pytest.raises(ValueError, match="'sleep' is not one of host, chunk"):
        span("a", 0, 1, kind="sleep")
    with pytest.raises(ValueError, match=r"wait for each other: .*a"):
        Trace((span("a", 0, 1, after=("b",)), span("b", 1, 2, after=("a",)))).critical_path()
    with pytest.raises(KeyError, match="no device 'x' in this trace; there are: host"):
        FRAMES.idle_ns("x")


def test_the_chart_shows_every_device_kind_and_name_that_fits():
    figure = FRAMES.gantt("Two frames")
    texts = [text.get_text() for text in (*figure.texts, *figure.axes[0].texts)]
    assert {"Two frames", HOST, GPU, OTHER, "a <b> & $x$ kernel"} <= set(texts)
    assert {"0: chunk 0", "1: chunk 0"} <= set(texts)
    keys = [text.get_text() for text in figure.legends[0].get_texts()]
    assert keys == ["chunk", "dispatch", "transfer", "wait", "critical path, 200.0 ns"]
    assert figure.axes[0].get_xlabel().startswith("time (ns); before a name, the number")
    lanes = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert lanes == [lane for _, lane in FRAMES.lanes()]


@pytest.mark.parametrize("width", [3, 8, 20, 60, 300])
def test_a_label_lies_inside_its_box_or_is_left_out(width):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    name = "a kernel with rather a long name indeed"
    trace = Trace((span(name, 0, width), span("rest", width, 400)))
    figure = trace.gantt()
    axes, renderer = figure.axes[0], FigureCanvasAgg(figure).get_renderer()
    labels = [text for text in axes.texts if text.get_text().startswith("a ke")]
    assert bool(labels) == (width >= 20)
    for label in labels:
        extent = label.get_window_extent(renderer).transformed(axes.transData.inverted())
        assert extent.x0 >= 0 and extent.x1 <= width
        assert label.get_text() == name or (width < 300 and label.get_text().endswith("…"))


def test_the_picture_is_the_same_every_time_and_is_svg():
    drawn = FRAMES.svg()
    assert drawn == FRAMES.svg() and ET.fromstring(drawn).tag.endswith("svg")
    assert ">a &lt;b&gt; &amp; $x$ kernel</text>" in drawn  # a name is no formula
    assert FRAMES._repr_html_().startswith("<div") and drawn in FRAMES._repr_html_()


def test_a_short_span_can_be_seen_and_neighbours_stay_apart():
    trace = Trace((span("a", 0, 1), span("b", 1, 10_000), span("c", 10_000, 10_001, kind="wait")))
    axes = trace.gantt().axes[0]
    # Of each box its left, right, and points from left to right.
    boxes = [box.vertices for bars in axes.collections[:-2] for box in bars.get_paths()]
    assert len(boxes) == 3
    for box in boxes:
        left, right = axes.transData.transform([box.min(0), box.max(0)])[:, 0]
        assert 72 * (right - left) / axes.figure.dpi > 3
    edges = [colour for bars in axes.collections[:-2] for colour in bars.get_edgecolor()]
    assert edges and all(max(red, green, blue) < 0.2 for red, green, blue, _ in edges)


def test_in_a_plain_client_a_trace_is_a_line_and_one_for_each_device():
    from IPython.lib.pretty import pretty

    assert pretty(FRAMES) == repr(FRAMES) == str(FRAMES)
    assert len(repr(FRAMES).splitlines()) == 1 + len(FRAMES.devices)


@pytest.mark.full
def test_a_crowd_of_dispatches_is_drawn_as_one_box():
    crowd = Trace(tuple(span(f"{i}", 10 * i, 10 * i + 9, after=(f"{i - 1}",)) for i in range(3000)))
    assert len(crowd.svg()) < 40_000 and len(crowd.critical_path()) == 3000


def test_without_matplotlib_there_is_a_table_and_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SetupError, match="pip install matplotlib"):
        FRAMES.gantt()
    shown = FRAMES._repr_html_()
    assert "pip install matplotlib" in shown and "<table>" in shown and OTHER in shown


def test_threads_note_spans_without_losing_any():
    recorder, together = Recorder(), threading.Barrier(8)

    def work(number: int) -> None:
        together.wait()
        for index in range(200):
            recorder.add(span(f"{number}.{index}", index, index + 1))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = recorder.trace({"what": "threads"})
    assert len(recorder._lists) == 8  # one a thread: none waits for another
    assert len({s.name for s in found.spans}) == 1600 and found.machine == {"what": "threads"}
    assert list(found.spans) == sorted(found.spans, key=lambda s: s.start_ns)


# ---------------------------------------------------------------------------- a device's clock


def uncalibrated(period: float = 1.0, bits: int = 64) -> DeviceClock:
    family = SimpleNamespace(timestamp_valid_bits=bits)
    return DeviceClock(
        SimpleNamespace(  # type: ignore[arg-type]
            extensions=frozenset(),
            info=SimpleNamespace(limits={"timestampPeriod": period}),
            compute_queue=SimpleNamespace(family=family),
        )
    )


def sample(submitting: int, done: int, *ticks: int) -> Sample:
    return Sample(submitting, submitting, done, done, ticks, ())


@given(st.lists(st.tuples(*[st.integers(0, 900)] * 3), min_size=1, max_size=6),
       st.one_of(st.integers(0, 2**32 - 1), st.integers(2**32 - 900, 2**32 - 1)),
       st.sampled_from([1.0, 2.0]))  # fmt: skip
def test_a_clock_without_calibration_is_right_within_what_it_says(runs, offset, period):
    """Each run: (idle before it, before its work, after its work); 32-bit ticks may wrap."""
    clock, now, before = uncalibrated(period, 32), 10**12, None
    for idle, early, late in runs:
        submitting, start = now + idle, now + idle + early
        end, now = start + 500, start + 500 + late
        shown = [(int((t - 10**12) / period) + offset) % 2**32 for t in (start, end)]
        clock.see(sample(submitting, now, *shown))
        for true, ticks in zip((start, end), shown, strict=True):
            assert abs(clock.host_ns(ticks) - true) <= clock.deviation_ns + 2 * period
        assert before is None or clock.deviation_ns <= before
        before = clock.deviation_ns
    assert not clock.calibrated
    assert before is not None and before <= min(e + late for _, e, late in runs) / 2 + period


@pytest.mark.parametrize(("said", "shown"), [(5000, 5000), (4500, 4900), (9000, 5100)])
def test_a_driver_is_believed_as_far_as_work_lies_between_its_submission_and_its_end(
    monkeypatch, said, shown
):
    """Ticks 0 to 1000 are 5000 to 6000 ns at most 100 ns off; the driver says when tick 0 was."""
    monkeypatch.setattr(timestamps.query, "calibrate", lambda device: (0, said, 7))
    clock = uncalibrated()
    assert clock.calibrated and clock.deviation_ns == 7
    clock.see(sample(4900, 6100, 0, 1000))
    assert (clock.host_ns(0), clock.host_ns(1000)) == (shown, shown + 1000)
    assert clock.deviation_ns == max(7, abs(shown - said))
