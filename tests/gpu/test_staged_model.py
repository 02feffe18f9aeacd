"""Layers of a language model over lavapipe and SwiftShader: the tokens of one device, clear errors.

Every case runs in a process that sees both drivers, and leaves no handle behind.
"""

from __future__ import annotations

import pytest

from support.runs.two_drivers import both

START = """
import sys, pytest
import numpy as np
from support.language import gpt2_models, llama_models
from support.runs.split_models import BOTH, LABELS, LAVAPIPE, nothing_left
from vklab import errors, settings
from vklab.apps.llm.decoder import Decoder
from vklab.apps.llm.sampling import SamplingOptions
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
OPTIONS = SamplingOptions(temperature=1.5, top_k=20, top_p=0.9, repeat_penalty=1.3, seed=7)
def near(found, expected):
    assert abs(found - expected).max() < 1e-5 * abs(expected).max()
"""

SAME = (
    START
    + """
file = (llama_models.tiny_model(layers=3, tied=False) if sys.argv[1] == "llama"
        else gpt2_models.tiny_gpt2())
def told(**more):
    with Decoder(file, cache="F32", **more) as decoder:
        decoder.prompt([(7 * i) % 45 for i in range(21)])  # chunks of 8 and 1
        found = [decoder.logits]
        decoder.rewind(4)
        decoder.prompt(TOKENS)
        found.append(decoder.logits)
        tokens = list(decoder.generate(OPTIONS, limit=9))
        found.append(decoder.logits)
        decoder.rewind(15)
        stop = max(map(tokens.index, tokens))  # the last token that was new
        again = list(decoder.generate(OPTIONS, stop_tokens=[tokens[stop]], limit=9))
        assert again == tokens[:stop] and decoder.lengths == (15 + stop,), (again, tokens)
        decoder.step(3)
        return tokens, (*found, decoder.logits), decoder.sizes
one, logits, alone = told(device=LAVAPIPE)
assert len(alone.parts) == 1
with nothing_left():
    seen = []
    tokens, split, sizes = told(devices=BOTH, layers=1, loaded=lambda *now: seen.append(now))
    assert seen == sorted(seen) and seen[0][0] == 0 and len(seen) > 4, seen
    assert {of for _, of in seen} == {seen[-1][0]} == {sizes.weights_bytes}
    assert tokens == one
    for mine, theirs in zip(split, logits, strict=True):
        near(mine, theirs)
    first, second = sizes.parts
    assert [part.device for part in sizes.parts] == [LABELS[index] for index in BOTH]
    assert (first.layers, second.layers[:6]) == ("layer 0", "layers" if sys.argv[1] == "llama"
                                                 else "layer ")
    assert first.cache_bytes + second.cache_bytes == sizes.cache_bytes == alone.cache_bytes
    assert sizes.weights_bytes >= alone.weights_bytes  # twice the embedding, if it is tied
    assert min(first.scratch_bytes, second.scratch_bytes) > 0
    assert str(sizes).startswith(f"layer 0 on {first.device}: weights ")
"""
)


@pytest.mark.parametrize("family", ["llama", pytest.param("gpt2", marks=pytest.mark.full)])
def test_tokens_and_logits_are_those_of_one_device(family):
    both(SAME, family)


@pytest.mark.full
def test_a_batch_and_every_logit():
    both(
        START
        + """
file = llama_models.tiny_model(layers=3)
parts = [[TOKENS[:3], TOKENS[:8]], [TOKENS[3:5], []], [[2], [4]]]
with nothing_left(), Decoder(file, devices=BOTH, layers=2, batch=2, cache="F32") as decoder:
    for part in parts:
        decoder.prompt(part)
    found, before = decoder.logits, decoder.lengths
    chosen = list(decoder.generate(limit=4))
    assert before == (6, 9) and decoder.lengths == (9, 12)
    decoder.rewind(before)
    again = list(decoder.generate(stop_tokens=[chosen[1][0]], limit=4))
    for number in range(2):
        text = sum((part[number] for part in parts), [])
        near(found[number], llama_models.logits(file, text)[-1])
        for pair in chosen:
            text.append(int(llama_models.logits(file, text)[-1].argmax()))
            assert pair[number] == text[-1]
    assert any(None in pair for pair in again)
with nothing_left(), Decoder(file, devices=BOTH, layers=1, cache="F32",
                             every_logit=True) as decoder:
    decoder.prompt(TOKENS)
    near(decoder.logits[0], llama_models.logits(file, TOKENS))
"""
    )


@pytest.mark.full
def test_nothing_breaks_a_rule_of_vulkan():
    both(SAME, "llama", VKLAB_VALIDATE="1")


