"""A GPU with matrices of halves that is not there: for tests of plans of language models."""

from __future__ import annotations

from support.fakes.fake_device import fake_device
from vklab.types import CooperativeMatrix

LIMITS = {"minSubgroupSize": 32, "maxSubgroupSize": 32, "maxComputeSharedMemorySize": 49152,
          "maxStorageBufferRange": 1 << 32, "maxComputeWorkGroupInvocations": 1024}  # fmt: skip
GPU = fake_device(
    LIMITS,
    subgroup_size=32,
    subgroup_operations=frozenset({"basic", "shuffle", "arithmetic"}),
    features=frozenset(
        {
            "shaderIntegerDotProduct",
            "shaderFloat16",
            "shaderInt64",
            "shaderInt8",
            "shaderInt16",
            "uniformAndStorageBuffer8BitAccess",
            "uniformAndStorageBuffer16BitAccess",
        }
    ),
    cooperative_matrices=(
        CooperativeMatrix(16, 16, 16, "float16", "float16", "float32", "float32"),
    ),
)
# The vendor of whose drivers it is known where matrices keep their elements.
NVIDIA = fake_device(**{**vars(GPU), "vendor_id": 0x10DE, "driver": "NVIDIA 580"})
