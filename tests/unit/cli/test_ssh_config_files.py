"""Written ssh configuration is what OpenSSH expects."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from headway.cli import ssh_config_files
from headway.errors import Refused
from tests.support.cli_fakes import HOST_KEY, ssh_access


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH's client")
@pytest.mark.parametrize("host", ["lab", "lab-head", "lab-1-7", "lab-2-1"])
def test_openssh_resolves_hosts_from_the_written_config(home: Path, host: str) -> None:
    read = options(ssh_config_files.write_ssh_config(ssh_access()), host)
    known = str(home / "config/headway/ssh/lab.known_hosts")
    assert (read["user"], read["stricthostkeychecking"], read["userknownhostsfile"]) == ("alice", "true", known)
    if host in ("lab", "lab-head"):
        assert (read["hostname"], read["hostkeyalias"]) == ("10.87.3.2", "lab-head")
        assert "proxyjump" not in read
    else:
        assert (read["hostname"], read["proxyjump"]) == (host, "lab-head")
    assert f"lab-head {HOST_KEY}" in Path(known).read_text()


def options(config: Path, host: str) -> dict[str, str]:
    """What OpenSSH makes of the config for this host."""
    completed = subprocess.run(
        ["ssh", "-G", "-F", str(config), host], capture_output=True, text=True, check=True
    ).stdout
    return dict(line.split(" ", 1) for line in completed.splitlines() if " " in line)


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH's client")
def test_ssh_config_offers_headway_key_and_personal_keys(home: Path) -> None:
    """Who made a key after Headway had made its own: clusters applied from then on know that one."""
    for name in (".ssh/id_ed25519", ".ssh/id_rsa"):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text("")
    assert "IdentityFile" not in ssh_config_files.config_text(ssh_access()), "ssh has its own order"
    own = home / "config/headway/id_ed25519"
    own.parent.mkdir(parents=True)
    own.write_text("")
    config = ssh_config_files.write_ssh_config(ssh_access())
    for host in ("lab", "lab-1-7"):
        completed = subprocess.run(
            ["ssh", "-G", "-F", str(config), host], capture_output=True, text=True, check=True
        ).stdout
        named = [line.split(" ", 1)[1] for line in completed.splitlines() if line.startswith("identityfile ")]
        assert named == [str(own), str(home / ".ssh/id_ed25519"), str(home / ".ssh/id_rsa")]


def test_node_patterns_of_clusters_with_a_common_prefix_do_not_overlap(home: Path) -> None:
    for name in ("lab", "lab-x"):
        (patterns,) = ssh_config_files.node_patterns(ssh_access(name))
        assert [pattern for pattern in patterns if not pattern.startswith("!")] == [f"{name}-1-*", f"{name}-2-*"]


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH's client")
def test_ssh_config_reaches_the_second_head_without_proxyjump(home: Path) -> None:
    machines = ssh_access().machines | {"lab-head2": "10.87.3.3", "lab-gpu-1-1": "10.87.3.13"}
    config = ssh_config_files.write_ssh_config(ssh_access(machines=machines, ports={"lab-head2": 2222}))
    for host, address, port in (("lab-head", "10.87.3.2", "22"), ("lab-head2", "10.87.3.3", "2222")):
        read = options(config, host)
        assert "proxyjump" not in read, "ssh would start itself for ever"
        assert (read["hostname"], read["port"], read["hostkeyalias"]) == (address, port, host)
    for node in ("lab-1-1", "lab-2-9", "lab-gpu-1-1"):
        assert options(config, node)["proxyjump"] == "lab-head"


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH's client")
def test_ssh_config_distinguishes_cluster_lab_from_lab_2(home: Path) -> None:
    first, second = ssh_access(), ssh_access("lab-2", address="10.87.4.2")
    for one, other in ((first, second), (second, first)):
        ssh_config_files.write_ssh_config(one)
        config = ssh_config_files.write_ssh_config(other)
        assert options(config, "lab-2-1")["proxyjump"] == "lab-head"
        assert options(config, "lab-2-1-1")["proxyjump"] == "lab-2-head"
        for host in ("lab-2", "lab-2-head"):
            assert "proxyjump" not in options(config, host)
            assert options(config, host)["hostname"] == "10.87.4.2"


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH's client")
def test_latest_written_ssh_config_wins_for_a_shared_machine_name(home: Path) -> None:
    first = ssh_access(machines={"lab-head": "10.87.3.2", "lab-gpu-1-1": "10.87.3.11"})
    second = ssh_access("lab-gpu", machines={"lab-gpu-head": "10.87.4.2", "lab-gpu-1-1": "10.87.4.11"})
    for one, other in ((first, second), (second, first)):
        ssh_config_files.write_ssh_config(one)
        assert options(ssh_config_files.write_ssh_config(other), "lab-gpu-1-1")["proxyjump"] == other.head


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
        ssh_config_files.config_text(ssh_access(**others))
