"""What every test needs: a cache of its own, no switches from outside, quiet property tests.

Every plan that a test makes is checked for hazards and for values that are overwritten too early.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from support.checks import plan_checks
from support.runs import evidence, python_server, shards, slang_server, tiers
from vklab.shader import toolchain

TESTS = Path(__file__).resolve().parent
STAND_INS, ENGINE = str(TESTS / "stand_ins"), str(TESTS.parent / "labs" / "engine")
LONG_S, SLOWEST = 60, 10
# Hundreds of processes import vklab: bytecode is kept, whatever the environment says.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
plan_checks.install()  # before any test takes a planner by its name


# Of a test with more cases than this, every twelfth runs by default; `--all` runs all of them.
WHOLE_CASES, SAMPLE_STEP = 3, 12


# A file of which every test has one mark, or is an operator's, which tests/gpu/conftest.py marks.
WHOLE_FILE = re.compile(r"^pytestmark = \[?pytest\.mark\.(slow|full)\b", re.M)
OPERATOR_FILES = "gpu/test_op_*.py"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of one slice of the tests, and of a record of what came out."""
    parser.addoption("--shard", type=shards.parse, metavar="K/N", help="run slice K of N")
    parser.addoption("--evidence", metavar="NAME", help="write what came out under this name")


def pytest_configure(config: pytest.Config) -> None:
    """Try fewer examples of a property than with --all, fewest in the quick tier."""
    # Test files read it when they are imported.
    os.environ[tiers.LONG_CASES] = "" if "not slow" in config.getoption("markexpr") else "1"
    count = 12 if "not full" in config.getoption("markexpr") else tiers.examples(80)
    hypothesis.settings.register_profile("vklab", deadline=None, max_examples=count, database=None)
    hypothesis.settings.load_profile("vklab")
    if config.getoption("evidence"):
        evidence.begin()
    gc.disable()  # until all tests are collected
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if worker and [Path(argument).resolve() for argument in config.args] == [TESTS]:
        # Each worker starts in another folder: what one compiles, the others load.
        parts = sorted({path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")})
        first = int(worker) % len(parts)
        config.args = [str(TESTS / part) for part in parts[first:] + parts[:first]]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files out that the tier leaves out as a whole: their imports take seconds."""
    excluded = re.findall(r"not (slow|full)", config.getoption("markexpr"))
    if not excluded or collection_path.suffix != ".py":
        return None
    if collection_path.match(OPERATOR_FILES) and "full" in excluded:
        return True
    found = WHOLE_FILE.search(collection_path.read_text("utf-8"))
    return True if found and found[1] in excluded else None


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Mark most cases of long tests of the runtime as slow, and make no case that is not to run."""
    yield
    definition, cases = metafunc.definition, metafunc._calls  # pytest has no public name for them
    is_slow = {id(case): any(mark.name == "slow" for mark in case.marks) for case in cases}
    if definition.get_closest_marker("slow") is not None:
        is_slow = dict.fromkeys(is_slow, True)
    quick = [case for case in cases if not is_slow[id(case)]]
    is_long = len([case for case in quick if "validated" not in case.id]) > WHOLE_CASES
    is_sampled = definition.path.parent.name in ("gpu", "nogpu") and is_long
    for number, case in enumerate(quick if is_sampled else ()):
        if number % SAMPLE_STEP:
            case.marks.append(pytest.mark.slow.mark)
            is_slow[id(case)] = True
    if "not slow" in metafunc.config.getoption("markexpr"):
        cases[:] = [case for case in cases if not is_slow[id(case)]] or cases[:1]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Put the files into one order, wherever a worker started, and keep one slice of the tests."""
    items.sort(key=lambda item: item.path.parts)
    yield
    shard = config.getoption("shard")
    if shard:
        others = [item for item in items if not shards.holds(item.nodeid, shard)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if shards.holds(item.nodeid, shard)]


def pytest_collection_finish() -> None:
    """Let the garbage collector leave out what was collected: thousands of tests stay alive."""
    gc.enable()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Keep the tests out of the user's cache folder, and the user's switches out of the tests."""
    folder = str(tmp_path_factory.mktemp("cache"))
    if "PYTEST_XDIST_WORKER" in os.environ:  # workers compile for each other, as processes do
        folder = str(tmp_path_factory.getbasetemp().parent / "cache")
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            # Where the compiler and the drivers are stays as the user says.
            if name.startswith("VKLAB_") and name not in ("VKLAB_SLANGC", "VKLAB_SWIFTSHADER"):
                patch.delenv(name)
        patch.setenv("PYTHONPATH", os.pathsep.join([STAND_INS, ENGINE]), prepend=os.pathsep)
        patch.setenv("VKLAB_CACHE", folder)
        Path(folder).mkdir(exist_ok=True)
        patch.setenv("TESTS_SHARE", folder)  # stays where a test has a cache of its own
        yield folder


@pytest.fixture(scope="session", autouse=True)
def kept_outputs(private_cache: str, request: pytest.FixtureRequest) -> None:
    """Keep what slangc has made in pytest's cache: the next run takes it, and caches stay cold.

    Not so with --all, without pytest's cache, or with another compiler. `--cache-clear` empties it.
    """
    tools = toolchain.find_toolchain("slang")
    options, cache = request.config.option, getattr(request.config, "cache", None)
    if tools is None or cache is None or not ("not slow" in options.markexpr or options.shard):
        return
    kept = cache.mkdir("slangc-" + re.sub(r"\W+", "-", tools.version))
    slang_server.forget(kept)
    with contextlib.suppress(FileExistsError):  # by another worker
        Path(private_cache, "compiled").symlink_to(kept)


@pytest.fixture(scope="session", autouse=True)
def loaded_compiler(kept_outputs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the compiler loaded: a kernel then takes a fifth of the time."""
    with slang_server.running(tmp_path_factory.mktemp("s")):
        yield


@pytest.fixture(scope="session", autouse=True)
def loaded_python(
    loaded_compiler: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Keep a Python with vklab loaded: its forks are the children of tests and of checks."""
    with python_server.running(tmp_path_factory.mktemp("p")):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test that made a wrong plan, even if what told so was swallowed."""
    plan_checks.problems.clear()
    result = yield
    assert not plan_checks.problems, "\n".join(plan_checks.problems)
    return result


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """Say how many plans were checked and, after a long run, which files took longest.

    With --evidence, write what came out.
    """
    if any(plan_checks.counts.values()):
        told = ", ".join(f"{count} {what}" for what, count in plan_checks.counts.items())
        terminalreporter.write_line(f"plans: {told}")
    seconds: Counter[str] = Counter()
    for report in (r for reports in terminalreporter.stats.values() for r in reports):
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid.split("::")[0].removeprefix("tests/")] += report.duration
    if sum(seconds.values()) > LONG_S:
        told = ", ".join(f"{file} {time:.0f} s" for file, time in seconds.most_common(SLOWEST))
        terminalreporter.write_line(f"slowest files: {told}")
    if config.getoption("evidence"):
        counts = {key: len(terminalreporter.stats.get(key, ())) for key in evidence.OUTCOMES}
        written = evidence.write(config.getoption("evidence"), exitstatus, counts)
        terminalreporter.write_line(f"evidence: {written}")
