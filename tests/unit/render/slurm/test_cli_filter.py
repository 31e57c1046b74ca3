"""sbatch says that --mail-type sends nothing, only where the cluster has no mail server."""

from __future__ import annotations

from dataclasses import replace

from headway.render.slurm import cli_filter
from tests.support.render_cases import gpu_cluster


def test_only_a_cluster_without_mail_server_speaks_of_mail() -> None:
    without = cli_filter.files(replace(gpu_cluster(), mail_relay=""))[cli_filter.PATH].text
    assert 'options["mail-type"]' in without
    assert "mail: {relay: HOST:25}" in without
    relay = replace(gpu_cluster(), mail_relay="mail.example.org:25")
    assert "mail" not in cli_filter.files(relay)[cli_filter.PATH].text
