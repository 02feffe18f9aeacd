"""The doctor on machines that are not there: no driver is touched, children are scripts."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.runs.child import LIMIT_S
from vklab.apps.bootstrap import system
from vklab.apps.doctor import Check, Report, checks, child, detect, devices, examine
from vklab.base import manifests, store
from vklab.shader import stock, toolchain

ROOT = Path(__file__).resolve().parents[2]
DEBIAN = system.Machine(distribution="debian", installers=frozenset({"apt-get"}))
# Drivers are known to print greetings; only the last line counts.
RIGHT = """print('hello from a driver'); print('{"got": [2.0, 1.0, -0.75]}')"""


def facts(index: int, **changed: object) -> dict[str, object]:
    """Return what a driver says of a device that is not there."""
    device = {
        "index": index,
        "name": f"Paper <{index}>",
        "type": "discrete",
        "driver": "paper 1.0",
        "api_version": "1.3.0",
        "is_cpu": False,
        "refusal": "",
    }
    return {**device, **changed}


def listing(*found: dict[str, object]) -> str:
    """Return the script of a child that lists devices."""
    answer = {"layers": ["VK_LAYER_KHRONOS_validation"], "devices": list(found)}
    return f"print({json.dumps(answer)!r})"


@pytest.fixture
def children(monkeypatch):
    """Replace children by scripts, by argument: `list`, or the index of the device to run on."""
    scripts = {"list": listing(facts(0)), "0": RIGHT, "1": RIGHT}

    def command(arguments):
        return [sys.executable, "-c", scripts[arguments[-1]]]

    monkeypatch.setattr(child, "command", command)
    return scripts


def named(report: Report, name: str) -> Check:
    """Return the one check of a name."""
    (found,) = [check for check in report.checks if check.name == name]
    return found


def check_devices(*, manifests=(), foundations=(), run: bool = True) -> Report:
    """Return the doctor's checks of devices only."""
    answer = child.ask(["list"], 20.0)
    found, described = devices.check_devices(answer, manifests, foundations, DEBIAN, run)
    return Report(tuple(found), described)


@pytest.mark.full
def test_a_whole_report_names_every_check_and_goes_into_json(children):
    report = examine()
    summary = json.loads(json.dumps(report.summary()))
    assert {"ok", "checks", "devices"} == summary.keys()
    assert all({"name", "ok", "detail", "repair"} <= check.keys() for check in summary["checks"])
    names = [check["name"] for check in summary["checks"]]
    assert names[:5] == [
        "Python",
        "packages",
        "optional packages",
        "Vulkan loader",
        "Vulkan bindings",
    ]
    assert {"drivers", "instance layers", "Slang compiler", "device 0", "Jupyter"} <= set(names)


def test_every_failure_has_the_line_that_repairs_it(children, monkeypatch):
    monkeypatch.setattr(system, "inspect_machine", lambda: DEBIAN)
    monkeypatch.setattr(detect, "find_loader", lambda name: detect.Loader(problem="no such file"))
    monkeypatch.setattr(detect, "find_manifests", lambda name: ())
    monkeypatch.setattr(toolchain, "find_toolchain", lambda language: None)
    children["list"] = listing()
    report = examine()
    failed = [check for check in report.checks if not check.ok]
    assert {"Vulkan loader", "drivers", "devices"} <= {check.name for check in failed}
    assert all(check.repair for check in failed)
    assert (
        "apt-get install -y --no-install-recommends libvulkan1"
        in named(report, "Vulkan loader").repair
    )
    assert not report.ok


@pytest.mark.parametrize(("script", "words"), [
    ("import time; time.sleep(60)", "did not answer in 0.5 s and was stopped"),
    ("import os; os.abort()", "crashed with SIGABRT" if os.name == "posix" else "ended with"),
    ("import sys; sys.exit('LLVM ERROR: no')", "ended with exit code 1: LLVM ERROR: no"),
    ("print('{\"got\": [2.0, 1.0, 0.0]}')", "wrong result"),
    ("print('{\"got\": []}')", "wrong result"),
    ("print('[]')", "answered []"),
    ("", "answered no JSON"),
])  # fmt: skip
@pytest.mark.full
def test_a_broken_driver_fails_its_own_check_only(children, monkeypatch, script, words):
    monkeypatch.setattr(devices, "RUN_LIMIT_S", 0.5 if "sleep" in script else 20.0)
    children["list"] = listing(facts(0), facts(1))
    children["0"] = script
    report = check_devices()
    broken = named(report, "device 0")
    assert words in broken.detail and not broken.ok and not broken.essential
    assert broken.repair.endswith("VKLAB_DEVICE=1")
    assert named(report, "device 1").ok and report.ok, "the other device is fine"


def test_one_broken_device_alone_is_a_failure_of_the_machine(children):
    children["0"] = "raise SystemExit(3)"
    report = check_devices()
    assert not report.ok and not named(report, "devices").ok
    assert "mesa-vulkan-drivers" in named(report, "devices").repair
    assert "paper 1.0" in named(report, "device 0").repair


