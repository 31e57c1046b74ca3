"""Drivers before branch 580 run programs for CUDA 12, not for CUDA 13."""

from __future__ import annotations

from headway.catalog.cuda_builds import OLDEST_DRIVER, TORCH_OF_CUDA, torch_limits


def test_older_drivers_limit_torch_to_the_last_build_for_their_cuda() -> None:
    assert torch_limits() == ((580, "torch<2.11"),)


def test_every_cuda_but_the_newest_has_a_limit() -> None:
    assert set(TORCH_OF_CUDA) == set(OLDEST_DRIVER)
    assert [cuda for cuda, limit in TORCH_OF_CUDA.items() if not limit] == [max(OLDEST_DRIVER)]
