"""GPU types have the memory of the plans, and are found by usual spellings."""

from __future__ import annotations

import pytest

from headway.catalog.gpu_types import GPU_TYPES, find_gpu_type
from headway.catalog.plans import load_catalogue


def test_memory_is_that_of_the_plans() -> None:
    for plan in load_catalogue().values():
        if plan.gpus:
            assert GPU_TYPES[plan.gpu_type].memory_mib == plan.gpu_memory_mib


@pytest.mark.parametrize(
    ("name", "memory_gb", "expected"),
    [("H100", 0, "h100"), ("NVIDIA H100 SXM", 0, "h100"), ("a100", 40, "a100-40"), ("A100_80GB", 80, "a100"),
     ("b300", 0, "gb300"), ("AMD MI300X", 0, "mi300x"),
     ("NVIDIA H100 80GB HBM3", 0, "h100"), ("A100-SXM4-40GB", 0, "a100-40")],
)  # fmt: skip
def test_usual_spellings(name: str, memory_gb: float, expected: str) -> None:
    found = find_gpu_type(name, memory_gb)
    assert found is not None
    assert found.name == expected


def test_unknown_type() -> None:
    assert find_gpu_type("v100") is None
    assert find_gpu_type("H100 PCIe") is None  # slower than the H100 of the table


def test_every_type_has_a_source_and_possible_speeds() -> None:
    for gpu in GPU_TYPES.values():
        assert gpu.source.startswith("https://")
        assert gpu.peak_flops["bf16"] > gpu.peak_flops["fp32"]
        assert 0.4 < gpu.matmul_share < 0.9
        assert gpu.link_bytes_s >= gpu.network_bytes_s