def test_what_a_child_says_repairs_it_is_passed_on(children):
    children["0"] = 'print(\'{"error": "no compiler", "repair": "get one"}\')'
    found = named(check_devices(), "device 0")
    assert found.detail.endswith("no compiler") and found.repair == "get one"


def test_a_device_that_vklab_refuses_is_not_run(children):
    children["list"] = listing(facts(0, refusal="speaks Vulkan 1.1"), facts(1))
    children["0"] = "raise SystemExit('was run')"
    report = check_devices()
    assert named(report, "device 0").mark == "note" and report.ok
    assert "speaks Vulkan 1.1" in named(report, "device 0").detail
    children["list"] = listing(facts(0, refusal="speaks Vulkan 1.1"))
    assert not check_devices().ok


def test_what_repairs_the_drivers_repairs_the_devices(children):
    children["list"] = 'print(\'{"error": "no driver", "repair": "install one"}\')'
    assert check_devices().checks[0].repair == "install one"
    drivers = Check("drivers", False, "hidden", "unset VK_DRIVER_FILES")
    assert check_devices(foundations=[drivers]).checks[0].repair == "unset VK_DRIVER_FILES"


def test_no_run_runs_nothing(children):
    children["0"] = "raise SystemExit('was run')"
    report = check_devices(run=False)
    assert report.ok and "not run" in named(report, "device 0").detail


def test_a_cpu_device_is_said_to_be_one(children):
    children["list"] = listing(facts(0, type="cpu", is_cpu=True))
    assert "a CPU, not a GPU" in named(check_devices(), "device 0").detail


def test_the_driver_that_breaks_the_listing_is_named(children):
    children["list"] = (
        "import os; 'bad' in os.environ.get('VK_DRIVER_FILES', 'bad') and os.abort();"
        + listing(facts(0))
    )
    manifests = [detect.Manifest(Path(f"/icd/{name}.json"), "x.so") for name in ("bad", "good")]
    (found,) = check_devices(manifests=manifests).checks
    assert not found.ok and "the fault is in" in found.detail and "bad.json" in found.detail
    assert found.repair.endswith(f"VK_DRIVER_FILES={manifests[1].path}")


