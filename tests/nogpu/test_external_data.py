"""External data: read in place from the model's own folder, and from nowhere else."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from support.graphs.small_models import model, random_array, value
from vklab.errors import ModelError
from vklab.graph import onnx_import

WEIGHT = random_array((5, 3))


def write(folder: Path, location: str = "w.bin", data: bytes | None = None, **entries: str) -> Path:
    """Write a model whose weight lies in another file, which is written beside it."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    proto = model([node], [value("x", (2, 5))], [value("y", (2, 3))])
    tensor = proto.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[5, 3])
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=text)
    if data is not None:
        (folder / "w.bin").write_bytes(data)
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def loaded(path: Path) -> np.ndarray:
    constant = onnx_import.load_graph(path).initializers["w"].constant
    assert constant is not None
    return constant


def test_weights_are_mapped_and_not_read(tmp_path):
    array = loaded(write(tmp_path, data=b"\0" * 8 + WEIGHT.tobytes() + b"rest", offset="8"))
    np.testing.assert_array_equal(array, WEIGHT)
    assert isinstance(array, np.memmap)


def test_a_file_in_a_folder_below(tmp_path):
    (tmp_path / "weights").mkdir()
    path = write(tmp_path, location="weights/w.bin", length="60")
    (tmp_path / "weights" / "w.bin").write_bytes(WEIGHT.tobytes())
    np.testing.assert_array_equal(loaded(path), WEIGHT)


def test_what_onnx_itself_writes(tmp_path):
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    proto = model([node], [value("x", (2, 5))], [value("y", (2, 3))], {"w": WEIGHT})
    onnx.save(
        proto, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="all.bin"
    )
    np.testing.assert_array_equal(loaded(tmp_path / "m.onnx"), WEIGHT)


def test_the_model_may_be_named_relative_to_where_we_are(tmp_path, monkeypatch):
    write(tmp_path, data=WEIGHT.tobytes())
    monkeypatch.chdir(tmp_path)
    np.testing.assert_array_equal(loaded(Path("m.onnx")), WEIGHT)


@pytest.mark.parametrize("location", ["../w.bin", "a/../../w.bin", "{outside}", "", "."])
def test_paths_that_leave_the_folder(tmp_path, location):
    folder = tmp_path / "model"
    folder.mkdir()
    outside = tmp_path / "w.bin"
    outside.write_bytes(WEIGHT.tobytes())
    path = write(folder, location=location.format(outside=outside))
    with pytest.raises(ModelError, match="leaves the model's folder|is missing"):
        loaded(path)


def test_a_link_that_leaves_the_folder(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(WEIGHT.tobytes())
    path = write(folder)
    try:
        os.symlink(tmp_path / "secret.bin", folder / "w.bin")
    except OSError as error:
        pytest.skip(f"this system makes no symbolic links: {error}")
    with pytest.raises(ModelError, match="leaves the model's folder"):
        loaded(path)


def test_a_linked_folder_that_leaves_the_folder(tmp_path):
    folder, other = tmp_path / "model", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    (other / "w.bin").write_bytes(WEIGHT.tobytes())
    path = write(folder, location="link/w.bin")
    try:
        os.symlink(other, folder / "link")
    except OSError as error:
        pytest.skip(f"this system makes no symbolic links: {error}")
    with pytest.raises(ModelError, match="leaves the model's folder"):
        loaded(path)


@pytest.mark.parametrize(("entries", "words"), [
    ({"location": "gone.bin"}, "'gone.bin' is missing"),
    ({"location": "w\0.bin"}, "no file name"),
    ({"offset": "8"}, "at 8 of .* has 60"),
    ({"offset": "1000000"}, "at 1000000 of .* has 60"),
    ({"offset": "-4"}, "at -4"),
    ({"length": "56"}, "asks for 56 bytes"),
    ({"length": "64"}, "asks for 64 bytes"),
    ({"offset": "x"}, "invalid literal"),
    ({"length": "1e1"}, "invalid literal"),
])  # fmt: skip
def test_places_that_do_not_hold_the_tensor(tmp_path, entries, words):
    with pytest.raises(ModelError, match=words):
        loaded(write(tmp_path, data=WEIGHT.tobytes(), **entries))


def test_a_file_that_was_cut_off(tmp_path):
    with pytest.raises(ModelError, match="has 59"):
        loaded(write(tmp_path, data=WEIGHT.tobytes()[:-1]))


def test_strings_are_not_read_as_pointers(tmp_path):
    path = write(tmp_path, data=bytes(120))
    proto = onnx.load(path, load_external_data=False)
    proto.graph.initializer[0].data_type = TensorProto.STRING
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match="holds strings"):
        loaded(path)


