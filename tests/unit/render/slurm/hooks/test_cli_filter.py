"""sbatch says that --mail-type sends nothing, only where the cluster has no mail server, that --container names no bundle, and
that no GPU has as many shards as --gres wants."""

from __future__ import annotations

from dataclasses import replace

from headway.domain.machines.gpu_parts import GpuParts
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


def test_only_a_cluster_with_shards_counts_them() -> None:
    cluster = gpu_cluster()
    assert "shard" not in cli_filter.files(cluster)[cli_filter.PATH].text
    shared = replace(cluster, groups=(replace(cluster.groups[0], parts=GpuParts(shards=8)), *cluster.groups[1:]))
    assert "if shards and shards > 8 then" in cli_filter.files(shared)[cli_filter.PATH].text
