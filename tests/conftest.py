"""What every test needs: a cache of its own, no switches from outside, quiet property tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import hypothesis
import pytest

hypothesis.settings.register_profile("vklab", deadline=None, max_examples=40, database=None)
hypothesis.settings.load_profile("vklab")


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
        patch.setenv("VKLAB_CACHE", folder)
        yield folder
