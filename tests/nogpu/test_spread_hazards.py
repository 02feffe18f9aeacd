"""What chunks in flight do to each other's bytes: each planted mistake is found out, and named."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.checks import plan_checks, spread_checks
from support.fakes.fake_device import DISCRETE, UNIFIED, fake_device
from support.fakes.placed_graphs import network

pytest.importorskip("vulkan")

from support.fakes import fake_spread
from support.fakes.fake_spread import (
    NARROW,
    caught,
    group_of,
    half,
    large,
    mutated,
    pinned,
    planned,
)
from vklab import settings
from vklab.graph import shapes
from vklab.plan.place import transfer_paths
from vklab.plan.place.transfer_paths import TransferPath
from vklab.plan.plan import Plan
from vklab.runtime.many import scheduler
from vklab.runtime.many import split as running
from vklab.runtime.many.transfer_memory import TransferMemory

EDGES = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)]
BESIDE = {(0, 1), (1, 3)}  # of one device, which keeps their order


def with_order(monkeypatch, change):
    """Give the scheduler another order than the chunks ask for."""
    real = scheduler.Order

    def order(predecessors: Sequence, behind: Sequence) -> scheduler.Order:
        return real(*change(list(map(set, predecessors)), list(map(set, behind))))

    monkeypatch.setattr(scheduler, "Order", order)


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("shared", [True, False])
def test_every_wait_is_missed(edge, shared, monkeypatch):
    first, second = edge

    def without(predecessors, behind):
        predecessors[second].discard(first)
        behind[second].discard(first)
        return predecessors, behind

    with_order(monkeypatch, without)
    kind = "run" if shared or edge in BESIDE else f"move to chunk {second}"
    caught(
        rf"read after write: chunk {first} \({kind}\) .*, chunk {second} \(run\).*"
        "nothing orders them",
        group_of,
        monkeypatch,
        planned(),
        shared,
    )


@pytest.mark.parametrize("edge", sorted(BESIDE))
def test_an_order_by_a_queue_takes_a_barrier(edge, monkeypatch):
    first, second = edge
    monkeypatch.setattr(
        plan_checks.spread_hazards.Frame, "_has_barrier", lambda frame, number: number != second
    )
    caught(
        rf"read after write: chunk {first} \(run\) .*, chunk {second} \(run\)",
        group_of,
        monkeypatch,
        planned(),
    )


def test_a_queue_orders_nothing_on_another_device(monkeypatch):
    monkeypatch.setattr(
        running, "_behind", lambda plan, paths: [set(chunk.predecessors) for chunk in plan.chunks]
    )
    caught(
        r"read after write: chunk 0 \(run\) 'a', chunk 2 \(run\) 'a', and nothing orders them",
        group_of,
        monkeypatch,
        planned(),
    )


def test_what_is_copied_by_the_host_is_not_left_to_the_queue(monkeypatch):
    """The order by the queue forgets that a value has another path: then nobody copies it."""
    real = TransferMemory._given

    def given(memory, move):
        within = memory.plan.chunks[move.source].device == memory.plan.chunks[move.target].device
        return (None, TransferPath(transfer_paths.HOST_COPY)) if within else real(memory, move)

    def behind(plan: Plan, paths: object) -> list[set[int]]:
        return [
            {n for n in chunk.predecessors if plan.chunks[n].device == chunk.device}
            for chunk in plan.chunks
        ]

    def seen() -> Plan:
        with monkeypatch.context() as patch:
            patch.setattr(transfer_paths, "unseen", lambda *given: frozenset())
            return planned()

    monkeypatch.setattr(TransferMemory, "_given", given)
    group_of(monkeypatch, seen())
    monkeypatch.setattr(running, "_behind", behind)
    caught("chunk 1 finds other bytes than 'a'", group_of, monkeypatch, seen())


# ------------------------------------------------------------------------------ memory


@pytest.mark.parametrize(("shares", "reader"), [(True, "run"), (False, "move to chunk 2")])
def test_chunks_of_one_device_do_not_share_what_they_write(shares, reader, monkeypatch):
    """As if memory were free again when a chunk is done, though others read what it left there."""
    real = TransferMemory.pool

    def pool(memory, chunk):
        first = next(each for each in memory.plan.chunks if each.device == chunk.device)
        made = memory._pools[chunk.number] = real(memory, first)
        return made

    monkeypatch.setattr(TransferMemory, "pool", pool)
    number = 2 if shares else 0
    caught(
        rf"chunk {number} \({reader}\) 'a'.* and nothing orders them",
        group_of,
        monkeypatch,
        planned(),
        shares,
    )
    group_of(monkeypatch, large())  # there, no chunk writes what another in flight still reads


def test_frames_in_flight_have_memory_of_their_own(monkeypatch):
    """As if the clone that runs the next frame were given the memory of the first one."""
    plan = planned()
    first = group_of(monkeypatch, plan)
    group_of(monkeypatch, plan)
    real = TransferMemory.__init__

    def init(memory, *given):
        real(memory, *given)
        memory._pools, memory._imports = first._memory._pools, first._memory._imports

    monkeypatch.setattr(TransferMemory, "__init__", init)
    caught("two that may run at the same time", group_of, monkeypatch, plan, False)


def test_a_result_is_not_written_over_what_another_chunk_still_reads(monkeypatch):
    plan = planned()
    own = plan.chunks[1]  # reads a, which chunk 2 reads as well, and writes b
    slots = own.memory.slots | {"b": own.input_slots["a"]}
    wrong = replace(own, memory=replace(own.memory, slots=slots))
    plan = replace(plan, chunks=(plan.chunks[0], wrong, *plan.chunks[2:]))
    caught(
        r"read after write: chunk 1 \(run\) 'b', chunk 2 \(run\) 'a', and nothing orders them",
        group_of,
        monkeypatch,
        plan,
    )


def test_a_value_is_read_where_it_was_left(monkeypatch):
    real = TransferMemory._given

    def given(memory, move):
        place, path = real(memory, move)
        return (place[0], place[1] + 4) if place and move.value == "d" else place, path

    monkeypatch.setattr(TransferMemory, "_given", given)
    caught("chunk 3 finds other bytes than 'd'", group_of, monkeypatch, planned())


@pytest.mark.parametrize("number", range(5))
def test_every_move_is_missed_by_what_runs(number, monkeypatch):
    """Somebody loses a move that was planned: then its value is taken to come from outside."""
    plan = planned()
    moves = plan.transfers
    plan = replace(plan, transfers=moves[:number] + moves[number + 1 :])
    caught("finds other bytes than", group_of, monkeypatch, plan, False)


def test_a_path_past_the_host_is_missed(monkeypatch):
    mutated(monkeypatch, TransferMemory, "moves", lambda paths: {})
    caught("nothing takes 'a' from chunk 0 to chunk 2", group_of, monkeypatch, large())


# ------------------------------------------------------------------------------ paths


@pytest.mark.parametrize(("make", "name", "message"), [
    (planned, transfer_paths.SAME_MEMORY, "same memory: between devices"),
    (planned, transfer_paths.SHARED, "shared host memory: between chunks of one device"),
    (planned, transfer_paths.RING, "ring in shared host memory: it arrives at inputs"),
    (half, transfer_paths.SHARED, "shared host memory: it is float32 and float16 at the ends"),
    (large, transfer_paths.HOST_COPY, "host copy: the host does not see it at leaving"),
    (planned, "pigeons", "pigeons: no such path"),
])  # fmt: skip
def test_a_path_that_its_ends_do_not_allow_is_caught(make, name, message, monkeypatch):
    real = TransferMemory.moves

    def moves(memory):
        found = real(memory)
        memory.paths.update(dict.fromkeys(memory.plan.transfers, TransferPath(name)))
        return found

    monkeypatch.setattr(TransferMemory, "moves", moves)
    monkeypatch.setattr(running, "_behind", lambda plan, paths: [set() for _ in plan.chunks])
    caught(message, group_of, monkeypatch, make())


def test_a_place_that_cannot_be_bound_is_caught(monkeypatch):
    """Memory is bound at bytes that the device of the reader does not take."""
    plan = planned()
    own = plan.chunks[2]
    place = replace(own.output_slots["d"], offset_bytes=128)
    wrong = replace(
        own,
        output_slots={"d": place},
        memory=replace(own.memory, slots=own.memory.slots | {"d": place}),
    )
    plan = replace(plan, chunks=(*plan.chunks[:2], wrong, *plan.chunks[3:]))
    # a small number
    monkeypatch.setattr(fake_spread.transfer_memory, "ALIGNMENT", "minSubgroupSize")
    caught("nothing can be bound at", group_of, monkeypatch, plan)


# ------------------------------------------------------------------------------ at random

SWITCHES = ("DISABLE_DIRECT_IO", "DISABLE_STAGING_RING", "DISABLE_DEVICE_ORDER",
            "DISABLE_EARLY_MOVES", "DISABLE_FUSION", "DISABLE_ALIASING")  # fmt: skip
READS = {"Relu": 1, "Identity": 1, "Flatten": 1, "Softmax": 1, "Add": 2, "Mul": 2}


def split_at_random(rng: random.Random) -> Plan:
    """Plan a random graph, outputs on the way and views among it, on up to four devices."""
    layers: list[tuple[str, str, tuple[str, ...]]] = []
    names, reach = ["x", "z"], rng.choice([2, 20])
    for number in range(rng.randint(2, 14)):
        kind = rng.choice(list(READS))
        near = names[-reach:] if rng.random() < 0.8 else names
        layers.append((f"v{number}", kind, tuple(rng.choices(near, k=READS[kind]))))
        names.append(f"v{number}")
    graph = network(layers, rng.choice([8, 600]), rng.choice(["float32", "float32", "float16"]))
    more = {name for name in names[2:] if rng.random() < 0.15}
    graph = shapes.infer(replace(graph, outputs=tuple(sorted({*graph.outputs, *more}))))
    infos = [
        fake_device(
            {"minStorageBufferOffsetAlignment": rng.choice([16, 256])},
            index=number,
            name=f"GPU {number}",
            features=rng.choice([frozenset(), NARROW]),
            memory_types=rng.choice([UNIFIED, DISCRETE]),
        )
        for number in range(rng.randint(1, 4))
    ]
    device, stay, pins = 0, rng.choice([0.2, 0.6, 0.9]), {}
    for node in graph.nodes:
        device = device if rng.random() < stay else rng.randrange(len(infos))
        pins[node.name] = device
    return pinned(graph, infos, pins)


@given(st.integers(0, 2**32))
def test_models_split_at_random_are_sound_and_miss_each_wait_that_nothing_replaces(seed):
    rng = random.Random(seed)
    switches = {name: True for name in SWITCHES if rng.random() < 0.2}
    shares = rng.random() < 0.7
    with pytest.MonkeyPatch.context() as patch, settings.settings(**switches):
        plan = split_at_random(rng)
        group = group_of(patch, plan, shares)
        waits = [(first, c.number) for c in plan.chunks for first in c.predecessors]
        for first, second in rng.sample(waits, min(2, len(waits))):
            left = [set(chunk.predecessors) for chunk in plan.chunks]
            left[second].discard(first)
            if first in spread_checks.ancestors(left)[second]:
                continue  # it still comes before, by way of others
            behind = [
                each & before
                for each, before in zip(running._behind(plan, group.paths), left, strict=True)
            ]
            with patch.context() as inner:
                with_order(inner, lambda *given, left=left, behind=behind: (left, behind))
                caught("nothing orders them|finds other bytes", group_of, inner, plan, shares)