def test_no_loader(monkeypatch):
    def refuse(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    loader = detect.find_loader("Linux")
    assert "libvulkan.so.1: cannot open" in loader.problem
    found = checks.check_loader(loader, DEBIAN)
    assert not found.ok and "libvulkan1" in found.repair


@pytest.mark.parametrize(("error", "name"), [
    ("OSError('Cannot find Vulkan SDK version')", "libvulkan1"),
    pytest.param("ModuleNotFoundError(\"No module named 'vulkan'\")", "pip install vulkan",
                 marks=pytest.mark.full),
])  # fmt: skip
@pytest.mark.full
def test_the_doctor_works_where_the_bindings_do_not(tmp_path, error, name):
    package = tmp_path / "vulkan"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "_vulkan.py").write_text(f"raise {error}\n")
    # The machine is told to be a Debian one, so that the line is the same everywhere.
    script = (
        "import json; from vklab.apps import doctor; from vklab.apps.bootstrap import system\n"
        "from vklab.apps.doctor import child\n"
        "system.inspect_machine = lambda: system.Machine(installers=frozenset({'apt-get'}))\n"
        "print(json.dumps(doctor.examine().summary()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    (bindings,) = [check for check in summary["checks"] if check["name"] == "Vulkan bindings"]
    assert not summary["ok"] and not bindings["ok"] and name in bindings["repair"]


def manifest(folder: Path, library: str) -> Path:
    """Write a driver manifest that names a library."""
    path = folder / "paper_icd.json"
    path.write_text(json.dumps({"ICD": {"library_path": library}}))
    return path


@pytest.mark.parametrize("library", ["/nowhere/libpaper.so", "./libpaper.so", "libpaper.so.0"])
def test_a_manifest_whose_library_is_gone(tmp_path, library):
    path = manifest(tmp_path, library)
    known = ["\tlibother.so.0 (libc6,x86-64) => /usr/lib/libother.so.0"]
    found = detect.read_manifest(path, known, {})
    assert found.problem == f"names {library}, which is not there"
    result = checks.check_drivers([found], DEBIAN)
    assert not result.ok and str(path) in result.detail and "mesa-vulkan-drivers" in result.repair


def test_a_manifest_whose_library_is_there(tmp_path):
    (tmp_path / "libpaper.so").touch()
    here = detect.read_manifest(manifest(tmp_path, "./libpaper.so"), [], {})
    bare = manifest(tmp_path, "libpaper.so")
    on_path = detect.read_manifest(bare, ["\tx.so => /x.so"], {"LD_LIBRARY_PATH": str(tmp_path)})
    known = detect.read_manifest(bare, ["\tlibpaper.so (libc6) => /usr/lib/libpaper.so"], {})
    assert here.problem == on_path.problem == known.problem == ""
    broken = detect.Manifest(Path("/icd/broken.json"), "x", "is not a driver manifest")
    beside = checks.check_drivers([here, broken], DEBIAN)
    assert beside.mark == "note" and str(here.path) in beside.repair


def test_manifests_that_are_no_manifests(tmp_path):
    path = tmp_path / "paper_icd.json"
    assert "cannot be read" in detect.read_manifest(path, [], {}).problem
    for text in ('{"ICD": []}', '{"ICD": {"library_path": 7}}', "{bad", "[]"):
        path.write_text(text)
        assert "is not a driver manifest" in detect.read_manifest(path, [], {}).problem
        assert not manifests.drivers({"VK_DRIVER_FILES": str(path)})


def test_a_variable_that_hides_all_drivers():
    machine = system.Machine(installers=frozenset({"apt-get"}), drivers_named_by="VK_DRIVER_FILES")
    found = checks.check_drivers([], machine)
    assert not found.ok and "VK_DRIVER_FILES" in found.repair and "apt" not in found.repair


def test_a_mac_finds_the_manifest_of_the_sdk(tmp_path):
    folder = tmp_path / "VulkanSDK/1.4.0/macOS/share/vulkan/icd.d"
    folder.mkdir(parents=True)
    (folder / "libMoltenVK.dylib").touch()
    path = manifest(folder, "./libMoltenVK.dylib")
    found = detect.find_manifests("Darwin", {"HOME": str(tmp_path)})
    assert path in [item.path for item in found]
    mac = system.Machine(system="Darwin")
    assert "Vulkan SDK" in checks.check_drivers([], mac).repair
    assert checks.check_drivers([], system.Machine(system="Windows")).ok


@pytest.mark.parametrize("shipped", [True, False])
def test_no_compiler(monkeypatch, tmp_path, shipped):
    monkeypatch.setattr(toolchain, "find_toolchain", lambda language: None)
    monkeypatch.setattr(stock, "FOLDER", tmp_path if shipped else tmp_path / "none")
    slang, glsl = checks.check_compilers(DEBIAN)
    assert slang.ok == shipped and "slangtorch" in slang.repair
    assert glsl.mark == "note" and "glslang-tools" in glsl.repair


def test_a_compiler_that_does_not_exist(monkeypatch):
    monkeypatch.setenv("VKLAB_SLANGC", "/nowhere/slangc")
    slang = checks.check_compilers(DEBIAN)[0]
    assert not slang.ok and "/nowhere/slangc" in slang.detail and slang.repair


@pytest.mark.skipif(os.name != "posix", reason="writes a shell script")
def test_a_compiler_that_does_not_work(monkeypatch, tmp_path):
    program = tmp_path / "slangc"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("VKLAB_SLANGC", str(program))
    slang = checks.check_compilers(DEBIAN)[0]
    assert not slang.ok and "ended with code 3" in slang.detail and slang.repair


def test_a_cache_that_cannot_be_written_is_a_note(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("VKLAB_CACHE", str(tmp_path / "file"))
    (found,) = checks.check_caches()
    assert found.mark == "note" and "compiles again" in found.detail
    monkeypatch.setenv("VKLAB_DISABLE_CACHE", "1")
    assert checks.check_caches()[0].mark == "ok"


def test_damaged_files_of_the_cache_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("VKLAB_CACHE", str(tmp_path))
    store.write(tmp_path / "spirv" / "relu-1.spv", b"words")
    assert " damaged (" not in checks.check_caches()[0].detail
    (tmp_path / "spirv" / "relu-2.spv").write_bytes(b"words without a digest")
    (tmp_path / "modules" / "1" / "lib").mkdir(parents=True)
    found = checks.check_caches()[0]
    assert found.ok
    assert "2 damaged (spirv/relu-2.spv, modules/1), made again at the next use" in found.detail


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr(checks, "_version", lambda name: "" if name in ("onnx", "torch") else "1")
    needed, optional = checks.check_packages()
    assert not needed.ok and needed.detail.endswith("onnx") and "pip install onnx" in needed.repair
    assert optional.mark == "note" and "no torch" in optional.detail


def test_a_report_draws_itself():
    report = Report((Check("a <b>", True, "fine"), Check("c", False, "bad", "mend it")))
    assert (
        str(report)
        == repr(report)
        == (
            "ok      a <b>: fine\n"
            "FAILED  c: bad\n"
            "        to repair: mend it\n"
            "vklab can NOT work here: 2 checks, 1 failed, 0 notes"
        )
    )
    assert Report((Check("d", True, "no", "add it"),)).verdict == (
        "vklab can work here: 1 checks, 0 failed, 1 note (d: see `vklab doctor`)"
    )
    html = report._repr_html_()
    assert "a &lt;b&gt;" in html and "mend it" in html and html == report._repr_html_()
