"""Make novels.txt.xz: Jane Austen's six novels, from a package of Debian.

    apt-get download r-cran-janeaustenr
    python data/make_novels.py r-cran-janeaustenr_1.0.0-1_all.deb

The package is read as it is; neither R nor root is needed, only `dpkg-deb`.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import lzma
import struct
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import checksums

from vklab.apps.compare.models import texts

PACKAGE_SHA256 = "df6bddf211906d1ff404f8ff662c21b34e6660e7f54a311084e749050c019c95"
MEMBER = "./usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
STRINGS, STRING = 16, 9  # types of R's serialization: a vector of strings, and one string


def database(package: Path) -> bytes:
    """Return the data of the package, after comparing the package's checksum."""
    found = hashlib.sha256(package.read_bytes()).hexdigest()
    if found != PACKAGE_SHA256:
        sys.exit(f"{package}: sha256 is {found}, expected {PACKAGE_SHA256} (version 1.0.0-1)")
    command = ["dpkg-deb", "--fsys-tarfile", str(package)]
    archive = subprocess.run(command, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        member = files.extractfile(MEMBER)
        assert member is not None
        return member.read()


def objects(content: bytes) -> Iterator[bytes]:
    """Yield the objects of an R database: each has a size, then a zlib stream."""
    while content:
        stream = zlib.decompressobj()
        yield stream.decompress(content[4:])
        content = stream.unused_data


def lines(serialized: bytes) -> list[str]:
    """Return the strings of one serialized vector of strings.

    Source: R Internals, 1.8 Serialization Formats (version 3, XDR)
    """
    file = io.BytesIO(serialized)
    form, version, *_, letters = struct.unpack(">2s4i", file.read(18))
    file.read(letters)  # the name of the encoding
    kind, count = struct.unpack(">2i", file.read(8))
    assert (form, version, kind) == (b"X\n", 3, STRINGS), (form, version, kind)
    found = []
    for _ in range(count):
        flags, size = struct.unpack(">2i", file.read(8))
        assert flags & 0xFF == STRING and size >= 0, (flags, size)
        found.append(file.read(size).decode("utf-8"))
    return found


def main() -> None:
    """Write novels.txt.xz and its checksum; print sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", type=Path, help="the .deb file")
    novels = [lines(each) for each in objects(database(parser.parse_args().package))]
    titles = [novel[0].title().replace(" And ", " and ") for novel in novels]
    assert titles == list(texts.NOVELS), titles
    text = texts.SEPARATOR.join("\n".join(novel) + "\n" for novel in novels).encode()
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
    (checksums.DATA / texts.FILE).write_bytes(lzma.compress(text, filters=filters))
    checksums.update(texts.FILE)
    size = (checksums.DATA / texts.FILE).stat().st_size
    print(f"{texts.FILE}  {size} bytes, {len(text)} of text")


if __name__ == "__main__":
    main()
