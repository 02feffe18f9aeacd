"""Five models as Core ML programs and networks, run by vklab, against torch in float64."""

from __future__ import annotations

import numpy as np
import pytest

import vklab
from vklab import settings
from vklab.apps.compare import models
from vklab.apps.compare.coreml import convert, options, program
from vklab.apps.compare.coreml.network import neural_network

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("coremltools")
coreml_models = pytest.importorskip("support.models.coreml_models")
coreml_packages = pytest.importorskip("support.models.coreml_packages")

STRICT = {"DISABLE_FUSION": True, "DISABLE_PASSES": "all"}
NAMES = list(coreml_models.MODELS)
# The largest error as a part of the largest output, by precision.
LIMITS = {"float32": 6e-6, "float16": 1e-2}
SMALLEST_SPREAD = 0.1


def run(graph, given, device, **switches):
    """Return the only output of a graph."""
    with settings.settings(**switches), vklab.load(graph, device) as session:
        (result,) = session.run({graph.inputs[0].name: given}).values()
        return result


def relative_error(result, truth):
    """Return the largest error as a part of the largest value."""
    return np.abs(result.astype(np.float64) - truth).max() / np.abs(truth).max()


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """Return a function that converts a model, once for each precision."""
    made = {}

    def convert(name, precision, is_old=False, is_network=False):
        key = (name, precision, is_old, is_network)
        if key not in made:
            module, given = coreml_models.example(name)
            target = coreml_packages.ct.target
            model = coreml_packages.convert(
                module,
                given,
                precision,
                target.iOS15 if is_old else target.iOS18,
                is_network=is_network,
            )
            folder = tmp_path_factory.mktemp("coreml")
            made[key] = coreml_packages.save(model, folder, name)
        return made[key]

    return convert


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("is_old", [False, True], ids=["iOS18", "iOS15"])
def test_programs_agree_with_torch(name, precision, is_old, package, device_index):
    module, given = coreml_models.example(name)
    graph = program.import_package(package(name, precision, is_old))
    truth = coreml_models.truth(module, given)
    results = [run(graph, given.numpy(), device_index, **each) for each in (STRICT, {})]
    for result in results:
        assert relative_error(result, truth) < LIMITS[precision]
    spread = truth.reshape(-1, truth.shape[-1]).std()
    assert spread > SMALLEST_SPREAD * np.abs(truth).max()


@pytest.mark.parametrize("name", NAMES)
def test_networks_agree_with_torch(name, package, device_index):
    module, given = coreml_models.example(name)
    path = package(name, "", is_network=True)
    graph = neural_network.import_model(path)
    result = run(graph, given.numpy().astype(np.float32), device_index)
    assert relative_error(result, coreml_models.truth(module, given)) < LIMITS["float32"]
    assert program.import_package(path).outputs == graph.outputs


@pytest.mark.parametrize("how", ["RangeDim", "EnumeratedShapes"])
def test_flexible_shapes(how, tmp_path, device_index):
    """One import runs at several sizes: batches, and heights and widths of images."""
    ct = coreml_packages.ct
    module, given = coreml_models.example("mobilenet_v3")
    shapes = [(1, 3, 64, 64), (2, 3, 64, 64)] + [(1, 3, 96, 32)] * (how == "RangeDim")
    sizes = ct.RangeDim(32, 96, 64)
    flexible = (
        ct.EnumeratedShapes(shapes)
        if how == "EnumeratedShapes"
        else ct.Shape((ct.RangeDim(1, 4), 3, sizes, sizes))
    )
    model = coreml_packages.convert(module, given, "float32", ct.target.iOS17, shape=flexible)
    graph = program.import_package(coreml_packages.save(model, tmp_path))
    with vklab.load(graph, device_index) as session:
        for shape in shapes:
            image = given.repeat(2, 1, 2, 2)[: shape[0], :, : shape[2], : shape[3]].contiguous()
            (result,) = session.run({graph.inputs[0].name: image.numpy()}).values()
            assert relative_error(result, coreml_models.truth(module, image)) < LIMITS["float32"]


