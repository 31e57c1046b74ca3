"""Units of Slurm's daemons."""

from __future__ import annotations

from headway.render.files_by_role import render_files
from tests.support.clusters.render_cases import gpu_cluster, site_of

GPU = gpu_cluster()


def test_slurm_daemons_are_protected_from_oom_killer() -> None:
    rendered = render_files(GPU, site_of(GPU))
    for role, name in (("node", "slurmd"), ("node", "munge"), ("head", "munge"), ("head", "slurmctld")):
        text = rendered[role][f"/etc/systemd/system/{name}.service.d/headway.conf"].text
        assert "OOMScoreAdjust=-9" in text, (role, name)
