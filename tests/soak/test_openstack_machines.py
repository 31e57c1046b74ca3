"""A cluster on machines of OpenStack: a stand-in answers as Keystone, Nova and Neutron, and each of its servers has the body of a
bare Debian machine that boots by cloud-init. An answer is lost, a flavor has no host, the server is killed, a machine is deleted
in the dashboard, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cluster.providers.openstack_cluster import APPLY_S, OpenStackCluster, openstack_cluster

pytestmark = pytest.mark.soak
HEAD, ONE, TWO = "stack-head", "stack-own-1-1", "stack-own-1-2"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenStackCluster]:
    with openstack_cluster(tmp_path_factory.mktemp("stack"), "stack") as made:
        yield made


def test_plan_says_what_would_be_rented_and_which_quota_is_too_small(stack: OpenStackCluster) -> None:
    stack.lab.cli("server", "start")
    stack.nova.cores = 100
    said = stack.plan()
    assert "stack-own-1-[1-2]: 2 x cpu.64 in az-a, on-demand, 2.56 USD an hour each (price of the plan" in said
    assert "if it can't be had: cpu.64 in az-b" in said
    assert "the quota cores is 100 vCPUs, 0 are used and 132 more are needed" in said
    stack.nova.cores = -1
    assert stack.nova.living() == []


def test_next_apply_finishes_one_whose_server_was_killed_in_the_middle_of_a_launch(stack: OpenStackCluster) -> None:
    stack.nova.full.add(("head.4", "az-a"))
    stack.nova.losing["POST", "servers"] = 2
    argv = [sys.executable, "-m", "headway", "apply", str(stack.file), "--yes"]
    began = subprocess.Popen(argv, env=stack.lab.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        stack.wait("nothing was launched", lambda: bool(stack.machines.made))
        os.kill(int((stack.lab.state / "server.pid").read_text().split()[0]), signal.SIGKILL)
    finally:
        began.kill()
        began.wait()
    stack.lab.forget_client()
    done = stack.lab.cli("apply", str(stack.file), "--yes", timeout_s=APPLY_S)
    assert "stack is ready" in done.out
    assert set(stack.instances()) == {HEAD, ONE, TWO}
    assert len(stack.nova.living()) == 3
    assert stack.nova.servers[stack.instances()[HEAD]]["OS-EXT-AZ:availability_zone"] == "az-b"
    assert sorted(stack.lab.head("srun", "-N2", "hostname").out.split()) == [ONE, TWO]
    assert "nothing to change" in stack.lab.cli("apply", str(stack.file), "--yes").out


def test_what_costs_money_is_listed(stack: OpenStackCluster) -> None:
    rows = stack.lab.cli("cloud", "ls", "-o", "json").json()
    there = {(row["kind"], row["machine"], row["description"]) for row in rows["things"]}
    assert there >= {("instance", HEAD, "head.4"), ("instance", ONE, "cpu.64"), ("volume", ONE, "64 GiB")}


def test_server_of_an_unknown_launch_is_ended_and_one_of_a_person_is_left_alone(stack: OpenStackCluster) -> None:
    row = stack.nova.servers[stack.instances()[ONE]]
    labels = {**row["metadata"], "headway:try": "99", "headway:launch": "lost"}
    stack.nova.servers |= {
        "lost": {**row, "id": "lost", "metadata": labels},
        "mine": {**row, "id": "mine", "metadata": {}},
    }
    stack.wait("it is not ended", lambda: "lost" not in stack.nova.servers)
    assert stack.nova.servers.pop("mine")
    assert "instance lost" in stack.lab.cli("incidents", "-o", "json").out
    assert set(stack.instances()) == {HEAD, ONE, TWO}


def test_machine_deleted_in_the_dashboard_is_rented_again(stack: OpenStackCluster) -> None:
    gone = stack.instances()[ONE]
    stack.nova.delete(gone)
    stack.wait("the plan does not notice it", lambda: "machine.create" in stack.plan())
    stack.lab.cli("apply", str(stack.file), "--yes", timeout_s=APPLY_S)
    assert stack.instances()[ONE] != gone
    stack.wait(
        "the new node gets no job",
        lambda: stack.lab.head("srun", "-w", ONE, "--immediate=20", "hostname", check=False).out.split() == [ONE],
    )


def test_down_leaves_nothing(stack: OpenStackCluster) -> None:
    stack.lab.cli("down", "stack", "--yes", "--delete-data", timeout_s=300)
    left = {kind: [row["name"] for row in rows.values()] for kind, rows in stack.nova.neutron.rows.items() if rows}
    assert (stack.nova.servers, stack.nova.volumes) == ({}, {})
    assert left == {"networks": ["public", "lab"], "subnets": ["lab"]}, "they are not Headway's"
    assert stack.machines.made == set()
    assert stack.nova.unknown == []
