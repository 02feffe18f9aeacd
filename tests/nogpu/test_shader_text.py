"""Shader text: where it is found, what it imports, how compilers are called and understood."""

from __future__ import annotations

import re
import stat
import sys
from pathlib import Path

import pytest

from support.graphs.small_models import ROOT, stock_variant
from support.runs import child
from vklab import settings
from vklab.errors import SetupError, ShaderError
from vklab.shader import compiler, processes, source, stock, stock_builder, toolchain
from vklab.shader.toolchain import Toolchain


def write(folder: Path, **texts: str) -> Path:
    """Write shader files; `a__b` becomes a/b, and names end in .slang unless they say .comp."""
    for name, text in texts.items():
        path = folder / (name.replace("__", "/") + ("" if "." in name else ".slang"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


# ------------------------------------------------------------------------------------ finding


def test_kernels_are_found_by_name_and_by_path(tmp_path):
    assert source.find("softmax") == ROOT / "shaders" / "ops" / "softmax.slang"
    path = write(tmp_path, mine="x") / "mine.slang"
    assert source.find(str(path)) == path


def test_an_overlay_goes_before_the_package(tmp_path):
    write(tmp_path, ops__softmax="mine")
    with settings.settings(SHADERS=str(tmp_path)):
        assert source.find("softmax").read_text() == "mine"
        assert source.find("pool") == ROOT / "shaders" / "ops" / "pool.slang"


def test_an_overlay_may_replace_a_library_only(tmp_path):
    write(tmp_path, lib__reduce="// my own sums")
    with settings.settings(SHADERS=str(tmp_path)):
        assert "// my own sums" in source.expand(source.find("softmax"))


def test_shaders_and_folders_that_are_not_there():
    with pytest.raises(ShaderError, match="no shader 'nonsense' .searched .*shaders"):
        source.find("nonsense")
    words = "VKLAB_SHADERS=/no/such/folder is not a folder"
    with settings.settings(SHADERS="/no/such/folder"), pytest.raises(ShaderError, match=words):
        source.find("softmax")
    with pytest.raises(ShaderError, match=r"ends in .slang or .comp"):
        source.language(Path("a.hlsl"))


def test_what_is_imported_comes_first_and_once(tmp_path):
    write(tmp_path, a="import lib.b;\nimport c;\nA", lib__b="import c;\nB", c="C")
    with settings.settings(SHADERS=str(tmp_path)):
        text = source.expand(tmp_path / "a.slang")
    lines = [line for line in text.splitlines() if line in ("A", "B", "C")]
    assert lines == ["C", "B", "A"]


def test_includes_of_glsl_are_followed(tmp_path):
    write(tmp_path, **{"a.comp": '#include "sub/b.h"\nA', "sub__b.h": "B"})
    lines = source.expand(tmp_path / "a.comp").splitlines()
    assert lines.index("B") < lines.index("A")


def test_imports_in_a_circle_end(tmp_path):
    write(tmp_path, a="import b;\nA", b="import a;\nB")
    assert source.expand(tmp_path / "a.slang").count("A") == 1


def test_a_missing_import_is_named_with_its_line(tmp_path):
    write(tmp_path, a="// one\nimport gone;\n")
    with pytest.raises(ShaderError, match=r"a\.slang:2: imports gone\.slang"):
        source.expand(tmp_path / "a.slang")


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "a.slang").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ShaderError, match=r"a\.slang cannot be read as text"):
        source.expand(tmp_path / "a.slang")


# ------------------------------------------------------------------------------------ compilers

FILES = (Path("k"), Path("o.spv"), [("T", "float"), ("BIAS", "1")], [Path("inc")])


def test_command_lines():
    assert Toolchain("slang", "/x/slangc", "1").command(*FILES) == [
        "/x/slangc",
        "k",
        "-Iinc",
        "-DT=float",
        "-DBIAS=1",
        "-target",
        "spirv",
        "-O0",
        "-entry",
        "main",
        "-stage",
        "compute",
        "-o",
        "o.spv",
    ]
    assert Toolchain("glsl", "/x/glslc", "1").command(*FILES) == [
        "/x/glslc",
        "k",
        "-Iinc",
        "-DT=float",
        "-DBIAS=1",
        "--target-env=vulkan1.3",
        "-o",
        "o.spv",
    ]
    assert Toolchain("glsl", "/x/glslangValidator", "1").command(*FILES) == [
        "/x/glslangValidator",
        "k",
        "-Iinc",
        "-DT=float",
        "-DBIAS=1",
        "-V",
        "--target-env",
        "vulkan1.3",
        "-o",
        "o.spv",
    ]


SAID = {
    "slangc": (
        "error[E30015]: undefined identifier 'foo'\n --> /a/shaders/ops/relu.slang:14:5\n   |\n"
        "14 |     foo(1);\n   |     ^^^ undefined identifier 'foo'\n",
        "shaders/ops/relu.slang:14: undefined identifier 'foo'",
    ),
    "glslc": (
        "/a/labs/x.comp:7: error: 'foo' : undeclared identifier\n1 error generated.\n",
        "/a/labs/x.comp:7: 'foo' : undeclared identifier",
    ),
    "glslangValidator": (
        "/a/labs/x.comp\nERROR: /a/labs/x.comp:7: 'foo' : undeclared identifier\n"
        "ERROR: /a/labs/x.comp:9: '' : compilation terminated\nERROR: 2 compilation errors.\n",
        "/a/labs/x.comp:7: 'foo' : undeclared identifier\n"
        "/a/labs/x.comp:9: '' : compilation terminated",
    ),
    "another": ("Segmentation fault", "the compiler ended with code 3\nSegmentation fault"),
}


