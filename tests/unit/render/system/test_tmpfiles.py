"""Folders made at boot."""

from __future__ import annotations

from headway.render.files import render_files
from tests.support.clusters.render_cases import gpu_cluster, site_of

GPU = gpu_cluster()


def test_job_folders_are_removed_at_boot() -> None:
    node = render_files(GPU, site_of(GPU))["node"]
    for place in ("/var/lib/headway/job-tmp", "/var/lib/headway/containers"):
        assert f"{place}/" in node["/etc/headway/epilog"].text
        assert f"R! {place}/*\n" in node["/etc/tmpfiles.d/headway.conf"].text
