"""Record what shorter formats do to a small language model: divergence by matrix, and losses.

As a program it writes `data/recorded/formats_novels_llama.json`, in some minutes on two cores. It
computes in float32 with PyTorch, and counts tokens as `vklab perplexity` does.
Visited by lab 14b.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vklab.apps.llm.perplexity import chunks
from vklab.apps.llm.tokens.tokenizer import Tokenizer
from vklab.apps.llm.weights import mixes
from vklab.apps.llm.weights.gguf import GgufFile, read_gguf
from vklab.apps.quantization.blocks import dequantize, quantize
from vklab.ops.blocks import FORMATS as FORMAT
from vklab_labs.lab_14 import formats_mixes

__all__ = ["matrices_of", "texts_of"]

FORMATS = ("Q4_K", "Q5_K", "Q6_K", "Q8_0")
WHOLE = ("Q4_0", *FORMATS)
CONTEXT, CHUNKS = 512, 20


def matrices_of(file: GgufFile) -> dict[str, Any]:
    """Return the tensors of a file that are stored in blocks, by name."""
    return {n: tensor for n, tensor in file.tensors.items() if mixes.is_matrix(n, tensor.shape)}


def texts_of(text: str) -> tuple[str, str]:
    """Return the text that measures and the text that judges: two halves, cut between paragraphs."""
    middle = text.index("\n\n", len(text) // 2)
    return text[:middle], text[middle:].lstrip()


class Judge:
    """The model in PyTorch, float32, and what it expects of some chunks of a text.

    Args:
        file: the model.
        text: the text.
    """

    def __init__(self, file: GgufFile, text: str) -> None:
        import torch

        from vklab.apps.compare.models.language import Llama, LlamaShape

        self._torch, self._model = torch, Llama(LlamaShape()).eval()
        self.rows = chunks(Tokenizer(file).encode(text), CONTEXT)[:CHUNKS]
        self.arrays = {
            name: dequantize(tensor.block_type, tensor.data).reshape(tensor.shape)
            for name, tensor in file.tensors.items()
        }
        self.reference = self._logs({})

    def _logs(self, changed: Mapping[str, np.ndarray]) -> Any:
        """Return logarithms of probabilities, float64, of the second half of each chunk."""
        self._model.load({**self.arrays, **changed})
        with self._torch.inference_mode():
            logits = self._model(self._torch.from_numpy(self.rows))[:, CONTEXT // 2 : -1]
            return self._torch.log_softmax(logits.double(), -1)

    def judge(self, kinds: Mapping[str, str]) -> tuple[float, np.ndarray]:
        """Return the divergence in millionths of a nat, and the losses of all tokens.

        Args:
            kinds: the format of each matrix that does not stay as it is.
        """
        changed = {
            name: dequantize(kind, quantize(kind, self.arrays[name])) for name, kind in kinds.items()
        }
        logs = self._logs(changed) if kinds else self.reference
        apart = (self.reference.exp() * (self.reference - logs)).sum(-1).mean()
        targets = self._torch.from_numpy(self.rows[:, CONTEXT // 2 + 1 :])
        losses = -logs.gather(-1, targets[..., None]).reshape(-1)
        return 1e6 * float(apart), losses.numpy()


def table(judge: Judge, names: Sequence[str], known: dict[str, dict[str, float]]) -> None:
    """Add what is missing to a table of divergences: one matrix in one format at a time.

    Args:
        judge: the model and the text that measures.
        names: the matrices.
        known: divergence by matrix and format.
    """
    for name in names:
        row = known.setdefault(name, {})
        for kind in FORMATS:
            if kind not in row:
                row[kind] = round(judge.judge({name: kind})[0], 2)
        print(name, row, flush=True)


def main() -> None:
    """Write the record; what an earlier, interrupted run has written is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("data"))
    parser.add_argument("--most", type=int, default=999, help="matrices to add in this run")
    options = parser.parse_args()
    import torch

    path = options.folder / "recorded" / "formats_novels_llama.json"
    found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    file = read_gguf(options.folder / "novels_llama.gguf")
    first, second = texts_of((options.folder / "held_out.txt").read_text("utf-8"))
    names = list(matrices_of(file))
    found |= {
        "device": f"{platform.machine()} processor, PyTorch {torch.__version__} in float32",
        "date": str(datetime.datetime.now(datetime.UTC).date()),
        "versions": f"Python {platform.python_version()}, NumPy {np.__version__}",
        "made_by": "PYTHONPATH=.:labs/engine python3 -P labs/lib/lab_14/formats_recording.py",
        "model": "data/novels_llama.gguf, 29 matrices in F16",
        "texts": f"two halves of data/held_out.txt, {CHUNKS} chunks of {CONTEXT} tokens each",
        "units": "divergence in millionths of a nat, losses in ten-thousandths of a nat",
    }
    known = found.setdefault("divergence", {})
    missing = [name for name in names if len(known.get(name, ())) < len(FORMATS)]
    if missing:
        table(Judge(file, first), missing[: options.most], known)
    if len(missing) <= options.most:
        judge = Judge(file, second)
        whole = {kind: dict.fromkeys(names, kind) for kind in WHOLE}
        losses = {"F16": judge.judge({})[1]} | {k: judge.judge(v)[1] for k, v in whole.items()}
        found["losses"] = {k: np.rint(1e4 * v).astype(int).tolist() for k, v in losses.items()}
        sizes = {name: tensor.shape for name, tensor in matrices_of(file).items()}
        judged = formats_mixes.mixes_to_judge(sizes, known, mixes.of_file(file, "Q4_K_M")) | whole
        found["judged"] = {name: round(judge.judge(kinds)[0], 1) for name, kinds in judged.items()}
        found["bytes"] = {
            title: sum(rows * FORMAT[kinds[n]].row_bytes(wide) for n, (rows, wide) in sizes.items())
            for title, kinds in judged.items()
        }
        found["measured"] = {
            kind: round(Judge(file, first).judge(whole[kind])[0], 1) for kind in FORMATS
        }
    path.write_text(json.dumps(found, separators=(",", ":")) + "\n", "utf-8")


if __name__ == "__main__":
    main()