@pytest.mark.parametrize(("precision", "frontend", "shapes"), [
    ("float32", "export", ["1,3,16..64,16..64"]), ("float16", "export", ["1,3,16..64,16..64"]),
    ("float32", "script", ["1,3,32,32", "1,3,48,40"]),
])  # fmt: skip
def test_adaptive_pooling_of_open_sizes(precision, frontend, shapes, tmp_path, device_index):
    """MiniClassifier by `vklab coreml convert`: cells of the pooling follow the image's size."""
    module, (image,) = models.mini_classifier()
    path = tmp_path / "open.mlpackage"
    sizes = tuple(map(options.parse_sizes, shapes))
    convert.convert(
        module,
        (image,),
        path,
        options.Options(frontend=frontend, precision=precision, shapes=sizes),
    )
    graph = program.import_package(path)
    with settings.settings(**STRICT), vklab.load(graph, device_index) as session:
        for height, width in ((32, 32), (48, 40), (17, 31))[: 3 if ".." in shapes[0] else 2]:
            image = image.new_tensor(np.random.default_rng(1).random((1, 3, height, width)))
            (result,) = session.run({graph.inputs[0].name: image.numpy()}).values()
            assert relative_error(result, coreml_models.truth(module, image)) < LIMITS[precision]
            assert not session.host_nodes.nodes


def test_a_program_of_halves_rounds_after_each_operator(package, device_index):
    """Weights are halves, and fusion, which keeps the roundings, changes no bit of the output."""
    graph = program.import_package(package("mini_classifier", "float16"))
    inside = {info.dtype for name, info in graph.initializers.items() if "weight" in name}
    assert inside == {"float16"}
    _, given = coreml_models.example("mini_classifier")
    strict = run(graph, given.numpy(), device_index, **STRICT)
    fused = run(graph, given.numpy(), device_index)
    assert strict.dtype == np.float16
    np.testing.assert_array_equal(strict, fused)


@pytest.mark.parametrize("how", ["palettized", "grouped", "int8", "blocks of int4", "sparse"])
def test_compressed_weights(how, tmp_path, device_index):
    """A compressed package has the weights, and so the outputs, of its decompressed form."""
    ct = coreml_packages.ct
    cto = ct.optimize.coreml
    module, given = coreml_models.example("mini_classifier")
    target = ct.target.iOS18 if how in ("grouped", "blocks of int4") else ct.target.iOS16
    model = coreml_packages.convert(module, given, "float16", target)
    settings_of = {
        "palettized": lambda: cto.OpPalettizerConfig(mode="uniform", nbits=4),
        "grouped": lambda: cto.OpPalettizerConfig(
            mode="uniform", nbits=2, group_size=8, granularity="per_grouped_channel"
        ),
        "int8": lambda: cto.OpLinearQuantizerConfig(mode="linear"),
        "blocks of int4": lambda: cto.OpLinearQuantizerConfig(
            mode="linear_symmetric", dtype="int4", granularity="per_block", block_size=16
        ),
        "sparse": lambda: cto.OpMagnitudePrunerConfig(target_sparsity=0.6),
    }
    compress = cto.linear_quantize_weights if "int" in how else cto.palettize_weights
    compress = cto.prune_weights if how == "sparse" else compress
    small = compress(model, cto.OptimizationConfig(global_config=settings_of[how]()))
    path = coreml_packages.save(small, tmp_path, "small")
    graph = program.import_package(path)
    kinds = {op.type for op in _operations(small)}
    assert any(kind.startswith("constexpr_") for kind in kinds)
    plain = program.import_package(coreml_packages.save(cto.decompress_weights(small), tmp_path))
    ours, theirs = (
        sorted((info.shape, info.constant.tobytes()) for info in each.initializers.values())
        for each in (graph, plain)
    )
    assert ours == theirs
    results = [run(each, given.numpy(), device_index) for each in (graph, plain)]
    np.testing.assert_array_equal(*results)


def _operations(model):
    function = model.get_spec().mlProgram.functions["main"]
    return function.block_specializations[function.opset].operations
