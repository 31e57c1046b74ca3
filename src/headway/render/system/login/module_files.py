"""Module files of the software on machines, which `module load` reads (Lmod)."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.render.escaping import MARK

MODULES = "/opt/modulefiles"  # of the cluster's administrator
_CUDA = (
    'if mode() == "load" and not isDir("/usr/local/cuda") then',
    '    LmodError("this machine has no CUDA toolkit in /usr/local/cuda: use a container image or pip packages that bring CUDA")',
    "end",
    'setenv("CUDA_HOME", "/usr/local/cuda")',
    'prepend_path("PATH", "/usr/local/cuda/bin")',
    'prepend_path("LD_LIBRARY_PATH", "/usr/local/cuda/lib64")',
)


def module_files(cluster: Cluster) -> dict[str, str]:
    """Returns the module files of the software that machines have, by name and version. It is on PATH without them too; they set
    the variables that builds look at, so that scripts of other clusters run unchanged."""
    found = {
        "python/system": _module(
            "python",
            "The Python of this machine, with venv, pip, NumPy and PyTorch.",
            'setenv("PYTHON", "/usr/bin/python3")',
        ),
        "gcc/system": _module(
            "gcc",
            "GCC of this machine: gcc, g++, gfortran.",
            'family("compiler")',
            'setenv("CC", "gcc")',
            'setenv("CXX", "g++")',
            'setenv("FC", "gfortran")',
        ),
        "openmpi/system": _module(
            "openmpi",
            "Open MPI of this machine: mpicc, mpicxx, mpifort, mpirun; srun starts its programs too.",
            'family("mpi")',
            'setenv("MPICC", "mpicc")',
            'setenv("MPICXX", "mpicxx")',
            'setenv("MPIFC", "mpifort")',
        ),
    }
    if not cluster.simulated_gpus and any(group.plan.gpus for group in cluster.groups):
        found["cuda/system"] = _module("cuda", "The CUDA toolkit that this machine has in /usr/local/cuda.", *_CUDA)
    return found


def _module(name: str, about: str, *lines: str) -> str:
    """Returns a module file for Lmod."""
    head = (f"-- {MARK}", f"help([[{about}]])", f'whatis("Name: {name}")', f'whatis("Description: {about}")')
    return "\n".join((*head, *lines)) + "\n"
