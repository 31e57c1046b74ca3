"""Limits of users on nodes."""

from __future__ import annotations

from headway.render.files_by_role import render_files
from tests.support.clusters.render_cases import gpu_cluster, own_gpu_cluster, own_gpu_site, site_of

LIMITS = "/etc/security/limits.d/headway.conf"
SLURMD = "/etc/systemd/system/slurmd.service.d/headway.conf"


def test_a_user_has_the_same_limit_in_jobs_and_ssh_sessions() -> None:
    local, own = gpu_cluster(), own_gpu_cluster()
    for files, most in (
        (render_files(local, site_of(local))["node"], 8192),
        (render_files(own, own_gpu_site())["node"], max(16384, 256 * own.groups[0].plan.cpus)),
    ):
        assert f"LimitNPROC={most}\n" in files[SLURMD].text
        assert f"* - nproc {most}\n" in files[LIMITS].text


def test_the_head_limits_processes_by_session_only() -> None:
    cluster = gpu_cluster()
    assert "nproc" not in render_files(cluster, site_of(cluster))["head"][LIMITS].text
