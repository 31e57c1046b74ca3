"""How the tasks of `headway run` are started: by Python, torchrun, MPI or Ray. Pure."""

from __future__ import annotations

from headway.schemas.submission.run_request import RunIn

_MPIRUN = {"mpirun", "mpiexec", "prterun"}


def launcher_of(program: str) -> str:
    """Returns the launcher for the first word of a command."""
    last = program.rpartition("/")[2]
    if last == "torchrun":
        return "torchrun"
    return "mpi" if last in _MPIRUN else "python"


def by_mpirun(run: RunIn) -> bool:
    """Returns whether the command itself starts mpirun."""
    return run.argv[0].rpartition("/")[2] in _MPIRUN
