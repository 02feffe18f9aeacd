"""Compiled models as files: what is written is read, and what is damaged is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fakes.fake_device import fake_device
from support.models.compiled_models import refused, saved, sealed
from support.runs import tiers
from vklab import settings
from vklab.apps.cli import devices
from vklab.errors import ModelError, SetupError
from vklab.ops import dtypes
from vklab.runtime.compiled import codec, container, profile, restore
from vklab.runtime.compiled import saved as saves
from vklab.shader import compiler
from vklab.types import (
    DeviceInfo,
    Dispatch,
    Formula,
    MemoryType,
    Operand,
    Pointwise,
    StridedView,
    TensorInfo,
)


@pytest.fixture(scope="module")
def made() -> saves.Saved:
    return saved()


@pytest.fixture(scope="module")
def path(made: saves.Saved, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("compiled") / "net.vklab"
    assert saves.write(target, made) == target.stat().st_size
    return target


@pytest.fixture(scope="module")
def data(path: Path) -> bytes:
    return path.read_bytes()


def tree(found: Any, seen: dict[int, int] | None = None) -> Any:
    """Return a value as text and numbers alone; one object that occurs twice is one number."""
    seen = {} if seen is None else seen
    if dataclasses.is_dataclass(found):
        if id(found) in seen:
            return seen[id(found)]
        seen[id(found)] = len(seen)
        names = [f.name for f in dataclasses.fields(found) if f.compare]
        return [type(found).__name__, *(tree(getattr(found, name), seen) for name in names)]
    if isinstance(found, np.ndarray):
        return str(found.dtype), found.shape, found.tobytes()
    if isinstance(found, dict):
        return [(tree(k, seen), tree(v, seen)) for k, v in found.items()]
    if isinstance(found, (tuple, list)):
        return type(found).__name__, [tree(item, seen) for item in found]
    return sorted(found) if isinstance(found, frozenset) else (type(found).__name__, str(found))


# ------------------------------------------------------------------------------------ what is kept


def test_a_compiled_model_is_read_as_it_was_written(made, path, data):
    for given_model in (path, str(path), data):
        found = saves.read(given_model)
        assert tree(found.graph) == tree(made.graph)
        assert tree((found.stages, found.kernels)) == tree((made.stages, made.kernels))
        assert (found.device, found.dtype, found.outdated) == (made.device, "", "")


def test_each_tensor_is_one_object_and_each_array_lies_in_the_file(made, path):
    found = saves.read(path)
    chunk = found.stages[0].parts[0].chunk
    tensors = {id(t): t.name for d in chunk.dispatches for _, t in d.reads + d.writes}
    assert len(tensors) == len(set(tensors.values()))
    weight = found.graph.initializers["w"].constant
    assert weight is not None and not weight.flags.writeable
    assert weight.ctypes.data % container.PAGE_BYTES == 0  # in memory as in the file
    chunks = [part.chunk for part in found.stages[0].parts]
    assert all(any(info.constant is weight for info in c.constants.values()) for c in chunks)


def test_only_the_kernels_in_use_are_kept(made):
    used = {d.variant for part in made.stages[0].parts for d in part.chunk.dispatches}
    assert {kernel.variant for kernel in made.kernels} == used


def test_every_field_of_a_dispatch_is_kept():
    info = TensorInfo("x", "float32", (2, 3))
    view = StridedView((3, 1), 4)
    pointwise = Pointwise(
        (2, 3),
        (Operand(info, "float16", view),),
        (Formula("a + p0", (0,), (0.5, float("-inf")), "float32", "n"),),
        view,
    )
    values: dict[str, Any] = {
        "kernel": "k",
        "reads": (("x", info), ("z", info)),
        "writes": (("y", info),),
        "workgroups": (1, 2, 3),
        "push": (("a", 1), ("b", (1.5, 2.0)), ("c", float("inf"))),
        "defines": (("T", "float"),),
        "constants": (("WORKGROUP", 64),),
        "flops": 7,
        "iterations": 9,
        "pointwise": pointwise,
        "prologue": pointwise,
        "epilogue": pointwise,
        "fragment": "float f();",
        "in_place": ("x",),
    }
    given_all = dataclasses.replace(Dispatch(**values))
    blobs = codec.Blobs()
    text = json.dumps(codec.Encoder(blobs).document(given_all))
    found = codec.decode(json.loads(text), codec.Blobs(blobs.views), Dispatch, "it")
    assert tree(found) == tree(given_all)
    assert found.reads[0][1] is found.reads[1][1] is found.epilogue.operands[0].info


TEXTS = st.text(tiers.CHARACTERS)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
KINDS = ("float32", "int64", "bool", "float16", "bfloat16", "int4", "float8_e4m3fn", "complex64")
ARRAYS = st.builds(
    lambda kind, shape: np.arange(int(np.prod(shape))).reshape(shape).astype(kind),
    st.sampled_from(KINDS),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
)
VALUES = st.recursive(
    SCALARS | st.binary(max_size=9) | ARRAYS | st.frozensets(TEXTS),
    lambda inner: (
        st.lists(inner).map(tuple) | st.lists(inner) | st.dictionaries(TEXTS | st.integers(), inner)
    ),
    max_leaves=12,
)


@pytest.mark.full
@given(VALUES)
def test_any_value_comes_back(given_value):
    blobs = codec.Blobs()
    text = json.dumps(codec.Encoder(blobs).document(given_value))
    found = codec.decode(json.loads(text), codec.Blobs(blobs.views), Any, "it")
    assert tree(found) == tree(given_value)


def test_what_has_no_words_is_said_when_it_is_written():
    with pytest.raises(TypeError, match="cannot be saved"):
        codec.Encoder(codec.Blobs()).document(object())


def test_element_types_are_those_of_onnx():
    numbers = {n: k for k, n in onnx.TensorProto.DataType.items() if n}
    assert set(dtypes.ELEMENT_TYPES.values()) >= set(numbers) - {0}
    for name, number in dtypes.ELEMENT_TYPES.items():
        expected = onnx.helper.tensor_dtype_to_np_dtype(number)
        assert name == "string" if number == onnx.TensorProto.STRING else str(expected) == name


# -------------------------------------------------------------------------------- when it is used


def test_plans_of_another_layout_are_left_aside_with_the_reason(data):
    def rename(header):
        header["plans"]["classes"]["vklab.plan.memory.Slot"][0][0] = "place"

    found = saves.read(sealed(data, rename))
    assert not found.stages and "Slot has other fields" in found.outdated
    assert len(found.graph.nodes) == 4

    def other_graph(header):
        header["model"]["classes"]["vklab.graph.graph.Node"].pop()

    assert "compile the model again" in refused(sealed(data, other_graph))


def test_what_a_plan_depends_on_is_compared(made):
    assert made.mismatch("", {}) == ""
    assert "dtype=float16" in made.mismatch("float16", {})
    assert "upper_bounds" in made.mismatch("", {"batch": 9})
    with settings.settings(DISABLE_FUSION=True, DEBUG=1):
        assert "DISABLE_FUSION was False, is True" in made.mismatch("", {})
        assert "DEBUG" not in made.mismatch("", {})


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (fake_device(), ""),
        (fake_device(index=3, uuid="11"), ""),
        (fake_device(driver_version=2), "driver_version 1 -> 2"),
        (fake_device({"maxStorageBufferRange": 5}), "maxStorageBufferRange 134217728 -> 5"),
        (fake_device(features=frozenset({"shaderInt8"})), "features with shaderInt8"),
        (fake_device(memory_types=(MemoryType(0, frozenset(), 1),)), "memory_types"),
    ],
)
def test_devices_differ_in_what_plans_depend_on(made, other, text):
    found = saves.difference(made.device, other)
    assert text in found if text else not found


def test_a_kernel_whose_text_has_changed_is_not_used_for_a_plan_made_here(made, monkeypatch):
    assert set(made.current_shaders()) == set(made.shaders)
    monkeypatch.setattr(compiler, "text_key", lambda *variant: "changed")
    assert made.current_shaders() == {}


def test_a_plan_that_would_harm_a_driver_is_not_handed_to_it(made):
    chunk = made.stages[0].parts[0].chunk
    restore.require_sound(chunk, fake_device())
    name = next(iter(chunk.memory.slots))
    wide = {
        **chunk.memory.slots,
        name: dataclasses.replace(chunk.memory.slots[name], offset_bytes=1 << 40),
    }
    with pytest.raises(ModelError, match="not inside its arena"):
        restore.require_sound(
            dataclasses.replace(chunk, memory=dataclasses.replace(chunk.memory, slots=wide)),
            fake_device(),
        )


# -------------------------------------------------------------------------------- device profiles


def described(tmp_path: Path, **changes: Any) -> Path:
    target = tmp_path / "device.json"
    facts = {**devices.facts(fake_device(limits={"timestampPeriod": 1.5})), **changes}
    target.write_text(json.dumps({"devices": [facts]}, default=sorted))
    return target


def test_a_device_profile_is_what_devices_prints(tmp_path):
    found = profile.read(described(tmp_path))
    assert isinstance(found, DeviceInfo)
    assert found == fake_device(limits={"timestampPeriod": 1.5})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"limits": {}}, "the limit maxComputeWorkGroupCount is missing"),
        ({"subgroup_size": "many"}, "many"),
        ({"features": [1, 2]}, "features"),
        ({"api_version": "one"}, "one"),
        ({"heaps": [{"size_bytes": 1}]}, "device_local"),
        ({"refusal": "lacks the features x"}, "cannot be used, it lacks"),
    ],
)
def test_a_profile_that_describes_no_device_says_why(tmp_path, changes, text):
    with pytest.raises(SetupError, match=text):
        profile.read(described(tmp_path, **changes))


@pytest.mark.parametrize("text", ["", "[]", "7", '{"devices": []}', '{"devices": [1]}', "{}"])
def test_a_file_that_is_no_profile_says_so(tmp_path, text):
    target = tmp_path / "device.json"
    target.write_text(text)
    with pytest.raises(SetupError, match="describes no device"):
        profile.read(target)


def test_coded_floats_are_known_by_name_without_onnx():
    assert np.dtype("bfloat16") == np.dtype(ml_dtypes.bfloat16)
