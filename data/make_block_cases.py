"""Make block_cases.npz: rows of numbers, and the blocks that ggml's quantiser makes of them.

    python data/make_block_cases.py GGML     GGML is the folder ggml/ of llama.cpp's source

Compiles ggml's ggml-quants.c with gcc, without fused multiply-adds: these depend on the processor,
and with them about one block in a hundred differs. Takes a few seconds.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

import checksums
import numpy as np

FORMATS = {"Q4_K": 144, "Q5_K": 176, "Q6_K": 210}  # bytes of a block of 256 elements
# What ggml-quants.c calls elsewhere in ggml, but not from the functions that are used here.
STUBS = """
#include <stdint.h>
#include <stdlib.h>
void ggml_abort(const char *file, int line, const char *text, ...) { abort(); }
size_t ggml_row_size(int type, int64_t count) { return 0; }
size_t ggml_type_size(int type) { return 0; }
const char *ggml_type_name(int type) { return ""; }
"""


def values() -> np.ndarray:
    """Return 40 rows of 256 numbers: normal, of many sizes, flat, one-sided, sparse and whole."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((40, 256)).astype(np.float32)
    rows[8:16] *= np.exp(rng.uniform(-20, 8, (8, 1))).astype(np.float32)
    rows[16:18] = [[0], [1]]
    rows[18:21] = abs(rows[18:21])
    rows[21:24] = -abs(rows[21:24])
    rows[24:27, ::7] = 0
    rows[27:30] = np.round(rows[27:30] * 4)
    rows[30:32, :128] = rows[30:32, :1]
    rows[32:35, 5] = 1000
    rows[35:38] *= np.repeat(np.exp(rng.uniform(-20, 5, (3, 8))), 32, axis=1).astype(np.float32)
    rows[38] = rng.standard_cauchy(256).astype(np.float32)
    rows[39, :32] = 0
    return rows


def compiled(ggml: Path, folder: Path) -> ctypes.CDLL:
    """Return ggml's quantisers as a library."""
    stubs, library = folder / "stubs.c", folder / "quants.so"
    stubs.write_text(STUBS)
    subprocess.run(
        [
            "gcc",
            "-O2",
            "-DNDEBUG",
            "-ffp-contract=off",
            "-fPIC",
            "-shared",
            "-o",
            library,
            ggml / "src/ggml-quants.c",
            stubs,
            f"-I{ggml / 'src'}",
            f"-I{ggml / 'include'}",
            "-lm",
        ],
        check=True,
    )
    return ctypes.CDLL(str(library))


def main() -> int:
    """Write block_cases.npz and its checksum."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("ggml", type=Path)
    given = values()
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(parser.parse_args().ggml, Path(folder))
        made = {}
        for name, size in FORMATS.items():
            made[name] = np.zeros((len(given), size), np.uint8)
            quantize = getattr(library, f"quantize_row_{name[:2].lower()}_K_ref")
            quantize(
                given.ctypes.data_as(ctypes.c_void_p),
                made[name].ctypes.data_as(ctypes.c_void_p),
                ctypes.c_int64(given.size),
            )
    np.savez_compressed(checksums.DATA / "block_cases.npz", values=given, **made)
    checksums.update("block_cases.npz")
    return 0


if __name__ == "__main__":
    sys.exit(main())
