"""The parts of the Vulkan layer that decide something: no driver is asked."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fakes.fake_device import CACHED, COHERENT, LOCAL, VISIBLE
from support.graphs.small_models import ROOT
from vklab.errors import DeviceLostError, OutOfMemoryError, TimeoutError, VulkanError
from vklab.types import QueueFamily
from vklab.vulkan import api, device, memory, physical_device, query, sync

needs_bindings = pytest.mark.skipif(api.lib is None, reason=f"no Vulkan loader: {api.LOADER_ERROR}")


def structures_in_use() -> list[str]:
    """Return the names of the structures that vklab/vulkan builds."""
    texts = [path.read_text("utf-8") for path in (ROOT / "vklab" / "vulkan").glob("*.py")]
    names = set(re.findall(r'"(Vk[A-Z]\w+)"', "\n".join(texts)))
    chained = ("ID", "Subgroup", "Maintenance3", "Driver", "Maintenance4", "SubgroupSizeControl")
    names |= {f"VkPhysicalDevice{name}Properties" for name in chained}
    # The base class's word, and a structure that has a test of its own.
    return sorted(names - {"VkObject", "VkCalibratedTimestampInfoEXT"})


@needs_bindings
@pytest.mark.parametrize("name", structures_in_use())
def test_every_structure_in_use_gets_its_type(name):
    ctype = api.ffi.typeof(name)
    if ctype.kind != "struct":
        return  # a handle or an enumeration
    if "sType" in dict(ctype.fields):
        words = re.sub(r"(EXT|KHR)$", "", name.removeprefix("Vk"))
        squeezed = [
            key.replace("_", "").removeprefix("VKSTRUCTURETYPE")
            for key, number in vars(api.bindings).items()
            if key.startswith("VK_STRUCTURE_TYPE") and number == api.structure_type(name)
        ]
        assert any(key.startswith(words.upper()) for key in squeezed), squeezed
        assert api.struct(name).sType == api.structure_type(name)
    else:
        assert api.structure_type(name) is None and api.struct(name)


@needs_bindings
def test_what_the_bindings_number_wrongly_is_corrected():
    assert api.structure_type("VkCalibratedTimestampInfoEXT") == 1000184000


@needs_bindings
def test_structures_keep_what_they_point_to():
    info = api.struct(
        "VkInstanceCreateInfo",
        pApplicationInfo=api.struct("VkApplicationInfo", pApplicationName="näme"),
        enabledExtensionCount=2,
        ppEnabledExtensionNames=["one", "two"],
    )
    assert api.text(info.pApplicationInfo.pApplicationName) == "näme"
    assert [api.text(info.ppEnabledExtensionNames[i]) for i in range(2)] == ["one", "two"]
    entries = [api.struct("VkSpecializationMapEntry", constantID=i, offset=4 * i) for i in range(3)]
    special = api.struct("VkSpecializationInfo", pMapEntries=entries, pData=b"abcd")
    del entries
    assert [special.pMapEntries[i].constantID for i in range(3)] == [0, 1, 2]
    assert bytes(api.ffi.buffer(special.pData, 4)) == b"abcd"


@needs_bindings
def test_unknown_structures_fields_and_constants_are_named():
    with pytest.raises(AttributeError, match="VkSubmitInfo has no field colour; it has sType"):
        api.struct("VkSubmitInfo", colour=1)
    with pytest.raises(LookupError, match="VkBaseInStructure"):
        api.struct("VkBaseInStructure")
    with pytest.raises(AttributeError, match="VK_NO_SUCH_THING"):
        api.constant("VK_NO_SUCH_THING")


@needs_bindings
def test_results_have_names_and_errors():
    errors = {
        -2: OutOfMemoryError,
        -1: OutOfMemoryError,
        -4: DeviceLostError,
        2: TimeoutError,
        -3: VulkanError,
        -12345678: VulkanError,
    }
    for result, error in errors.items():
        with pytest.raises(VulkanError, match="vkFoo returned Vk.*: on X|VK_.*: on X") as caught:
            api.check("vkFoo", result, "on X")
        assert type(caught.value) is error
    api.check("vkFoo", 0)
    assert api.result_name(-12345678) == "VkResult(-12345678)"


@needs_bindings
def test_flags_have_names():
    assert api.flag_names(LOCAL | CACHED, "VK_MEMORY_PROPERTY_") == {"device_local", "host_cached"}
    assert api.flag_names(0, "VK_QUEUE_") == frozenset()


@given(st.integers(0, 127), st.integers(0, 1023), st.integers(0, 4095))
def test_versions_are_packed_and_unpacked(major, minor, patch):
    packed = api.make_version(major, minor, patch)
    assert api.version_tuple(packed) == (major, minor, patch)
    # A variant in the upper three bits is no part of the major version.
    assert api.version_tuple(packed | 5 << 29) == (major, minor, patch)


def test_versions_sort_as_their_numbers():
    assert api.make_version(1, 3, 230) == 0x4030E6
    assert api.make_version(1, 3) < api.make_version(1, 3, 1) < api.make_version(1, 4)


# --------------------------------------------------------------------------------- memory types

V, C = VISIBLE | COHERENT, CACHED
TABLES = {
    "unified": [LOCAL | V | C],
    "discrete": [0, LOCAL, V, V | C, LOCAL | V],
    "no-rebar": [LOCAL, V, V | C],
    "integrated": [LOCAL | V, LOCAL | V | C],
}


@pytest.mark.parametrize(("table", "kind", "index"), [
    ("unified", "device", 0), ("unified", "upload", 0), ("unified", "readback", 0),
    ("discrete", "device", 1), ("discrete", "upload", 4), ("discrete", "staging", 2),
    ("discrete", "readback", 3), ("no-rebar", "upload", 1), ("no-rebar", "readback", 2),
    ("integrated", "device", 0), ("integrated", "upload", 0), ("integrated", "readback", 1),
])  # fmt: skip
def test_memory_types_by_kind(table, kind, index):
    required, preferred = memory.KINDS[kind]
    assert memory.choose_memory_type(TABLES[table], 0xFF, required, preferred) == index


def test_the_mask_of_a_buffer_is_obeyed():
    assert memory.choose_memory_type([LOCAL, LOCAL], 0b10, LOCAL) == 1
    with pytest.raises(LookupError, match="mask 0b10 has the required flags 0b10"):
        memory.choose_memory_type([VISIBLE, LOCAL], 0b10, VISIBLE)


@given(
    st.lists(st.integers(0, 15), max_size=6),
    st.integers(0, 63),
    st.integers(0, 15),
    st.integers(0, 15),
)
def test_the_chosen_memory_type_is_the_best_allowed(types, mask, required, preferred):
    allowed = [i for i, flags in enumerate(types) if mask >> i & 1 and flags & required == required]
    if not allowed:
        with pytest.raises(LookupError):
            memory.choose_memory_type(types, mask, required, preferred)
        return
    chosen = memory.choose_memory_type(types, mask, required, preferred)
    scores = {i: bin(types[i] & preferred).count("1") for i in allowed}
    assert chosen == min(i for i in allowed if scores[i] == max(scores.values()))


REQUESTS = st.lists(st.tuples(st.integers(1, 300), st.sampled_from([1, 4, 64, 256])), max_size=30)


@given(REQUESTS, st.randoms(use_true_random=False))
def test_free_ranges_never_overlap_and_all_come_back(requests, random):
    ranges = memory.FreeRanges(2048)
    held: list[tuple[int, int]] = []
    for size, alignment in requests:
        if held and random.random() < 0.3:
            ranges.give_back(*held.pop(random.randrange(len(held))))
        offset = ranges.take(size, alignment)
        if offset is not None:
            assert offset % alignment == 0 and offset + size <= 2048
            held.append((offset, size))
        for (a, a_size), (b, b_size) in itertools.combinations(held, 2):
            assert a + a_size <= b or b + b_size <= a
        assert ranges.free_bytes == 2048 - sum(size for _, size in held)
    random.shuffle(held)
    for offset, size in held:
        ranges.give_back(offset, size)
    assert ranges.take(2048, 1) == 0


def test_free_ranges_fit_first_and_say_when_they_are_full():
    ranges = memory.FreeRanges(100)
    assert [ranges.take(40, 1), ranges.take(40, 1), ranges.take(40, 1)] == [0, 40, None]
    ranges.give_back(0, 40)
    assert ranges.take(20, 1) == 0 and ranges.take(20, 1) == 20


# ---------------------------------------------------------------------------- queues and devices


def families(*flags: str) -> tuple[QueueFamily, ...]:
    return tuple(QueueFamily(i, 1, frozenset(f.split()), 64) for i, f in enumerate(flags))


@pytest.mark.parametrize(("found", "chosen"), [
    (families("graphics compute transfer"), (0, 0)),
    (families("graphics compute transfer", "transfer", "compute transfer"), (2, 1)),
    (families("graphics compute transfer", "compute transfer", "transfer video_decode"), (1, 1)),
    (families("transfer", "compute transfer", "graphics compute"), (1, 0)),
    (families("graphics", "graphics compute transfer"), (1, 1)),
    (families("compute", "compute"), (0, 0)),
])  # fmt: skip
def test_queue_families(found, chosen):
    assert device.choose_queue_families(found) == chosen


def test_no_queue_family_computes():
    with pytest.raises(LookupError, match="compute"):
        device.choose_queue_families(families("graphics transfer"))


NEEDED = frozenset({"timelineSemaphore", "synchronization2", "maintenance4"})


@pytest.mark.parametrize(("version", "found", "features", "words"), [
    ((1, 2, 300), families("compute"), NEEDED, "supports Vulkan 1.2; vklab needs 1.3"),
    ((1, 3, 0), families("graphics"), NEEDED, "no queue family for compute"),
    ((1, 3, 0), families("compute"), NEEDED - {"maintenance4"}, "lacks the features maintenance4"),
    ((1, 4, 0), families("compute"), frozenset(), "maintenance4, synchronization2, timeline"),
    ((1, 3, 0), families("compute"), NEEDED, ""), ((2, 0, 0), families("compute"), NEEDED, ""),
])  # fmt: skip
def test_refusals_have_a_reason(version, found, features, words):
    reason = physical_device.refusal(version, found, features)
    assert words in reason if words else reason == ""


# ------------------------------------------------------------------------------------ times


def test_ticks_become_nanoseconds_across_a_wrap():
    assert query.ticks_to_ns([5, 7, 10], 2.0, 64) == [0.0, 4.0, 10.0]
    assert query.ticks_to_ns([2**36 - 1, 1], 1.0, 36) == [0.0, 2.0]
    assert query.ticks_to_ns([], 1.0, 64) == []


@pytest.mark.parametrize(("seconds", "wait_ns"), [
    (0.05, 50_000_000), (0, 0), (-1, 0), (1e30, 2**63 - 1), (None, 60 * 10**9),
])  # fmt: skip
def test_waits_are_finite(seconds, wait_ns):
    assert sync.timeout_ns(seconds) == wait_ns


def test_enumerated_structs_outlive_their_array():
    def command(count, items):
        count[0] = 200
        for number in range(200 if items else 0):
            items[number].width = number

    rows = api.enumerate_all(command, "VkExtent2D")
    for _ in range(1000):  # takes the memory that an array has left
        api.ffi.new("VkExtent2D[200]", [(7777, 7777)] * 200)
    assert [row.width for row in rows] == list(range(200))
