"""topology.conf."""

from __future__ import annotations

from headway.render.files_by_role import render_files
from tests.support.clusters.render_cases import gpu_cluster, old_gpu_cluster, site_of

GPU = gpu_cluster()


def test_topology_conf_is_omitted_for_single_switch() -> None:
    one_leaf = render_files(old_gpu_cluster(), site_of(old_gpu_cluster()))["head"]
    assert "/etc/slurm/topology.conf" not in one_leaf
    assert "TopologyPlugin" not in one_leaf["/etc/slurm/slurm.conf"].text
    two = render_files(GPU, site_of(GPU))["head"]["/etc/slurm/topology.conf"].text
    assert "SwitchName=leaf1 Nodes=lab-1-[1-2]" in two
    assert "SwitchName=spine Switches=leaf[1-2]" in two
