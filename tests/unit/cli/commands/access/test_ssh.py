"""ssh and ssh-config run the right programs and write the right files."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.errors import Conflict
from headway.schemas.clusters import AccessOut
from tests.support.cli_fakes import Cli, cli, cluster, ssh_access

__all__ = ["cli"]  # a fixture


def two_clusters(cli: Cli) -> None:
    cli.api.on("clusters.list", [cluster("lab"), cluster("lab-x")]).on("clusters.ssh_access", ssh_access)


@pytest.mark.parametrize(
    ("words", "target"),
    [
        (["lab"], ["lab"]),
        (["lab", "lab-1-1"], ["lab-1-1"]),
        (["lab-1-1"], ["lab-1-1"]),
        (["lab-x-1-1"], ["lab-x-1-1"]),
        (["lab", "--", "ls", "-l", "--", "x"], ["lab", "ls", "-l", "--", "x"]),
    ],
)
def test_ssh_command_executes_openssh_with_the_cluster_config(
    cli: Cli, became: list[list[str]], home: Path, words: list[str], target: list[str]
) -> None:
    two_clusters(cli)
    assert cli("ssh", *words).code == 0
    assert became == [["ssh", "-F", str(home / "config/headway/ssh/config"), *target]]


def test_ssh_defaults_to_the_only_cluster(cli: Cli, became: list[list[str]]) -> None:
    cli.api.on("clusters.only_name", "lab").on("clusters.ssh_access", ssh_access)
    cli("ssh", "--", "hostname")
    assert became[0][3:] == ["lab", "hostname"]


@pytest.mark.parametrize("words", [["nope"], ["lab", "lab-9-9"]])
def test_ssh_to_unknown_cluster_or_node_exits_with_not_found(
    cli: Cli, became: list[list[str]], words: list[str]
) -> None:
    two_clusters(cli)
    assert cli("ssh", *words).code == 5
    assert not became


def test_ssh_and_cp_find_the_cluster_by_node_name(cli: Cli, became: list[list[str]]) -> None:
    def there(name: str) -> AccessOut:
        if name == "lab-2-x":
            raise Conflict("lab-2-x-head does not exist yet")
        return ssh_access(name)

    cli.api.on("clusters.list", [cluster("lab"), cluster("lab-2"), cluster("lab-2-x")]).on("clusters.ssh_access", there)
    assert cli("ssh", "lab-2-1").code == 0
    assert cli("ssh", "lab-2-2-1").code == 0
    assert cli("cp", "lab-2-1:x", "lab-2-2-1:y", ".").code == 0
    assert [argv[3:] for argv in became] == [["lab-2-1"], ["lab-2-2-1"], ["lab-2-1:x", "lab-2-2-1:y", "."]]
    assert cli("ssh", "lab-2-x-1-1").code == 6
    assert cli("ssh", "lab-2-9").code == 5


def test_ssh_config_prints_and_installs_its_include_once(cli: Cli, home: Path) -> None:
    two_clusters(cli)
    printed = cli("ssh-config", "lab").out
    assert printed.startswith("Host lab lab-head\n  HostName 10.87.3.2\n")
    assert not (home / ".ssh").exists()

    mine = home / ".ssh/config"
    mine.parent.mkdir()
    mine.write_text("Host other\n  User me\n")
    for _ in range(2):
        assert cli("ssh-config", "--install").code == 0
    assert mine.read_text() == f"Include {home}/config/headway/ssh/*.conf\n\nHost other\n  User me\n"
    assert {p.name for p in (home / "config/headway/ssh").glob("*.conf")} == {"lab.conf", "lab-x.conf"}
