"""The files of data/: unchanged, of the promised shape, and good enough to teach with."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from vklab.apps.compare.report import recorded
from vklab.apps.llm.weights import gguf
from vklab_labs.shared import recorded_graphs

DATA = Path(__file__).resolve().parents[2] / "data"
FILES = ["block_cases.npz", "course.txt.xz", "digits.npz", "digits_cnn.onnx",
         "digits_mini_classifier.npz", "digits_mobilenet.npz",
         *(f"graphs/{name}.onnx" for name in sorted(recorded_graphs.NAMES)),
         "held_out.txt", "mini_classifier.onnx", "mobilenet_v3_small_statistics.npz",
         "novels.txt.xz", "novels_llama.gguf",
         *(f"packages/{name}.mlpackage/{file}" for name in ("mini_classifier", "text_classifier")
           for file in ("Data/com.apple.CoreML/model.mlmodel",
                        "Data/com.apple.CoreML/weights/weight.bin", "Manifest.json")),
         "packages/unnamed/p1.mlmodel",
         *(f"packages/unnamed/p{n}.mlpackage/{file}" for n in range(2, 7)
           for file in ("Data/com.apple.CoreML/model.mlmodel",
                        "Data/com.apple.CoreML/weights/weight.bin", "Manifest.json")),
         "resnet18_statistics.npz", "text_classifier.npz"]  # fmt: skip


def run_script(
    folder: Path, *arguments: str, timeout_s: int = 60
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout_s)


@pytest.fixture(scope="module")
def digits() -> dict[str, np.ndarray]:
    with np.load(DATA / "digits.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def cnn() -> onnx.ModelProto:
    return onnx.load(DATA / "digits_cnn.onnx")


def test_checksums_match_and_cover_every_data_file():
    assert sorted(json.loads((DATA / "checksums.json").read_text())) == FILES
    packaged = (p for p in (DATA / "packages").rglob("*") if p.is_file())
    found = [
        *(
            p
            for p in DATA.rglob("*")
            if p.suffix in {".gguf", ".npz", ".onnx", ".txt", ".xz"} and p.parent.name != "recorded"
        ),
        *packaged,
    ]
    assert sorted(p.relative_to(DATA).as_posix() for p in found) == FILES
    finished = run_script(DATA, "checksums.py")
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_readme_quotes_the_files_as_they_are():
    readme = (DATA / "README.md").read_text(encoding="utf-8")
    for name, checksum in json.loads((DATA / "checksums.json").read_text()).items():
        size_bytes = (DATA / name).stat().st_size
        assert f"| `{name}` | {size_bytes:,} | `{checksum[:12]}` |" in readme, name
    for record in (DATA / "recorded").iterdir():
        if record.suffix == ".npz":
            device = recorded.read(record)[0].device.partition(",")[0]
        else:
            device = json.loads(record.read_text("utf-8"))["device"]
        assert f"| `recorded/{record.name}` | {device}" in readme, record.name


def test_packages_stay_small():
    files = [path for path in (DATA / "packages").rglob("*") if path.is_file()]
    assert len(files) == 22 and sum(path.stat().st_size for path in files) < 3_000_000


@pytest.mark.parametrize("harm", ["changed", "missing"])
@pytest.mark.full
def test_verify_names_a_harmed_file(tmp_path, harm):
    folder = shutil.copytree(DATA, tmp_path / "data")
    victim = folder / "digits_cnn.onnx"
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.unlink()
    if harm == "changed":
        victim.write_bytes(content)
    finished = run_script(folder, "make_digits.py", "--verify")
    assert finished.returncode == 1, finished.stderr
    assert f"digits_cnn.onnx: {harm.upper()}" in finished.stdout
    assert "digits.npz: ok" in finished.stdout


def test_digits_have_the_promised_arrays(digits):
    images, labels, held_out = digits["images"], digits["labels"], digits["held_out"]
    assert images.shape == (1797, 1, 28, 28) and images.dtype == np.float32
    assert images.min() == 0 and images.max() == 1
    assert labels.shape == (1797,) and labels.dtype == np.int64
    assert held_out.shape == (1797,) and held_out.dtype == bool
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_held_out_is_a_fifth_of_every_class(digits):
    labels, held_out = digits["labels"], digits["held_out"]
    share = np.bincount(labels[held_out]) / np.bincount(labels)
    assert np.abs(share - 0.2).max() < 0.005, share


def test_no_image_is_blank_or_held_out_and_trained_on(digits):
    images, held_out = digits["images"], digits["held_out"]
    assert images.max(axis=(1, 2, 3)).min() > 0.5
    trained_on = {image.tobytes() for image in images[~held_out]}
    assert not any(image.tobytes() in trained_on for image in images[held_out])


@pytest.mark.full
def test_resized_images_keep_the_source_pixels(digits):
    datasets = pytest.importorskip("sklearn.datasets")
    # Cubic convolution interpolates: from the fourth on, every third pixel is one of the source.
    kept = digits["images"][:, 0, 3:25:3, 3:25:3]
    np.testing.assert_array_equal(kept * 16, datasets.load_digits().images)


def test_cnn_is_small_and_hand_readable(cnn):
    onnx.checker.check_model(cnn, full_check=True)
    assert [node.op_type for node in cnn.graph.node] == [
        "Conv",
        "Relu",
        "MaxPool",
        "Conv",
        "Relu",
        "MaxPool",
        "Flatten",
        "Gemm",
        "Relu",
        "Gemm",
    ]
    assert all(node.name for node in cnn.graph.node)
    assert 17 <= cnn.opset_import[0].version <= 20
    assert (DATA / "digits_cnn.onnx").stat().st_size < 300_000
    for value, name, shape in (
        (cnn.graph.input[0], "image", ["batch", 1, 28, 28]),
        (cnn.graph.output[0], "logits", ["batch", 10]),
    ):
        dims = value.type.tensor_type.shape.dim
        assert value.name == name
        assert [dim.dim_param or dim.dim_value for dim in dims] == shape


def test_cnn_classifies_held_out_digits(digits):
    session = onnxruntime.InferenceSession(
        (DATA / "digits_cnn.onnx").read_bytes(), providers=["CPUExecutionProvider"]
    )
    held_out = digits["held_out"]
    (logits,) = session.run(None, {"image": digits["images"][held_out]})
    right = (logits.argmax(axis=1) == digits["labels"][held_out]).mean()
    assert right >= 0.97, f"{right:.2%} of the held-out digits are right"
    (single,) = session.run(None, {"image": digits["images"][held_out][:1]})
    np.testing.assert_allclose(single, logits[:1], rtol=1e-4, atol=1e-4)


def test_no_data_file_names_the_machine_it_was_made_on():
    for name in FILES[1:]:
        content = (DATA / name).read_bytes()
        for trace in (b"/home", b"/tmp", b"/root", b"site-packages", b'File "', b"C:\\"):
            assert trace not in content, f"{name} contains {trace!r}"


@pytest.mark.slow
def test_digits_are_made_again_byte_for_byte(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    folder = shutil.copytree(DATA, tmp_path / "data")
    recorded = (folder / "digits.npz").read_bytes()
    made = []
    for _ in range(2):
        finished = run_script(folder, "make_digits.py", timeout_s=300)
        assert finished.returncode == 0, finished.stderr
        made.append([(folder / name).read_bytes() for name in ("digits.npz", "digits_cnn.onnx")])
    assert made[0] == made[1]
    with np.load(folder / "digits.npz") as found, np.load(DATA / "digits.npz") as expected:
        # The arrays hold on every machine, the bytes only where zlib is the same.
        assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert len(recorded) == pytest.approx(len(made[0][0]), rel=0.05)


@pytest.mark.slow
def test_a_language_model_is_trained_on_a_processor(tmp_path):
    pytest.importorskip("torch")
    finished = run_script(
        DATA,
        "make_language_model.py",
        "--folder",
        str(tmp_path),
        "--device",
        "cpu",
        "--epochs",
        "0.01",
        "--vocabulary",
        "512",
        "--context",
        "64",
        timeout_s=900,
    )
    assert finished.returncode == 0, finished.stderr
    assert "runs by PyTorch" in finished.stdout and "3279104 parameters" in finished.stdout
    assert (tmp_path / "held_out.txt").read_bytes() == (DATA / "held_out.txt").read_bytes()
    made, known = (gguf.read_gguf(folder / "novels_llama.gguf") for folder in (tmp_path, DATA))
    assert made.metadata.keys() == known.metadata.keys()
    assert made.tensors.keys() == known.tensors.keys()


@pytest.mark.full
def test_nothing_of_the_held_out_text_is_learnt():
    held_out = (DATA / "held_out.txt").read_text("utf-8")
    code = (
        "import json, language_text; texts = language_text.read(); print(json.dumps("
        "[texts.training, texts.judging, texts.held_out, texts.conversations]))"
    )
    finished = run_script(DATA, "-c", code)
    assert finished.returncode == 0, finished.stderr
    training, judging, kept, conversations = json.loads(finished.stdout)
    assert "\n\n".join(kept) == held_out
    sizes = [sum(map(len, part)) for part in (training, judging, kept)]
    assert 0.09 < sizes[2] / sum(sizes) < 0.11
    learnt = "\n\n".join((*training, *judging))
    chapters = [text for text in kept if len(text) > 3000]
    assert len(chapters) == 27 and not any(text[500:700] in learnt for text in chapters)
    spoken = [turn for turns in conversations for turn in turns if len(turn) > 60]
    assert len(spoken) > 500
    assert not any(turn in held_out for turn in spoken)
