"""mpi.conf."""

from __future__ import annotations

from headway.render.escaping import MARK, pair, slurm_text
from headway.render.machine_paths import PMIX
from headway.render.slurm.conf_syntax import Line


def mpi_conf() -> str:
    """Returns mpi.conf."""
    return slurm_text(
        [
            Line(comment=MARK),
            *pair("PMIxCliTmpDirBase", PMIX, "Not in /tmp, because a job's /tmp is not the /tmp of slurmd."),
        ],
        "mpi.conf",
    )
