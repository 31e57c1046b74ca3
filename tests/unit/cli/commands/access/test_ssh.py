"""ssh, exec, cp and ssh-config run the right programs and write the right files."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.cli import ssh_files
from headway.errors import Conflict, Refused
from headway.schemas.people import AccessOut
from tests.support.cli_fakes import Cli, cli, cluster

__all__ = ["cli"]  # a fixture

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEC"


class BecameError(Exception):
    """Stands for the process having turned into another program."""

    def __init__(self, argv: list[str]) -> None:
        self.argv = argv


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    found: list[list[str]] = []
    monkeypatch.setattr("os.execvp", lambda _, argv: found.append(argv))
    return found


def access(name: str = "lab", **others: object) -> AccessOut:
    fields = {
        "cluster": name, "user": "alice", "head": f"{name}-head", "address": "10.87.3.2",
        "host_keys": [f"{name}-head {KEY}", f"10.87.3.2 {KEY}", f"{name}-1-1 {KEY}"],
        "machines": {f"{name}-head": "10.87.3.2", f"{name}-1-1": "10.87.3.11", f"{name}-2-1": "10.87.3.12"},
    } | others  # fmt: skip
    return AccessOut.model_validate(fields)


def two_clusters(cli: Cli) -> None:
    cli.api.on("clusters.list", [cluster("lab"), cluster("lab-x")]).on("clusters.ssh_access", access)


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
    cli.api.on("clusters.only_name", "lab").on("clusters.ssh_access", access)
    cli("ssh", "--", "hostname")
    assert became[0][3:] == ["lab", "hostname"]


@pytest.mark.parametrize("words", [["nope"], ["lab", "lab-9-9"]])
def test_ssh_to_unknown_cluster_or_node_exits_with_not_found(
    cli: Cli, became: list[list[str]], words: list[str]
) -> None:
    two_clusters(cli)
    assert cli("ssh", *words).code == 5
    assert not became


def test_cp_command_executes_scp_and_checks_its_hosts(cli: Cli, became: list[list[str]], home: Path) -> None:
    two_clusters(cli)
    cli("cp", "-r", "./data", "lab-1-1:data")
    assert became == [["scp", "-F", str(home / "config/headway/ssh/config"), "-r", "./data", "lab-1-1:data"]]
    assert cli("cp", "a", "b").code == 2
    assert cli("cp", "a", "nope:b").code == 5
    assert len(became) == 1


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH's client")
@pytest.mark.parametrize("host", ["lab", "lab-head", "lab-1-7", "lab-2-1"])
def test_openssh_resolves_hosts_from_the_written_config(home: Path, host: str) -> None:
    read = options(ssh_files.write_ssh_config(access()), host)
    known = str(home / "config/headway/ssh/lab.known_hosts")
    assert (read["user"], read["stricthostkeychecking"], read["userknownhostsfile"]) == ("alice", "true", known)
    if host in ("lab", "lab-head"):
        assert (read["hostname"], read["hostkeyalias"]) == ("10.87.3.2", "lab-head")
        assert "proxyjump" not in read
    else:
        assert (read["hostname"], read["proxyjump"]) == (host, "lab-head")
    assert f"lab-head {KEY}" in Path(known).read_text()


def options(config: Path, host: str) -> dict[str, str]:
    """What OpenSSH makes of the config for this host."""
    said = subprocess.run(["ssh", "-G", "-F", str(config), host], capture_output=True, text=True, check=True).stdout
    return dict(line.split(" ", 1) for line in said.splitlines() if " " in line)


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH's client")
def test_ssh_config_offers_headway_key_and_personal_keys(home: Path) -> None:
    """Who made a key after Headway had made its own: clusters applied from then on know that one."""
    for name in (".ssh/id_ed25519", ".ssh/id_rsa"):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text("")
    assert "IdentityFile" not in ssh_files.config_text(access()), "ssh has its own order"
    own = home / "config/headway/id_ed25519"
    own.parent.mkdir(parents=True)
    own.write_text("")
    config = ssh_files.write_ssh_config(access())
    for host in ("lab", "lab-1-7"):
        said = subprocess.run(["ssh", "-G", "-F", str(config), host], capture_output=True, text=True, check=True).stdout
        named = [line.split(" ", 1)[1] for line in said.splitlines() if line.startswith("identityfile ")]
        assert named == [str(own), str(home / ".ssh/id_ed25519"), str(home / ".ssh/id_rsa")]


def test_node_patterns_of_clusters_with_a_common_prefix_do_not_overlap(home: Path) -> None:
    for name in ("lab", "lab-x"):
        (patterns,) = ssh_files.node_patterns(access(name))
        assert [one for one in patterns if not one.startswith("!")] == [f"{name}-1-*", f"{name}-2-*"]


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH's client")
def test_ssh_config_reaches_the_second_head_without_proxyjump(home: Path) -> None:
    machines = access().machines | {"lab-head2": "10.87.3.3", "lab-gpu-1-1": "10.87.3.13"}
    config = ssh_files.write_ssh_config(access(machines=machines, ports={"lab-head2": 2222}))
    for host, address, port in (("lab-head", "10.87.3.2", "22"), ("lab-head2", "10.87.3.3", "2222")):
        read = options(config, host)
        assert "proxyjump" not in read, "ssh would start itself for ever"
        assert (read["hostname"], read["port"], read["hostkeyalias"]) == (address, port, host)
    for node in ("lab-1-1", "lab-2-9", "lab-gpu-1-1"):
        assert options(config, node)["proxyjump"] == "lab-head"


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH's client")
def test_ssh_config_distinguishes_cluster_lab_from_lab_2(home: Path) -> None:
    first, second = access(), access("lab-2", address="10.87.4.2")
    for one, other in ((first, second), (second, first)):
        ssh_files.write_ssh_config(one)
        config = ssh_files.write_ssh_config(other)
        assert options(config, "lab-2-1")["proxyjump"] == "lab-head"
        assert options(config, "lab-2-1-1")["proxyjump"] == "lab-2-head"
        for host in ("lab-2", "lab-2-head"):
            assert "proxyjump" not in options(config, host)
            assert options(config, host)["hostname"] == "10.87.4.2"


def test_ssh_and_cp_find_the_cluster_by_node_name(cli: Cli, became: list[list[str]]) -> None:
    def there(name: str) -> AccessOut:
        if name == "lab-2-x":
            raise Conflict("lab-2-x-head does not exist yet")
        return access(name)

    cli.api.on("clusters.list", [cluster("lab"), cluster("lab-2"), cluster("lab-2-x")]).on("clusters.ssh_access", there)
    assert cli("ssh", "lab-2-1").code == 0
    assert cli("ssh", "lab-2-2-1").code == 0
    assert cli("cp", "lab-2-1:x", "lab-2-2-1:y", ".").code == 0
    assert [argv[3:] for argv in became] == [["lab-2-1"], ["lab-2-2-1"], ["lab-2-1:x", "lab-2-2-1:y", "."]]
    assert cli("ssh", "lab-2-x-1-1").code == 6
    assert cli("ssh", "lab-2-9").code == 5


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH's client")
def test_latest_written_ssh_config_wins_for_a_shared_machine_name(home: Path) -> None:
    first = access(machines={"lab-head": "10.87.3.2", "lab-gpu-1-1": "10.87.3.11"})
    second = access("lab-gpu", machines={"lab-gpu-head": "10.87.4.2", "lab-gpu-1-1": "10.87.4.11"})
    for one, other in ((first, second), (second, first)):
        ssh_files.write_ssh_config(one)
        assert options(ssh_files.write_ssh_config(other), "lab-gpu-1-1")["proxyjump"] == other.head


@pytest.mark.parametrize(
    "others",
    [
        {"user": "a\n  ProxyCommand x"},
        {"head": "*"},
        {"address": "1.2.3.4 x"},
        {"machines": {"a\nb": "x"}},
        {"machines": {"lab-head2": "x\n y"}},
    ],
)
def test_ssh_config_refuses_server_values_that_inject_lines(others: dict[str, object]) -> None:
    with pytest.raises(Refused):
        ssh_files.config_text(access(**others))


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


def test_exec_passes_command_output_and_exit_code_through(cli: Cli) -> None:
    def command(*_: Any) -> Iterator[tuple[str, bytes]]:
        yield from (("out", b"\xff "), ("err", b"err\n"), ("out", b"out"), ("code", b"3"))

    cli.api.on("commands.stream", command)
    done = cli("exec", "lab", "-u", "alice", "--", "sh", "-c", "exit 3", "--", "-u")
    assert (done.code, done.raw, done.err) == (3, b"\xff out", "err\n")
    (name, argv, user, _), _ = cli.api.named("commands.stream")[0]
    assert (name, argv, user) == ("lab", ["sh", "-c", "exit 3", "--", "-u"], "alice")


def test_exec_ends_the_command_when_interrupted(cli: Cli) -> None:
    ended = []

    def command(*_: Any) -> Iterator[tuple[str, bytes]]:
        try:
            yield "out", b"begun\n"
            raise KeyboardInterrupt
        finally:
            ended.append(True)

    cli.api.on("commands.stream", command)
    done = cli("exec", "lab", "--", "sleep", "99")
    assert (done.code, done.out, ended) == (130, "begun\n", [True])


def test_exec_reads_piped_stdin_and_ignores_dev_null(home: Path) -> None:
    """In a process of its own: only a real descriptor tells a pipe from nothing."""
    script = """
from headway.cli.commands.access import ssh as access
read = access._stdin()
print(read and [read(), read()])
"""
    run = [sys.executable, "-c", script]
    assert subprocess.run(run, input=b"hi", capture_output=True, check=True).stdout == b"[b'hi', b'']\n"
    none = subprocess.run(run, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert none.stdout == b"None\n"


@pytest.mark.parametrize("words", [["lab"], ["lab", "--"], ["lab", "hostname"]])
def test_exec_requires_a_command_after_double_dash(cli: Cli, words: list[str]) -> None:
    assert cli("exec", *words).code == 2
