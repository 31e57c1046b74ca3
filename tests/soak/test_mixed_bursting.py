"""A cluster of owned machines whose group `more` is rented, with bodies on both sides: a zone without capacity, and a server
that is killed while the cloud carries out its launch. The jobs complete, and nothing is left running."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests.cluster.providers.rented_cluster import APPLY_S, RentedCluster, rented_cluster
from tests.support.cloud.ec2_stand_in import REGION

pytestmark = pytest.mark.soak
HOSTS, OWN = (60, 61), "mixed-own-1-1"
PAIR = ["mixed-more-1-1", "mixed-more-1-2"]
GROUPS = "{own: {plan: small, nodes: 1}, more: {provider: aws, plan: small, max: 2, idle: 1}}"
TYPES = "{small: [m5.large]}"


class Mixed:
    """The cluster, with a subnet in each of two zones of the cloud."""

    def __init__(self, rented: RentedCluster) -> None:
        self.rented, self.lab, self.ec2 = rented, rented.lab, rented.ec2
        bare = rented.machines.bare
        bare.up(*HOSTS)
        prefix = bare.subnet.rsplit(".", 1)[0]
        console = self.ec2.client()
        vpc = console.create_vpc(CidrBlock=bare.subnet)["Vpc"]["VpcId"]
        self.subnets = [
            console.create_subnet(VpcId=vpc, CidrBlock=f"{prefix}.{start}/25", AvailabilityZone=f"{REGION}{zone}")[
                "Subnet"
            ]["SubnetId"]
            for zone, start in (("a", 0), ("b", 128))
        ]
        rows = "".join(f"  - {{address: {bare.address(number)}, key: {bare.key}}}\n" for number in HOSTS)
        where = f"region: {REGION}, subnets: [{', '.join(self.subnets)}], image: {rented.machines.image}"
        rented.file.write_text(
            f"name: mixed\nprovider: ssh\nimage: debian13\nhosts:\n{rows}groups: {GROUPS}\n"
            f"cloud: {{{where}, public_addresses: false, types: {TYPES}}}\ncost: {{usd_per_hour: 100}}\n"
        )

    def submit(self, output: str) -> int:
        """Submits a job that needs both rented machines."""
        return self.lab.sbatch("root", "-N2", "-C", "more", "-o", output, wrap="srun hostname")

    def ends(self, job: int) -> None:
        """Waits until the job has ended, and checks that it completed."""

        def state() -> str:
            return self.lab.head("squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T", check=False).out.strip()

        unended = ("", "PENDING", "CONFIGURING", "RUNNING", "COMPLETING")
        self.rented.wait("the job does not end", lambda: state() not in unended)
        assert state() == "COMPLETED"

    def launches(self) -> list[tuple[str, str, str]]:
        """Returns the launches that were asked for: (number of machines, zone, token)."""
        zones = dict(zip(self.subnets, "ab", strict=True))
        asked = self.ec2.calls("RunInstances")
        return [(one["MinCount"], zones[one["NetworkInterface.1.SubnetId"]], one["ClientToken"]) for one in asked]

    def wait_until_all_is_returned(self) -> None:
        """Waits until the machines are idle for long enough, and ended."""
        self.rented.wait("idle machines stay", lambda: self.ec2.living() == [], timeout_s=900)
        self.rented.wait("their bodies stay", lambda: self.rented.machines.made == set())
        assert self.lab.cli("cloud", "ls").out.startswith("nothing is rented\n")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    with rented_cluster(tmp_path_factory.mktemp("mixed"), "mixed", GROUPS, TYPES) as rented:
        made = Mixed(rented)
        rented.lab.cli("apply", str(rented.file), "--yes", timeout_s=APPLY_S)
        yield made


def test_owned_machines_alone_are_up_at_first(mixed: Mixed) -> None:
    assert mixed.ec2.calls("RunInstances") == []
    assert mixed.lab.head("srun", "-N1", "hostname").out.split() == [OWN]


def test_all_machines_of_a_job_are_in_the_next_zone_if_the_first_has_no_capacity(mixed: Mixed) -> None:
    empty = {"NetworkInterface__1__SubnetId": mixed.subnets[0]}
    mixed.ec2.refuse("RunInstances", "InsufficientInstanceCapacity", times=1000, **empty)
    job = mixed.submit("/scratch/zones.out")
    mixed.ends(job)
    assert sorted(mixed.lab.head("cat", "/scratch/zones.out").out.split()) == PAIR
    living = mixed.ec2.living()
    assert [one["Placement"]["AvailabilityZone"] for one in living] == [f"{REGION}b"] * 2
    assert {(count, zone) for count, zone, _ in mixed.launches()} == {("2", "a"), ("2", "b")}
    assert mixed.launches()[-1][1] == "b"
    seen = mixed.lab.cli("incidents", "-o", "json").json()
    assert f"{REGION}a has no m5.large now: the next offer is tried" in json.dumps(seen)
    mixed.wait_until_all_is_returned()


def test_job_completes_although_the_server_was_killed_in_mid_launch(mixed: Mixed) -> None:
    """It is killed when the cloud has carried out the launch and not answered yet: no record names the instances."""
    mixed.ec2.refusals.clear()
    boots, before = mixed.ec2.born, len(mixed.launches())
    assert boots is not None

    def kill_and_boot(instance: str, address: str, user_data: str) -> None:
        pid = mixed.lab.state / "server.pid"
        if mixed.ec2.born is kill_and_boot:
            mixed.ec2.born = boots
            os.kill(int(pid.read_text().split()[0]), signal.SIGKILL)
        boots(instance, address, user_data)

    mixed.ec2.born = kill_and_boot
    job = mixed.submit("/scratch/killed.out")
    mixed.rented.wait("nothing is launched", lambda: mixed.ec2.born is boots and len(mixed.ec2.living()) == 2)
    launched = {one["InstanceId"] for one in mixed.ec2.living()}
    mixed.lab.forget_client()
    mixed.lab.cli("server", "start")
    mixed.ends(job)
    assert sorted(mixed.lab.head("cat", "/scratch/killed.out").out.split()) == PAIR
    assert {one["InstanceId"] for one in mixed.ec2.living()} == launched
    assert len({token for _, _, token in mixed.launches()[before:]}) == 1
    mixed.wait_until_all_is_returned()


def test_down_leaves_nothing(mixed: Mixed) -> None:
    mixed.lab.cli("down", "mixed", "--yes", "--delete-data", timeout_s=300)
    assert mixed.ec2.living() == []
    for number in HOSTS:
        assert mixed.rented.machines.bare.inside(number, "pgrep", "slurm", check=False) == ""
