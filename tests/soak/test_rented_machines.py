"""A cluster on rented machines: moto answers as EC2, and each of its instances has the body of a bare Debian machine that
boots by cloud-init. Launches lose their answers, the server is killed, machines are taken back or ended, and nothing is
left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.cluster.providers.rented_cluster import APPLY_S, RentedCluster, rented_cluster

pytestmark = pytest.mark.soak
HEAD, NODE, SPOT = "rent-head", "rent-own-1-1", "rent-cheap-1-1"


@pytest.fixture(scope="module")
def rented(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RentedCluster]:
    groups = (
        "{own: {plan: cpu-64, nodes: 1, max: 2}, cheap: {plan: cpu-64, nodes: 1, spot: true, spot_fallback: on-demand}}"
    )
    with rented_cluster(tmp_path_factory.mktemp("rented"), "rent", groups, "{cpu-64: [m5.16xlarge]}") as made:
        yield made


def test_plan_says_what_would_be_rented_and_rents_nothing(rented: RentedCluster) -> None:
    rented.lab.cli("server", "start")
    rented.ec2.quotas["L-1216C47A"] = 32
    said = rented.plan()
    assert "rent-head: 1 x m5.xlarge in eu-central-1a, on-demand, 0.23 USD an hour each (price of 2026-11-01)" in said
    assert "if it can't be had: m5.large in eu-central-1a" in said
    assert "rent-cheap-1-1: 1 x m5.16xlarge in eu-central-1a, spot" in said
    assert "the quota Running On-Demand Standard instances is 32 vCPUs, 0 are used and 68 more are needed" in said
    rented.ec2.quotas.clear()
    assert rented.ec2.living() == []


def test_cost_limit_stops_before_a_launch(rented: RentedCluster) -> None:
    text = rented.file.read_text()
    rented.file.write_text(text.replace("usd_per_hour: 100", "usd_per_hour: 5.20"))
    try:
        assert "apply would stop: everything together would cost" in rented.plan()
    finally:
        rented.file.write_text(text)
    assert rented.ec2.living() == []


def test_next_apply_finishes_one_whose_server_was_killed_in_the_middle_of_a_launch(rented: RentedCluster) -> None:
    """Besides, answers of launches are lost, and the first type for the head can't be had."""
    rented.ec2.refuse("RunInstances", "InsufficientInstanceCapacity", times=9, InstanceType="m5.xlarge")
    rented.ec2.losing["RunInstances"] = 2
    argv = [sys.executable, "-m", "headway", "apply", str(rented.file), "--yes"]
    began = subprocess.Popen(argv, env=rented.lab.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        rented.wait("nothing was launched", lambda: bool(rented.ec2.living()))
        os.kill(int((rented.lab.state / "server.pid").read_text().split()[0]), signal.SIGKILL)
    finally:
        began.kill()
        began.wait()
    rented.lab.forget_client()
    done = rented.lab.cli("apply", str(rented.file), "--yes", timeout_s=APPLY_S)
    assert "rent is ready" in done.out
    assert rented.names() == [SPOT, HEAD, NODE]
    assert rented.machines.instance_of(HEAD)["InstanceType"] == "m5.large"
    assert sorted(rented.lab.head("srun", "-N2", "hostname").out.split()) == [SPOT, NODE]
    assert "nothing to change" in rented.lab.cli("apply", str(rented.file), "--yes").out


def test_host_key_of_the_user_data_is_replaced(rented: RentedCluster) -> None:
    one = rented.instance(NODE)
    data = (rented.machines.folder / "seeds" / one / "user-data").read_text()
    key = rented.machines.inside(one, "cat", "/etc/ssh/ssh_host_ed25519_key.pub").split()[1]
    assert "ed25519_private" in data
    assert key not in data


def test_what_costs_money_is_listed(rented: RentedCluster) -> None:
    rows = rented.lab.cli("cloud", "ls", "-o", "json").json()
    there = {(row["kind"], row["machine"], row["usd_per_hour"]) for row in rows["things"]}
    assert ("instance", HEAD, "0.115") in there
    assert ("instance", NODE, "3.68") in there
    assert ("volume", NODE, None) in there


def test_what_no_machine_claims_is_ended_and_untagged_things_are_left_alone(rented: RentedCluster) -> None:
    console = rented.ec2.client()
    claimed = rented.machines.instance_of(NODE)
    place = {"ImageId": rented.machines.image, "MinCount": 1, "MaxCount": 1, "InstanceType": "m5.large"}
    tags = [{"Key": tag["Key"], "Value": tag["Value"]} for tag in claimed["Tags"] if tag["Key"] != "headway:try"]
    bodies, rented.ec2.born = rented.ec2.born, None
    try:
        lost = console.run_instances(
            **place, ClientToken="lost",
            TagSpecifications=[{"ResourceType": "instance", "Tags": [*tags, {"Key": "headway:try", "Value": "99"}]}],
        )["Instances"][0]["InstanceId"]  # fmt: skip
        strange = console.run_instances(**place, ClientToken="strange")["Instances"][0]["InstanceId"]
    finally:
        rented.ec2.born = bodies
    rented.wait("it is not ended", lambda: lost not in {one["InstanceId"] for one in rented.ec2.living()})
    assert strange in {one["InstanceId"] for one in rented.ec2.living()}
    assert f"instance {lost}" in rented.lab.cli("incidents", "-o", "json").out
    console.terminate_instances(InstanceIds=[strange])
    assert rented.names() == [SPOT, HEAD, NODE]


def test_job_of_a_machine_that_is_taken_back_runs_on_its_successor(rented: RentedCluster) -> None:
    """No spot machine can be had any more, so the successor is one on demand."""
    lab, before = rented.lab, rented.instance(SPOT)
    job = lab.sbatch("root", "-w", SPOT, "-o", "/scratch/job.out", wrap="hostname; sleep 2000", script="")
    rented.wait(
        "the job does not start", lambda: lab.head("squeue", "-h", "-j", str(job), "-o", "%T").out.strip() == "RUNNING"
    )
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    rented.ec2.refuse(
        "RunInstances", "InsufficientInstanceCapacity", times=99, InstanceMarketOptions__MarketType="spot"
    )
    rented.ec2.notices[before] = at
    rented.wait(
        "the job is not requeued", lambda: lab.head("squeue", "-h", "-j", str(job), "-o", "%T").out.strip() != "RUNNING"
    )
    rented.ec2.client().terminate_instances(InstanceIds=[before])
    rented.wait("no other machine is rented", lambda: SPOT in rented.names() and rented.instance(SPOT) != before)
    rented.wait(
        "the job does not run again",
        lambda: lab.head("squeue", "-h", "-j", str(job), "-o", "%T %N").out.split() == ["RUNNING", SPOT],
    )
    lab.head("scancel", str(job))
    assert rented.machines.instance_of(SPOT).get("InstanceLifecycle") != "spot"
    assert "no spot machine was rented: on-demand is tried" in lab.cli("incidents", "-o", "json").out


def test_prices_come_with_the_machines_that_ran_there_and_were_taken_back(rented: RentedCluster) -> None:
    def pools() -> dict[str, tuple[str, int, int]]:
        rows = rented.lab.cli("cloud", "ls", "-o", "json").json()["prices"]
        mine = (row for row in rows if (row["instance_type"], row["zone"]) == ("m5.16xlarge", "eu-central-1a"))
        return {row["purchase"]: (row["usd_per_hour"], row["rented"], row["taken_back"]) for row in mine}

    rented.wait("the successor is not counted", lambda: "on-demand" in pools() and pools()["on-demand"][1] == 2)
    assert pools() == {"spot": ("1.472", 1, 1), "on-demand": ("3.68", 2, 0)}
    assert "TAKEN BACK" in rented.lab.cli("cloud", "ls", "--prices").out


def test_machine_ended_in_the_console_is_rented_again(rented: RentedCluster) -> None:
    gone = rented.instance(NODE)
    rented.ec2.client().terminate_instances(InstanceIds=[gone])
    rented.wait("the plan does not notice it", lambda: "machine.create" in rented.plan())
    rented.lab.cli("apply", str(rented.file), "--yes", timeout_s=APPLY_S)
    assert rented.names() == [SPOT, HEAD, NODE]
    assert rented.instance(NODE) != gone
    rented.wait(
        "the new node gets no job",
        lambda: rented.lab.head("srun", "-w", NODE, "--immediate=20", "hostname", check=False).out.split() == [NODE],
    )


def test_cluster_grows_and_shrinks(rented: RentedCluster) -> None:
    rented.lab.cli("scale", "rent", "own=2", "--yes", timeout_s=APPLY_S)
    assert rented.names() == [SPOT, HEAD, NODE, "rent-own-1-2"]
    assert len(rented.lab.head("srun", "-N3", "hostname").out.split()) == 3
    rented.lab.cli("scale", "rent", "own=1", "--yes", timeout_s=600)
    assert rented.names() == [SPOT, HEAD, NODE]


def test_down_leaves_nothing(rented: RentedCluster) -> None:
    refused = rented.lab.cli("down", "rent", "--yes", check=False)
    assert refused.code != 0
    assert "--delete-data" in refused.err
    assert rented.names() == [SPOT, HEAD, NODE]
    rented.lab.cli("down", "rent", "--yes", "--delete-data", timeout_s=300)
    assert rented.ec2.living() == []
    console = rented.ec2.client()
    assert console.describe_volumes()["Volumes"] == []
    filters = [{"Name": "tag-key", "Values": ["headway:cluster"]}]
    assert console.describe_security_groups(Filters=filters)["SecurityGroups"] == []
    assert rented.machines.made == set()
    assert rented.lab.cli("cloud", "ls").out.startswith("nothing is rented\n")
