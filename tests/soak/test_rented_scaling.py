"""A group with `idle` and one that stays up, on rented machines with bodies: the machines of a job are launched together
when it waits, they are gone when they are idle, and a killed server leaves none."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests.cluster.providers.rented_cluster import APPLY_S, RentedCluster, rented_cluster

pytestmark = pytest.mark.soak
HEAD, OWN = "burst-head", "burst-own-1-1"
PAIR = ["burst-more-1-1", "burst-more-1-2"]


@pytest.fixture(scope="module")
def rented(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RentedCluster]:
    groups = "{own: {plan: small, nodes: 1}, more: {plan: small, max: 3, idle: 1}}"
    with rented_cluster(tmp_path_factory.mktemp("burst"), "burst", groups, "{small: [m5.large, m5.xlarge]}") as made:
        made.lab.cli("apply", str(made.file), "--yes", timeout_s=APPLY_S)
        yield made


def launches(rented: RentedCluster, machines: int) -> list[dict[str, str]]:
    return [call for call in rented.ec2.calls("RunInstances") if call["MinCount"] == str(machines)]


def state(rented: RentedCluster, job: int) -> str:
    return rented.lab.head("squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T", check=False).out.strip()


def test_only_the_group_that_stays_is_rented_at_first(rented: RentedCluster) -> None:
    assert rented.names() == [HEAD, OWN]
    assert rented.lab.head("srun", "-N1", "hostname").out.split() == [OWN]
    assert "nothing to change" in rented.lab.cli("apply", str(rented.file), "--yes").out


def test_machines_of_a_job_are_launched_together_and_gone_when_idle(rented: RentedCluster) -> None:
    """The first type can't be had: both are of the second one, and the incident says so."""
    lab = rented.lab
    rented.ec2.refuse("RunInstances", "InsufficientInstanceCapacity", times=3, InstanceType="m5.large", MinCount="2")
    job = lab.sbatch("root", "-N2", "-C", "more", "-o", "/scratch/job.out", wrap="srun hostname")
    rented.wait("the job does not end", lambda: state(rented, job) not in ("PENDING", "CONFIGURING", "RUNNING"))
    assert sorted(lab.head("cat", "/scratch/job.out").out.split()) == PAIR
    assert [call["InstanceType"] for call in launches(rented, 2)] == ["m5.large"] * 3 + ["m5.xlarge"]
    seen = json.loads(lab.cli("incidents", "-o", "json").out)
    assert "has no m5.large now: the next offer is tried" in json.dumps(seen)
    assert rented.names() == [HEAD, *PAIR, OWN]
    rented.wait("idle machines stay", lambda: rented.names() == [HEAD, OWN], timeout_s=600)
    rented.wait("their bodies stay", lambda: len(rented.machines.made) == 2)
    things = lab.cli("cloud", "ls", "-o", "json").json()["things"]
    assert {row["machine"] for row in things if row["kind"] == "instance"} == {HEAD, OWN}
    assert lab.head("srun", "-w", OWN, "hostname").out.split() == [OWN]


def test_killed_server_leaves_no_machine_that_no_job_needs(rented: RentedCluster) -> None:
    """It is killed right after the launch, and the job is cancelled while it is away."""
    lab, before = rented.lab, len(launches(rented, 2))
    job = lab.sbatch("root", "-N2", "-C", "more", wrap="srun hostname")
    rented.wait("nothing is launched", lambda: len(launches(rented, 2)) > before)
    os.kill(int((lab.state / "server.pid").read_text().split()[0]), signal.SIGKILL)
    lab.forget_client()
    rented.machines.inside(rented.instance(HEAD), "scancel", str(job))
    lab.cli("server", "start")
    rented.wait("machines stay", lambda: rented.names() == [HEAD, OWN], timeout_s=900)
    lab.head("sinfo")
    job = lab.sbatch("root", "-N1", "-C", "more", "-o", "/scratch/one.out", wrap="srun hostname")
    rented.wait("no job gets a machine again", lambda: state(rented, job) == "COMPLETED")
    assert len(lab.head("cat", "/scratch/one.out").out.split()) == 1


def test_down_leaves_nothing(rented: RentedCluster) -> None:
    rented.lab.cli("down", "burst", "--yes", "--delete-data", timeout_s=300)
    assert rented.ec2.living() == []
    assert rented.machines.made == set()
    assert rented.lab.cli("cloud", "ls").out.startswith("nothing is rented\n")