def fake_compiler(folder: Path, body: str) -> Path:
    """Write a program that behaves as `body` says."""
    path = folder / "slangc"
    path.write_text(f"{child.SCRIPT}\nimport sys, time\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


posix = pytest.mark.skipif(sys.platform == "win32", reason="programs here are scripts")


@posix
@pytest.mark.parametrize("program", SAID)
def test_what_compilers_say_becomes_file_and_line(tmp_path, program):
    said, shown = SAID[program]
    path = fake_compiler(tmp_path, f"sys.stderr.write({said!r}); sys.exit(3)")
    tools = Toolchain("slang", str(path), "1")
    with pytest.raises(ShaderError) as caught:
        toolchain.run(tools, Path("k.slang"), tmp_path / "o", [("T", "float")], [])
    assert shown in str(caught.value) and "k.slang [T=float]" in str(caught.value)


@posix
@pytest.mark.full
def test_compilers_that_write_nothing_hang_or_do_not_start(tmp_path, monkeypatch):
    silent = Toolchain("slang", str(fake_compiler(tmp_path, "pass")), "1")
    with pytest.raises(ShaderError, match="ended with code 0"):
        toolchain.run(silent, Path("k"), tmp_path / "o", [], [])
    monkeypatch.setattr(processes, "LIMIT_SECONDS", 0.2)
    slow = Toolchain("slang", str(fake_compiler(tmp_path, "time.sleep(60)")), "1")
    with pytest.raises(ShaderError, match=r"did not end in 0\.2 s"):
        toolchain.run(slow, Path("k"), tmp_path / "o", [], [])
    gone = Toolchain("slang", str(tmp_path / "gone"), "1")
    with pytest.raises(SetupError, match="gone does not start") as caught:
        toolchain.run(gone, Path("k"), tmp_path / "o", [], [])
    assert "slangtorch" in caught.value.repair


@posix
def test_the_compiler_may_be_given_by_path_or_name(tmp_path, monkeypatch):
    path = fake_compiler(tmp_path, "pass")
    with settings.settings(SLANGC=str(path)):
        found = toolchain.find_toolchain("slang")
        assert found is not None and found.program == str(path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with settings.settings(SLANGC="slangc"):
        found = toolchain.find_toolchain("slang")
        assert found is not None and Path(found.program) == path


def test_a_compiler_that_is_not_there():
    words = "VKLAB_SLANGC=/no/such/slangc is not a program"
    with settings.settings(SLANGC="/no/such/slangc"), pytest.raises(SetupError, match=words):
        toolchain.find_toolchain("slang")


# ---------------------------------------------------------------------------------- stock, keys


def test_a_stock_key_depends_on_all_that_decides_the_words():
    base = stock.key("text", (("A", "1"), ("B", "2")), "t")
    assert base == stock.key("text", (("B", "2"), ("A", "1")), "t")
    others = {
        stock.key("text2", (("A", "1"), ("B", "2")), "t"),
        stock.key("text", (("A", "1"), ("B", "3")), "t"),
        stock.key("text", (("A", "1"),), "t"),
        stock.key("text", (("A", "1"), ("B", "2")), "t2"),
        stock.key("text", (), "t"),
    }
    assert len(others) == 5 and base not in others


def test_the_stock_holds_every_element_wise_function():
    text = (ROOT / "shaders/lib/elementwise.slang").read_text("utf-8")
    found = dict(stock_builder.expressions(text))
    assert found["onnx::relu(a)"] == 1 and found["onnx::add(a, b)"] == 2
    assert found["onnx::leaky_relu(a, p0)"] == 1
    # Integers and bools have functions of their own: what ships is float32.
    assert len(found) == len(re.findall(r"^public (?:Real|float) ", text, re.M))


# These are nothing without text that is generated for a model.
GENERATED = ("pointwise",)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "shaders" / "ops").glob("*.slang")), ids=lambda path: path.stem
)
def test_every_kernel_file_says_what_it_is_and_which_variants_ship(path):
    lines = path.read_text("utf-8").splitlines()
    assert lines[0].startswith(f"// {path.stem}: ")
    variants = stock_builder.variants(path)
    assert variants or path.stem in GENERATED
    assert all(name == path.stem for name, _, _ in variants)
    assert len(set(variants)) == len(variants)


def test_no_compiler_and_no_stock_is_a_set_up_error(tmp_path, monkeypatch):
    monkeypatch.setattr(toolchain, "find_toolchain", lambda language: None)
    monkeypatch.setattr(stock, "FOLDER", tmp_path)
    compiler._memory.clear()
    with pytest.raises(SetupError, match=r"softmax\.slang.*edited or is not a stock kernel"):
        compiler.compile_variant(*stock_variant("softmax"))
