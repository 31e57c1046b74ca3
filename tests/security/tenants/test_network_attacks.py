"""Clusters on one host do not reach each other."""

from __future__ import annotations

import asyncio

import pytest

from headway.images.podman import Podman
from headway.images.recipe import current_tag
from headway.paths import instance_label
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


def end_a_container_with_an_isolated_network(lab: Lab) -> None:
    """Does what `down` of a third cluster does: netavark 1.4 then deletes rules that all isolated networks need."""
    podman, image = Podman(lab.state), current_tag(lab.image)
    name = f"headway-{instance_label(lab.state)}-third"
    limits = asyncio.run(podman.limits(image))
    lab.podman("network", "create", "--label", "headway=1", "--opt", "isolate=true", "--disable-dns", name)
    try:
        runtime = podman.base()[1:]
        argv = ("run", "--rm", "--privileged", "--label", "headway=1", "--network", name, *limits)
        lab.podman(*runtime, *argv, "--entrypoint", "true", image)
    finally:
        lab.podman("network", "rm", "--force", name)


def test_clusters_on_one_host_reach_no_ports_of_each_other(lab: Lab, other: Lab) -> None:
    file = lab.state / "other.yaml"
    file.write_text(OTHER)
    try:
        lab.cli("apply", str(file), "--yes", timeout_s=600)
        theirs = other.head("hostname", "-I").out.split()[0]
        own = lab.head("hostname", "-I").out.split()[0]
        assert lab.head("python3", "-c", _KNOCK, theirs, user="alice").out == ""
        end_a_container_with_an_isolated_network(lab)
        assert lab.head("python3", "-c", _KNOCK, theirs, user="alice").out == ""
        assert other.head("python3", "-c", _KNOCK, own, user="olga").out == ""
        assert f"{own} 22" in lab.head("python3", "-c", _KNOCK, own, user="alice").out
    finally:
        lab.cli("down", "other", "--yes", "--delete-data", check=False)
