"""Clusters on one host do not reach each other."""

from __future__ import annotations

import pytest

from tests.cluster.lab import Lab

OTHER = "name: other\nprovider: local\nplan: cpu-64\nnodes: 1\nteams: {crew: {users: [olga]}}\n"
# Prints what it connects to. SSH, slurmctld, slurmd and slurmdbd.
_KNOCK = """\
import socket, sys
for address in sys.argv[1:]:
    for port in (22, 6817, 6818, 6819):
        try:
            socket.create_connection((address, port), timeout=1).close()
            print(address, port)
        except OSError:
            pass
"""


@pytest.fixture
def other(lab: Lab) -> Lab:
    """A second cluster of the same server, which its test creates."""
    return Lab(lab.state, name="other")


def test_clusters_on_one_host_reach_no_ports_of_each_other(lab: Lab, other: Lab) -> None:
    file = lab.state / "other.yaml"
    file.write_text(OTHER)
    try:
        lab.cli("apply", str(file), "--yes", timeout_s=600)
        theirs = other.head("hostname", "-I").out.split()[0]
        own = lab.head("hostname", "-I").out.split()[0]
        assert lab.head("python3", "-c", _KNOCK, theirs, user="alice").out == ""
        assert other.head("python3", "-c", _KNOCK, own, user="olga").out == ""
        assert f"{own} 22" in lab.head("python3", "-c", _KNOCK, own, user="alice").out
    finally:
        lab.cli("down", "other", "--yes", "--delete-data", check=False)
