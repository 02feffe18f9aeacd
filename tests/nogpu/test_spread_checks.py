"""The check behind every split model finds no fault with sound plans, and each planted mistake."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from support.checks import plan_checks, spread_checks

pytest.importorskip("vulkan")

from support.fakes.fake_spread import caught, group_of, half, large, mutated, planned
from vklab import settings
from vklab.plan.chunk import Chunk, Transfer
from vklab.plan.place import cutting, transfer_paths


@pytest.mark.parametrize(("make", "switches", "paths"), [
    (planned, {}, {transfer_paths.SAME_MEMORY, transfer_paths.SHARED}),
    (planned, {"DISABLE_DEVICE_ORDER": True}, {transfer_paths.SAME_MEMORY, transfer_paths.SHARED}),
    (planned, {"DISABLE_SHARED_MEMORY": True},
     {transfer_paths.SAME_MEMORY, transfer_paths.HOST_COPY}),
    (planned, {"DISABLE_DIRECT_IO": True}, {transfer_paths.SAME_MEMORY, transfer_paths.RING}),
    (half, {}, {transfer_paths.SAME_MEMORY, transfer_paths.HOST_COPY}),
    (large, {}, {transfer_paths.SAME_MEMORY, transfer_paths.RING}),
])  # fmt: skip
def test_sound_plans_are_checked_and_found_so(make, switches, paths, monkeypatch):
    before = dict(plan_checks.counts)
    with settings.settings(**switches):
        plan = make()
        group = group_of(monkeypatch, plan)
    assert [chunk.predecessors for chunk in plan.chunks] == [(), (0,), (0,), (1, 2), (3,)]
    assert {path.name for path in group.paths.values()} == paths
    assert set(group.paths) == set(plan.transfers)
    for kind in ("split", "split and run"):
        assert plan_checks.counts[kind] == before[kind] + 1


# ------------------------------------------------------------------------------ plans


def but(number: int, **changes):
    """Return what changes one chunk; names of fields of its graph change that."""

    def change(cut: tuple[Chunk, ...]) -> tuple[Chunk, ...]:
        chunk, outer = cut[number], dict(changes)
        inner = {key: outer.pop(key) for key in changes if hasattr(chunk.graph, key)}
        chunk = replace(chunk, graph=replace(chunk.graph, **inner), **outer)
        return (*cut[:number], chunk, *cut[number + 1 :])

    return change


def swapped(cut):
    """Have the fourth chunk before the third, which it waits for."""
    new = {0: 0, 1: 1, 2: 3, 3: 2, 4: 4}
    made = [
        replace(
            chunk,
            number=new[chunk.number],
            predecessors=tuple(sorted(new[n] for n in chunk.predecessors)),
        )
        for chunk in cut
    ]
    return tuple(sorted(made, key=lambda chunk: chunk.number))


def twice(cut):
    """Have the first chunk's node in the second one as well."""
    first, second = cut[0].graph, cut[1].graph
    return but(1, nodes=first.nodes + second.nodes, inputs=first.inputs)(cut)


def known(cut):
    """Take what a chunk computes for a constant of the chunk that reads it."""
    graph = cut[4].graph
    (e,) = graph.inputs
    return but(4, inputs=(), initializers={**graph.initializers, "e": e})(cut)


CUTS = {
    "an edge lost": (but(3, predecessors=(2,)), r"chunk 3.* should wait for \[1, 2\]"),
    "an edge too many": (but(4, predecessors=(0, 3)), r"chunk 4.* should wait for \[3\]"),
    "a circle": (but(2, predecessors=(0, 3)), "chunk 2.* waits for itself"),
    "swapped order": (swapped, "chunk 2.* waits for a later chunk"),
    "mixed up": (lambda cut: cut[::-1], "is at place 0"),
    "another device": (but(1, place=1), "chunk 1.*b: .* is placed on device 0"),
    "a node lost": (but(4, nodes=(), outputs=()), "miss nodes, or add some: node f"),
    "a node twice": (twice, "node a.* is in two chunks"),
    "a value not left": (but(2, outputs=()), "chunk 2.* does not leave 'd', read by chunk 3"),
    "a value left for nobody": (but(2, outputs=("c", "d")), "leaves 'c', which nobody reads"),
    "an output lost": (but(4, outputs=()), "no chunk leaves the output 'f'"),
    "a value for a constant": (known, "chunk 4.* takes 'e' for a constant"),
}  # fmt: skip
MOVES = {
    **{f"move {n} lost": (lambda moves, n=n: moves[:n] + moves[n + 1 :], "nothing moves")
       for n in range(5)},
    "a move twice": (lambda moves: (*moves, moves[0]), "'a' moves .* to chunk 1 2 times"),
    "a move too many": (lambda moves: (*moves, Transfer("a", 0, 4, 256)), "does not want it"),
    "another source": (lambda moves: (replace(moves[4], source=2), *moves[:4]),
                       "nothing moves 'e' from chunk 3"),
    "fewer bytes": (lambda moves: (replace(moves[0], size_bytes=4), *moves[1:]),
                    "should move 256 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", CUTS)
def test_a_mutant_that_cuts_wrongly_is_caught(name, monkeypatch):
    change, message = CUTS[name]
    plan = planned()
    cut = spread_checks.as_cut(plan.chunks)
    assert not spread_checks.chunk_problems(plan.graph, cut, plan.placement.devices)
    found = spread_checks.chunk_problems(plan.graph, change(cut), plan.placement.devices)
    assert any(re.search(message, line) for line in found), found
    mutated(monkeypatch, cutting, "cut", change)
    caught(f"{message}|nobody makes", planned)


@pytest.mark.parametrize("name", MOVES)
def test_a_mutant_that_moves_wrongly_is_caught(name, monkeypatch):
    change, message = MOVES[name]
    real = cutting.transfers
    monkeypatch.setattr(
        cutting,
        "transfers",
        lambda cut: change(tuple(move for move in real(cut) if move.source is not None)),
    )
    caught(message, planned)


def test_mutants_that_hide_values_from_the_host_are_caught(monkeypatch):
    mutated(monkeypatch, transfer_paths, "unseen", lambda names: names | {"b"})
    caught("the host does not see the output 'b'", large)
    mutated(monkeypatch, transfer_paths, "unseen", lambda names: names | {"a"})
    caught("the host must change its bytes, and does not see them", half)
    mutated(monkeypatch, transfer_paths, "unseen", lambda names: names | {"x"})
    caught("the host does not see its input 'x'", planned)
