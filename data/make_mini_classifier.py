"""Make mini_classifier.onnx: the MiniClassifier of vklab.apps.compare, exported from PyTorch.

    python data/make_mini_classifier.py

It is kept in the repository so that tests and labs have a PyTorch export without PyTorch.
"""

from __future__ import annotations

import checksums

from vklab.apps.compare.models import graphs


def main() -> None:
    """Write mini_classifier.onnx and its checksum; print its size."""
    model_bytes = graphs.mini_classifier().SerializeToString(deterministic=True)
    (checksums.DATA / "mini_classifier.onnx").write_bytes(model_bytes)
    checksums.update("mini_classifier.onnx")
    print(f"mini_classifier.onnx  {len(model_bytes)} bytes")


if __name__ == "__main__":
    main()
