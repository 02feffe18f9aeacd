"""The rules of tests/ itself, held on this repository and shown to be able to fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.rules import support_rules, wait_rules

ROOT = Path(__file__).resolve().parent.parent
RULES = (support_rules.stray, support_rules.crowded, support_rules.unused,
         support_rules.without_path, wait_rules.sleeping, wait_rules.limited,
         wait_rules.clocked)  # fmt: skip
SOUND = {
    "CONTRIBUTING.md": "`python tests/support/runs/soak.py`, `python tests/support/runs/late.py`",
    "docs/page.md": "",
    "tests/conftest.py": "",
    "tests/gpu/test_a.py": "from support.runs import (\n    child,\n    fuzz as fuzzer,\n)\n",
    "tests/support/__init__.py": "",
    "tests/support/runs/__init__.py": "",
    "tests/support/runs/child.py": "CODE = 'from support.runs.fork import run; run()'\n",
    "tests/support/runs/fork.py": "",
    "tests/support/runs/fuzz.py": "",
    "tests/support/runs/soak.py":
        f"{support_rules.PATH}\nfrom support.runs import child\n{support_rules.PROGRAM}    pass\n",
}  # fmt: skip


def tree(root: Path, files: dict[str, str]) -> Path:
    """Write a small repository."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize("rule", RULES)
def test_the_rule_holds(rule, tmp_path):
    assert rule(ROOT) == [] == rule(tree(tmp_path, SOUND))


def test_other_waits_are_left_alone(tmp_path):
    text = (
        "asyncio.sleep(0)\n"
        "fence.wait(0.05)\n"
        "future.result(LIMIT_S)\n"
        "code = 'time.sleep(6000)'\n"
        "assert time.monotonic() - start > 0.04\n"
        "', '.join(names)\n"
    )
    files = {**SOUND, "tests/gpu/test_b.py": text}
    root = tree(tmp_path, files)
    assert not wait_rules.sleeping(root) + wait_rules.limited(root) + wait_rules.clocked(root)


@pytest.mark.parametrize(("rule", "files", "words"), [
    ("stray", {"tests/helper.py": ""}, "tests/helper.py: helpers are in tests/support/"),
    ("crowded", {"tests/support/helper.py": ""}, "tests/support/helper.py: has no subject"),
    ("crowded", {f"tests/support/runs/of_{number}.py": "" for number in range(20)},
     "tests/support/runs: 25 files"),
    ("unused", {"tests/support/runs/left.py": ""}, "runs/left.py: no test imports this"),
    # Two that only import each other.
    ("unused", {"tests/support/runs/left.py": "from support.runs import right",
                "tests/support/runs/right.py": "from support.runs import left"}, "runs/left.py"),
    # Named by a page, and nothing happens when it is run.
    ("unused", {"tests/support/runs/late.py": "def main():\n    pass\n"}, "runs/late.py"),
    ("without_path", {"tests/support/runs/soak.py":
                      f"from support.runs import child\n{support_rules.PROGRAM}    pass\n"},
     "runs/soak.py: imports helpers"),
    ("sleeping", {"tests/gpu/test_a.py": "import time\ntime.sleep(0.3)\n"},
     "tests/gpu/test_a.py:2: sleeps"),
    ("sleeping", {"tests/gpu/test_a.py": "from time import sleep as nap"}, "test_a.py:1: sleeps"),
    ("sleeping", {"tests/gpu/test_a.py": "thread(target=other.time.sleep)"}, "test_a.py:1: sleeps"),
    ("limited", {"tests/gpu/test_a.py": "import a\nfuture.result(20)"}, "test_a.py:2: a limit"),
    ("limited", {"tests/gpu/test_a.py": "run(words, timeout=60)"}, "test_a.py:1: a limit"),
    ("clocked", {"tests/gpu/test_a.py": "assert right and time.monotonic() - start < 30"},
     "test_a.py:1: an upper bound"),
    ("clocked", {"tests/gpu/test_a.py": "assert LIMIT_S > perf_counter() - start"},
     "test_a.py:1: an upper bound"),
])  # fmt: skip
def test_a_violation_is_reported(rule, files, words, tmp_path):
    rules = wait_rules if hasattr(wait_rules, rule) else support_rules
    found = getattr(rules, rule)(tree(tmp_path, {**SOUND, **files}))
    assert found and words in found[0], found
