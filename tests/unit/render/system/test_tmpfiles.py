"""Folders made at boot."""

from __future__ import annotations

from headway.render.files_by_role import render_files
from tests.support.clusters.render_cases import gpu_cluster, site_of

GPU = gpu_cluster()


def test_job_folders_are_removed_at_boot() -> None:
    node = render_files(GPU, site_of(GPU))["node"]
    for place in ("/var/lib/headway/job-tmp", "/var/lib/headway/containers"):
        assert f"{place}/" in node["/etc/headway/epilog"].text
        assert f"R! {place}/*\n" in node["/etc/tmpfiles.d/headway.conf"].text


def test_only_root_creates_folders_with_guessable_names() -> None:
    node = render_files(GPU, site_of(GPU))["node"]
    rows = node["/etc/tmpfiles.d/headway.conf"].text
    assert "d /run/headway/pmix 0755 root root -\n" in rows
    assert "d /dev/shm/headway 0700 root root -\n" in rows
    assert "mode=0755" in node["/etc/systemd/system/slurmd.service.d/headway.conf"].text