PLACED = (
    START
    + """
from vklab.apps.llm import placing
from vklab.vulkan.memory import Allocator
file = llama_models.tiny_model(layers=4, tied=False)
def parts(**more):
    with Decoder(file, cache="F32", **more) as decoder:
        decoder.prompt(TOKENS)
        near(decoder.logits[0], llama_models.logits(file, TOKENS)[-1])
        return [(part.layers, part.device) for part in decoder.sizes.parts]
lavapipe, swiftshader = (LABELS[index] for index in BOTH)
with nothing_left():
    # As many layers as fit: all, or those that the first device has room for.
    assert parts(devices=BOTH) == [("", lavapipe)]
    sizes = {}
    for layers in (1, 2, 3):
        with Decoder(file, cache="F32", devices=BOTH, layers=layers) as decoder:
            sizes[layers] = decoder.sizes.parts[0].total_bytes
    room = Allocator.room_bytes
    def small(allocator):
        if allocator.device.info.label == lavapipe:
            return sizes[2] + (sizes[3] - sizes[2]) // 2
        return room(allocator)
    Allocator.room_bytes = small
    assert parts(devices=BOTH) == [("layers 0 to 1", lavapipe), ("layers 2 to 3", swiftshader)]
    told = []
    for allowed in (1 << 10, 0):
        Allocator.room_bytes = lambda allocator: allowed
        for more in ({"devices": BOTH}, {"devices": BOTH, "layers": 2}, {"device": LAVAPIPE}):
            with pytest.raises(errors.PlanError, match="tiny.gguf does not fit .*weights .*KiB, "
                               "cache of 64 positions .*KiB, scratch .*free.*Choose"):
                Decoder(file, cache="F32", context=64, report=told.append, **more)
    assert len(told) == 6  # the sizes are told first
    Allocator.room_bytes = room
    # More layers than there are stay on the first device; none go to the second alone.
    assert parts(devices=BOTH, layers=99) == [("", lavapipe)]
    assert parts(devices=BOTH, layers=0) == [("", swiftshader)]
    assert parts(devices=BOTH[:1]) == [("", lavapipe)]
"""
)


def test_layers_are_placed_by_room_and_by_number():
    both(PLACED)


REFUSED = (
    START
    + """
from vklab.apps.llm import placing
from vklab.runtime import open_devices
file = llama_models.tiny_model()
for more, error, message in (
    ({"devices": BOTH, "device": 0}, errors.SetupError, "give one of them"),
    ({"devices": BOTH, "layers": (1, 1)}, errors.PlanError, "for 2 devices; give one number"),
    ({"devices": BOTH, "layers": -1}, errors.PlanError, "choose 0 or more"),
    ({"devices": BOTH, "layers": 1.5}, errors.PlanError, "choose 0 or more|layers"),
    ({"devices": [0, 0]}, errors.SetupError, "twice"),
    ({"device": 0, "layers": (1, 2)}, errors.PlanError, "for one device and the CPU"),
):
    with pytest.raises(error, match=message):
        Decoder(file, **more)
if not any(info.is_cpu for info in open_devices.devices()):
    sys.exit()  # two GPUs
cpu = open_devices.select("cpu")
with pytest.raises(errors.PlanError, match="is the CPU: name two devices"):
    Decoder(file, cpu.index, layers=1)
# The other device and the CPU: the device has the last layers.
other = next(index for index in BOTH if index != cpu.index)
with nothing_left(), Decoder(file, other, layers=1) as decoder:
    assert [part.device for part in decoder.sizes.parts] == [cpu.label, open_devices.select(
        other).label]
    assert placing.placement(other, None, 1).counts(2) == [1, 1]
    assert placing.placement(other, None, 5).counts(2) == [0, 2]
"""
)


def test_impossible_placements_are_refused_and_the_cpu_takes_the_rest():
    both(REFUSED)


FAILING = (
    START
    + """
from vklab.runtime.program import Program
from vklab.vulkan.command import Submission
from vklab.vulkan.event import EventSubmission
from vklab.vulkan.sync import Fence
file = llama_models.tiny_model(layers=3)
lavapipe, swiftshader = (LABELS[index] for index in BOTH)
expected = llama_models.logits(file, TOKENS)[-1]
with nothing_left(), Decoder(file, devices=BOTH, layers=1, cache="F32") as decoder:
    decoder.prompt(TOKENS[:3])
    tokens = decoder.generate()
    next(tokens), next(tokens)
    decoder.prompt([9])  # closes the iterator
    assert next(tokens, None) is None and decoder.lengths == (5,), decoder.lengths
    wait, calls = Program.wait, []
    for number in (1, 2):  # between the devices, and after the second one
        def interrupted(program):
            calls.append(program)
            if len(calls) == number:
                raise KeyboardInterrupt
            wait(program)
        Program.wait = interrupted
        for call in (lambda: decoder.prompt([1, 2]), lambda: list(decoder.generate())):
            calls.clear()
            with pytest.raises(KeyboardInterrupt):
                call()
            assert decoder.lengths == (5,)
    Program.wait = wait
    decoder.rewind(3)
    decoder.prompt(TOKENS[3:])
    near(decoder.logits[0], expected)
for label in LABELS.values():
    waits = Fence.wait, Submission.wait, EventSubmission.wait
    with nothing_left(), Decoder(file, devices=BOTH, layers=1, cache="F32") as decoder:
        decoder.prompt(TOKENS[:3])
        def lost(thing, seconds=None, real=None):
            device = getattr(thing, "device", None) or thing.fence.device
            if device.info.label == label:
                real(thing)  # it is not lost: what it runs must end before its memory is freed
                raise errors.DeviceLostError("vkWaitForFences", "VK_ERROR_DEVICE_LOST", "gone")
            return real(thing) if seconds is None else real(thing, seconds)
        Fence.wait = lambda fence, seconds=None: lost(fence, seconds, waits[0])
        Submission.wait = lambda one, seconds=None: lost(one, seconds, waits[1])
        EventSubmission.wait = lambda one, seconds=None: lost(one, seconds, waits[2])
        with pytest.raises(errors.DeviceLostError) as caught:
            list(decoder.generate(limit=4))
        assert f"the layers on {label} are lost" in str(caught.value), caught.value
        Fence.wait, Submission.wait, EventSubmission.wait = waits
        with pytest.raises(errors.DeviceLostError):
            decoder.prompt([1])
"""
)


def test_an_interrupt_and_a_lost_device():
    both(FAILING)
