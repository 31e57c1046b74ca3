"""cp runs scp with the configuration of the cluster."""

from __future__ import annotations

from pathlib import Path

from tests.support.cli_fakes import Cli, cli, cluster, ssh_access

__all__ = ["cli"]  # a fixture


def test_cp_command_executes_scp_and_checks_its_hosts(cli: Cli, became: list[list[str]], home: Path) -> None:
    cli.api.on("clusters.list", [cluster("lab"), cluster("lab-x")]).on("clusters.ssh_access", ssh_access)
    cli("cp", "-r", "./data", "lab-1-1:data")
    assert became == [["scp", "-F", str(home / "config/headway/ssh/config"), "-r", "./data", "lab-1-1:data"]]
    assert cli("cp", "a", "b").code == 2
    assert cli("cp", "a", "nope:b").code == 5
    assert len(became) == 1
