"""mpi.conf."""

from __future__ import annotations

from headway.render.escaping import MARK, commented_setting, slurm_text
from headway.render.machine_paths import PMIX
from headway.render.slurm.conf_syntax import ConfLine


def mpi_conf() -> str:
    """Returns mpi.conf."""
    return slurm_text(
        [
            ConfLine(comment=MARK),
            *commented_setting(
                "PMIxCliTmpDirBase", PMIX, "Not in /tmp, because a job's /tmp is not the /tmp of slurmd."
            ),
        ],
        "mpi.conf",
    )