def test_external_data_needs_a_path(tmp_path):
    data = write(tmp_path, data=WEIGHT.tobytes()).read_bytes()
    with pytest.raises(ModelError, match="load the model by its path"):
        onnx_import.load_graph(data)


def test_an_attribute_may_not_leave_the_folder_either(tmp_path):
    path = write(tmp_path, data=WEIGHT.tobytes())
    proto = onnx.load(path, load_external_data=False)
    tensor = proto.graph.initializer[0]
    tensor.external_data[0].value = "../w.bin"
    proto.graph.node.insert(0, helper.make_node("Constant", [], ["k"], value=tensor))
    del proto.graph.initializer[:]
    proto.graph.node[1].input[1] = "k"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match="leaves the model's folder"):
        onnx_import.load_graph(path)


# ------------------------------------------------------------------------ large files


def test_a_file_beyond_2_gib(tmp_path):
    path = write(tmp_path, data=b"", offset=str(9 << 28))
    with (tmp_path / "w.bin").open("r+b") as file:
        file.truncate(10 << 28)  # a hole: takes no room on the disk
        file.seek(9 << 28)
        file.write(WEIGHT.tobytes())
    np.testing.assert_array_equal(loaded(path), WEIGHT)


def test_weights_of_one_file_are_mapped_once(tmp_path):
    weights = {f"w{i}": random_array((5, 5), i) for i in range(3)}
    nodes = [
        helper.make_node("MatMul", [f"v{i}" if i else "x", f"w{i}"], [f"v{i + 1}"])
        for i in range(3)
    ]
    proto = model(nodes, [value("x", (2, 5))], ["v3"], weights)
    onnx.save(
        proto, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="all.bin"
    )
    infos = onnx_import.load_graph(tmp_path / "m.onnx").initializers
    arrays = [infos[name].constant for name in weights]
    for array, weight in zip(arrays, weights.values(), strict=True):
        np.testing.assert_array_equal(array, weight)
    assert len({id(array._mmap) for array in arrays}) == 1


@pytest.mark.parametrize(("dtype", "size_bytes"), [
    (TensorProto.INT4, 8), (TensorProto.UINT2, 4), (TensorProto.FLOAT6E2M3, 12),
])  # fmt: skip
def test_types_that_share_a_byte(tmp_path, dtype, size_bytes):
    path = write(tmp_path, data=bytes(range(8)))
    proto = onnx.load(path, load_external_data=False)
    tensor = proto.graph.initializer[0]
    tensor.data_type = dtype
    expected = TensorProto(dims=[5, 3], data_type=dtype)
    expected.raw_data = bytes(range(size_bytes))
    path.write_bytes(proto.SerializeToString())
    (tmp_path / "w.bin").write_bytes(expected.raw_data)
    np.testing.assert_array_equal(loaded(path), onnx.numpy_helper.to_array(expected))


def large(count: int = 3) -> onnx.ModelProto:
    """Return a model of weights of 4 MiB that are part of its file."""
    weights = {f"w{i}" if i else "w": random_array((1024, 1024), i) for i in range(count)}
    nodes = [helper.make_node("MatMul", [f"v{i}", w], [f"v{i + 1}"]) for i, w in enumerate(weights)]
    return model(nodes, [value("v0", (2, 1024))], [f"v{count}"], weights)


def test_large_weights_in_the_models_own_file_are_mapped(tmp_path):
    proto, path = large(), tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    tracemalloc.start()
    graph = onnx_import.load_graph(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
    for name, info in onnx_import.load_graph(proto).initializers.items():
        mapped = graph.initializers[name].constant
        assert isinstance(mapped, np.memmap)
        np.testing.assert_array_equal(mapped, info.constant)
    assert graph.nodes == onnx_import.load_graph(proto).nodes


def test_a_large_file_of_an_old_opset(tmp_path):
    proto, path = large(1), tmp_path / "m.onnx"
    proto.opset_import[0].version = 5
    path.write_bytes(proto.SerializeToString())
    np.testing.assert_array_equal(loaded(path), random_array((1024, 1024)))


@pytest.mark.parametrize("cut", [1, 100, 4 << 20, (4 << 20) + 200])
def test_a_large_file_that_was_cut_off(tmp_path, cut):
    path = tmp_path / "m.onnx"
    path.write_bytes(large().SerializeToString()[:-cut])
    with pytest.raises(ModelError, match="is cut off|no graph outputs"):
        onnx_import.load_graph(path)


def test_a_proto_beyond_what_protobuf_reads(tmp_path):
    path = tmp_path / "m.onnx"
    with path.open("wb") as file:
        file.truncate(1 << 31)
    with pytest.raises(ModelError, match="protobuf reads less.*save_as_external_data"):
        onnx_import.load_graph(path)
