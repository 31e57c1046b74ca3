"""sbatch says that --mail-type sends nothing, only where the cluster has no mail server, and that --container names no bundle."""

from __future__ import annotations

from dataclasses import replace

from headway.render.slurm.hooks import cli_filter
from tests.support.clusters.render_cases import gpu_cluster, old_gpu_cluster


def test_only_a_cluster_without_mail_server_speaks_of_mail() -> None:
    without = cli_filter.files(replace(gpu_cluster(), mail_relay=""))[cli_filter.PATH].text
    assert 'options["mail-type"]' in without
    assert "mail: {relay: HOST:25}" in without
    relay = replace(gpu_cluster(), mail_relay="mail.example.org:25")
    assert "mail" not in cli_filter.files(relay)[cli_filter.PATH].text


def test_bundles_are_checked_where_slurm_runs_them() -> None:
    assert "config.json can't be read here" in cli_filter.files(gpu_cluster())[cli_filter.PATH].text
    old = cli_filter.files(old_gpu_cluster())[cli_filter.PATH].text
    assert "use --container-image" in old
    assert "config.json" not in old
