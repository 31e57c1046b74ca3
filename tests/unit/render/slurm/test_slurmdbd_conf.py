"""slurmdbd.conf."""

from __future__ import annotations

import pytest

from headway.domain.cluster import Cluster
from headway.render.files_by_role import render_files
from tests.support.clusters.render_cases import gpu_cluster, old_gpu_cluster, site_of

GPU = gpu_cluster()


@pytest.mark.parametrize("cluster", [GPU, old_gpu_cluster()])
def test_slurmdbd_listens_only_on_private_address(cluster: Cluster) -> None:
    lines = render_files(cluster, site_of(cluster))["head"]["/etc/slurm/slurmdbd.conf"].text.splitlines()
    assert "CommunicationParameters=NoInAddrAny" in lines
    assert f"DbdAddr={site_of(cluster).head_address}" in lines
