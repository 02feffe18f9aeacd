"""Any bytes, names and metadata handed in, beside two honest ones whose marks never change."""

from __future__ import annotations

import io
import json
import warnings
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.course import class_of_students as students
from support.course.hand_ins import beside, book, same
from support.runs import tiers
from vklab_course.grade import bounds

pytestmark = pytest.mark.usefixtures("class_labs")
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(tiers.CHARACTERS, max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["vklab", "id", "role", "kernelspec", "language", "lab", "version", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
STEMS = st.text(tiers.CHARACTERS, min_size=1, max_size=40).map(
    lambda text: text.replace("/", "_").replace("\0", "_").strip(". ") or "x"
)


def batch_of(release, root, name, content, honest):
    """Grade a submission beside the honest ones; check them, and that it has a record."""
    folder = beside(release, root / "in")
    try:
        students.hand_in(folder / name, content)
    except (OSError, ValueError, UnicodeEncodeError):
        return
    _, records = students.run(release, folder, root / "out")
    others = same(records, honest)
    assert len(others) == 1 and len(others[0].submission.student) <= bounds.NAME


@given(st.binary(max_size=400), st.sampled_from(["x.ipynb", "x.zip", "x/y.ipynb", "x/a/b.zip"]))
@settings(max_examples=tiers.examples(12), deadline=None)
def test_any_bytes(release, tmp_path_factory, honest, data, name):
    batch_of(release, tmp_path_factory.mktemp("any"), name, data, honest)


@given(STEMS, st.sampled_from([".ipynb", ".zip", "/x.ipynb"]))
@settings(max_examples=tiers.examples(12), deadline=None)
def test_any_name(release, tmp_path_factory, honest, stem, ending):
    if stem.casefold().startswith(("ada", "zoe")):
        stem = f"x{stem}"
    batch_of(release, tmp_path_factory.mktemp("any"), f"y{stem}{ending}", book(release), honest)


@given(JSON, JSON, JSON, JSON)
@settings(max_examples=tiers.examples(12), deadline=None)
def test_any_metadata(release, tmp_path_factory, honest, of_book, of_cell, vklab, identifier):
    content = students.plain(release)
    content["metadata"] = of_book
    for n, one in enumerate(content["cells"]):
        one["metadata"] = {"vklab": vklab} if n % 2 else of_cell
    content["cells"][0]["id"] = identifier
    content["cells"].append({"id": identifier, "source": identifier, "cell_type": vklab})
    data = json.dumps(content).encode()
    batch_of(release, tmp_path_factory.mktemp("any"), "x.ipynb", data, honest)


@given(st.lists(st.tuples(STEMS, st.binary(max_size=60)), min_size=1, max_size=5))
@settings(max_examples=tiers.examples(12), deadline=None)
def test_any_zip(release, tmp_path_factory, honest, members):
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # names may be equal
        for stem, data in members:
            name = f"{stem}.ipynb".encode("utf-8", "replace").decode()
            archive.writestr(zipfile.ZipInfo(name), data)
    batch_of(release, tmp_path_factory.mktemp("any"), "x.zip", out.getvalue(), honest)
