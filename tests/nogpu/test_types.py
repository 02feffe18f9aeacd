"""Tensors, dispatches and devices as plain data, and the small drawings."""

from __future__ import annotations

import dataclasses
import pickle
from xml.etree import ElementTree

import numpy as np
import pytest

from support.fakes.fake_device import DISCRETE, fake_device
from vklab import errors, types
from vklab.base import draw
from vklab.base.draw import svg
from vklab.types import Dispatch, TensorInfo


def test_a_tensor_counts_its_bytes():
    info = TensorInfo("x", "float32", (2, 3, 5))
    assert (info.rank, info.dims, info.count, info.size_bytes) == (3, (2, 3, 5), 30, 120)
    assert str(info) == "x: float32[2,3,5]" and info.is_static
    assert TensorInfo("s", "int64", ()).size_bytes == 8
    assert types.size_bytes("float16", (0, 2**40)) == 0
    assert types.size_bytes("bool", (2**33,)) == 2**33


def test_open_dimensions_have_no_size():
    info = TensorInfo("x", "float32", ("batch", 3))
    assert not info.is_static and str(info) == "x: float32[batch,3]"
    with pytest.raises(ValueError, match="batch"):
        info.size_bytes  # noqa: B018


def test_two_tensors_of_one_name_are_two():
    assert TensorInfo("x", "float32", (1,)) != TensorInfo("x", "float32", (1,))


def test_a_dispatch_counts_and_names_what_it_touches():
    x, y = TensorInfo("x", "float32", (4,)), TensorInfo("y", "float32", (2,))
    dispatch = Dispatch("k", (("a", x), ("b", x)), (("c", y),), (3, 2, 1), defines=(("T", "f"),))
    assert dispatch.size_bytes == 40 and dispatch.variant == ("k", (("T", "f"),), "")
    assert str(dispatch) == "y = k(x, x) on 3x2x1"


def test_a_dispatch_has_its_numbers_by_name():
    given = {
        "push": (("m", 3), ("shape", (1, 2))),
        "defines": (("T", "half"),),
        "constants": (("WORKGROUP", 64),),
    }
    dispatch = Dispatch("k", (), (), (1, 1, 1), **given)
    assert dispatch.push_values == {"m": 3, "shape": (1, 2)}
    assert dispatch.define_values == {"T": "half"}
    assert dispatch.constant_values == {"WORKGROUP": 64}
    dispatch.push_values["m"] = 5  # a dict of its own each time
    copy = pickle.loads(pickle.dumps(dispatch))
    assert copy == dispatch and hash(copy) == hash(dispatch)
    assert vars(copy).keys() == {field.name for field in dataclasses.fields(Dispatch)}


def test_a_device_says_what_it_is():
    info = fake_device(refusal="speaks Vulkan 1.1")
    assert str(info) == "0: Fake GPU (discrete, fake 1.0, Vulkan 1.3.0)"
    assert info.memory_bytes == 4 << 30 and not info.is_cpu
    assert ("usable", "speaks Vulkan 1.1") in info.rows()
    assert "16 KiB" in info._repr_html_()
    assert fake_device(memory_types=DISCRETE).memory_types[0].flags == {"device_local"}
    with pytest.raises(TypeError, match="maxComputeWorkGroupCount"):
        info.limit("maxComputeWorkGroupCount")


@pytest.mark.parametrize(("count", "text"), [
    (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 20, "5.0 MiB"), (3 << 30, "3.00 GiB"),
])  # fmt: skip
def test_bytes_as_text(count, text):
    assert draw.bytes_text(count) == text


@pytest.mark.parametrize(("time_ns", "text"), [
    (0, "0.0 ns"), (999, "999.0 ns"), (1500, "1.5 us"), (2.5e6, "2.5 ms"), (3e9, "3.00 s"),
])  # fmt: skip
def test_times_as_text(time_ns, text):
    assert draw.time_text(time_ns) == text


def test_tables_and_maps_are_well_formed_and_escaped():
    table = draw.table_html("a<b", ("x&y",), [("<script>",), (3,)])
    assert [cell.text for cell in ElementTree.fromstring(table).iter("td")] == ["<script>", "3"]
    boxes = [("<v>", 0, 1, 0, 256), ("w", 1, 2, 256, 512)]
    drawing = ElementTree.fromstring(svg.memory_map_svg("m & n", boxes, 3, 768))
    drawn = [e for e in drawing.iter() if e.tag.endswith("rect") and len(e)]  # a box has a title
    titles = [box[0].text for box in drawn]
    assert len(titles) == 2 and titles[0].startswith("<v>") and titles[1].startswith("w")
    ElementTree.fromstring(svg.memory_map_svg("empty", [], 0, 0))


def test_errors_say_command_result_and_detail_also_after_pickling():
    error = errors.OutOfMemoryError("vkAllocateMemory", "VK_ERROR_X", "asked for 5 bytes")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) == "vkAllocateMemory returned VK_ERROR_X: asked for 5 bytes"
    assert type(copy) is errors.OutOfMemoryError and copy.detail == "asked for 5 bytes"


def test_set_up_errors_carry_the_line_that_repairs():
    error = errors.SetupError("no loader", "install it")
    assert error.repair == "install it" and str(error).endswith("to repair: install it")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.repair) == (str(error), "install it")


def test_every_error_is_one_of_ours():
    named = [getattr(errors, name) for name in errors.__all__]
    tree = [kind for kind in named if not issubclass(kind, Warning)]
    assert all(issubclass(error, errors.VklabError) for error in tree)
    warned = [kind for kind in named if kind not in tree]
    assert len(warned) == 3 and all(issubclass(kind, errors.VklabWarning) for kind in warned)
    assert not issubclass(errors.TimeoutError, TimeoutError)


def test_dtypes_of_onnx_that_numpy_lacks_have_a_size():
    import ml_dtypes

    assert np.dtype(ml_dtypes.bfloat16).itemsize == types.size_bytes("bfloat16", (1,))
