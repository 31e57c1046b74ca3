"""Which driver a build of PyTorch for CUDA needs, and which PyTorch the package index has for which CUDA. Pure."""

from __future__ import annotations

# Major version of CUDA -> oldest branch of the driver that programs of this version run with.
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
OLDEST_DRIVER = {12: 525, 13: 580}
# Major version of CUDA -> requirement for the newest torch of the package index that is built for it, "" without a limit. Since
# 2.11 the index has builds for CUDA 13, as their dependencies say. https://github.com/pytorch/pytorch/releases/tag/v2.11.0
TORCH_OF_CUDA = {12: "torch<2.11", 13: ""}


def torch_limits() -> tuple[tuple[int, str], ...]:
    """Returns (branch, requirement) with the oldest branch first: drivers before this branch need this requirement."""
    return tuple(
        (OLDEST_DRIVER[cuda + 1], limit) for cuda, limit in sorted(TORCH_OF_CUDA.items()) if cuda + 1 in OLDEST_DRIVER
    )
