"""Modules name what machines have; CUDA is there only where GPUs are real."""

from __future__ import annotations

from dataclasses import replace

from headway.catalog.providers import SSH
from headway.render.system.login.module_files import module_files
from tests.support.clusters.render_cases import gpu_cluster


def test_modules_name_compilers_mpi_and_python() -> None:
    found = module_files(gpu_cluster())
    assert {"gcc/system", "openmpi/system", "python/system"} <= set(found)
    assert "cuda/system" not in found  # the GPUs are simulated
    assert 'setenv("CC", "gcc")' in found["gcc/system"]


def test_cuda_module_refuses_machines_without_toolkit() -> None:
    text = module_files(replace(gpu_cluster(), provider=SSH))["cuda/system"]
    assert 'LmodError("this machine has no CUDA toolkit in /usr/local/cuda' in text
