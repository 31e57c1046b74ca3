"""A server and the OpenStack cloud that it rents from, for tests on real cluster machines."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.lab import Lab
from tests.cluster.providers.machine_bodies import MachineBodies
from tests.support.cloud.openstack_stand_in import (
    REGION,
    ZONES,
    OpenStackStandIn,
    openstack_environment,
    openstack_stand_in,
)

from headway.providers.cloud.openstack.servers import read_server

APPLY_S = 2400


class OpenStackCluster:
    """A server, and the stand-in whose servers are bare Debian machines."""

    def __init__(self, folder: Path, nova: OpenStackStandIn, name: str) -> None:
        self.nova = nova
        self.machines = MachineBodies(folder / "cloud", nova)
        network = nova.neutron.add("networks", {"name": "lab", "router:external": False})
        subnet = nova.neutron.add(
            "subnets", {"name": "lab", "network_id": network["id"], "cidr": self.machines.bare.subnet}
        )
        self.lab = Lab(folder / "state", name=name)
        self.lab.env.update(openstack_environment(nova.url))
        self.file = folder / f"{name}.yaml"
        self.file.write_text(
            f"name: {name}\nprovider: openstack\nimage: debian13\n"
            "groups: {own: {plan: cpu-64, nodes: 2}}\n"
            f"cloud: {{region: {REGION}, zones: [{', '.join(ZONES)}], subnets: [{subnet['id']}], public_addresses: false, "
            "types: {cpu-64: [cpu.64]}, head_types: [head.4, small.2]}\n"
        )

    def instances(self) -> dict[str, str]:
        """Returns the ids of the servers by the names of their machines."""
        return {read_server(row).claim.machine: row["id"] for row in self.nova.living()}

    def wait(self, what: str, ask: Callable[[], bool], timeout_s: float = 1200) -> None:
        ends = time.monotonic() + timeout_s
        while not ask():
            assert time.monotonic() < ends, what
            time.sleep(1)

    def plan(self) -> str:
        """Returns the words of a plan, whatever the lines that they were wrapped to."""
        done = self.lab.cli("plan", str(self.file), check=False)
        return " ".join((done.out + done.err).split())

    def close(self) -> None:
        try:
            self.lab.cli("down", self.lab.name, "--yes", "--delete-data", check=False, timeout_s=300)
        finally:
            self.lab.cli("server", "stop", check=False)
            self.machines.close()


@contextmanager
def openstack_cluster(folder: Path, name: str) -> Iterator[OpenStackCluster]:
    """Gives a test a server without a cluster, and ends everything afterwards."""
    if os.geteuid() != 0 or shutil.which("podman") is None:
        pytest.fail("this test makes real machines: run it as root after `make setup`")
    with openstack_stand_in() as nova:
        made = OpenStackCluster(folder, nova, name)
        try:
            yield made
        finally:
            made.close()
