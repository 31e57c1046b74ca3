"""cgroup.conf."""

from __future__ import annotations

from dataclasses import replace

from headway.render.files_by_role import render_files
from tests.support.clusters.render_cases import gpu_cluster, site_of

GPU = gpu_cluster()


def test_cgroup_conf_constrains_swap() -> None:
    written = render_files(GPU, site_of(GPU))["head"]["/etc/slurm/cgroup.conf"].text
    assert "ConstrainSwapSpace=yes" in written
    assert "CgroupPlugin=autodetect" in written
    old = render_files(GPU, replace(site_of(GPU), cgroup_v1=True))["head"]["/etc/slurm/cgroup.conf"].text
    assert "CgroupPlugin=cgroup/v1" in old, "what lies on top may be the systemd's own v2"
