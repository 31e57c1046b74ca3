"""A server and the cloud that it rents from, for tests on real cluster machines."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.lab import Lab
from tests.cluster.providers.cloud_machines import CloudMachines
from tests.support.cloud.ec2_stand_in import Ec2StandIn, aws_environment

APPLY_S = 2400
PRICES = {"m5.16xlarge": "3.68", "m5.xlarge": "0.23", "m5.large": "0.115"}
# Of this size the test machines really are, which matters where Slurm knows a node by its plan.
SMALL_PLAN = "small: {cpus: 2, memory_mib: 2048, price_usd_per_node_hour: 0.115}\n"


class RentedCluster:
    """A server, and the cloud that it rents from. `groups`: the groups of nodes, as YAML in one line."""

    def __init__(self, folder: Path, ec2: Ec2StandIn, name: str, groups: str, types: str) -> None:
        self.ec2 = ec2
        self.machines = CloudMachines(folder / "cloud", ec2)
        self.lab = Lab(folder / "state", name=name)
        self.lab.env.update(aws_environment(ec2.url))
        config = self.lab.state / "home" / ".config" / "headway"
        config.mkdir(parents=True)
        (config / "catalogue.yaml").write_text(SMALL_PLAN)
        self.file = self.machines.spec(name, groups, types, "cost: {usd_per_hour: 100}\n")

    def names(self) -> list[str]:
        """Returns the names of the machines that cost money: those of launches that Headway asked for, by their tags."""
        found = []
        for one in self.ec2.living():
            tags = {tag["Key"]: tag["Value"] for tag in one["Tags"]}
            if "headway:machine" in tags:
                found.append(self.machines.machine_of(one))
        return sorted(found)

    def wait(self, what: str, ask: Callable[[], bool], timeout_s: float = 1200) -> None:
        ends = time.monotonic() + timeout_s
        while not ask():
            assert time.monotonic() < ends, what
            time.sleep(1)

    def instance(self, machine: str) -> str:
        return str(self.machines.instance_of(machine)["InstanceId"])

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
def rented_cluster(folder: Path, name: str, groups: str, types: str) -> Iterator[RentedCluster]:
    """Gives a test a server without a cluster, and ends everything afterwards."""
    if os.geteuid() != 0 or shutil.which("podman") is None:
        pytest.fail("this test makes real machines: run it as root after `make setup`")
    with Ec2StandIn(prices=dict(PRICES)) as ec2:
        made = RentedCluster(folder, ec2, name, groups, types)
        try:
            yield made
        finally:
            made.close()
