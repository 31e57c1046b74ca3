"""What a cluster file's teams, users and limits become in Slurm."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from headway.changes.desired_accounts import desired_accounts
from headway.domain.jobs.job_qos import JobQos
from headway.domain.slurm.accounts import Qos
from headway.domain.teams import GpuHourCap, JobLimits, Team, UserLimits
from tests.support.clusters.builders import cluster


def test_team_caps_become_qos_limits() -> None:
    vision = Team("vision", ("alice", "bob"), 60, gpu_hours=GpuHourCap(Decimal(720), "month"), running_jobs=50)
    (speech_qos, vision_qos) = desired_accounts(cluster(teams=(vision, Team("speech", ("carol",), 40, gpus=12)))).qos
    assert vision_qos == Qos("vision", {"GrpJobs": "50", "GrpTRESMins": "gres/gpu=43200"}, ("NoDecay",))
    assert speech_qos == Qos("speech", {"GrpTRES": "gres/gpu=12"}, ("NoDecay",))


def test_limits_of_each_user_become_limits_of_the_teams_qos() -> None:
    team = Team("speech", ("carol",), 40, gpus=12, per_user=UserLimits(submitted_jobs=40, gpus=8, cpus=64))
    (qos,) = desired_accounts(cluster(teams=(team,))).qos
    assert qos.limits == {
        "GrpTRES": "gres/gpu=12",
        "MaxSubmitJobsPerUser": "40",
        "MaxTRESPerUser": "cpu=64,gres/gpu=8",
    }


def test_teams_have_limits_on_cpus_nodes_and_memory() -> None:
    team = Team(
        "speech", ("carol",), 40, cpus=640, nodes=10, memory_mib=4096, per_user=UserLimits(memory_mib=1024, nodes=2)
    )
    (qos,) = desired_accounts(cluster(teams=(team,))).qos
    assert qos.limits == {"GrpTRES": "cpu=640,mem=4096M,node=10", "MaxTRESPerUser": "mem=1024M,node=2"}


def test_limits_of_a_partition_are_those_of_its_qos() -> None:
    small = cluster()
    debug = replace(
        small.partitions[0], name="debug", limits=JobLimits(9, 90, {"gpus": 4, "memory_mib": 512}), per_job={"nodes": 2}
    )
    found = {qos.name: qos for qos in desired_accounts(replace(small, partitions=(debug,))).qos}
    assert found["partition.debug"].limits == {
        "GrpJobs": "9", "GrpSubmitJobs": "90", "GrpTRES": "gres/gpu=4,mem=512M", "MaxTRESPerJob": "node=2",
    }  # fmt: skip


def test_team_may_be_kept_to_qos_of_the_file() -> None:
    team = Team("speech", ("carol",), 40, gpus=12, default_qos="high", own_qos=False)
    accounts = desired_accounts(replace(cluster(teams=(team,)), qos=(JobQos("high", ("speech",)),)))
    assert accounts.account_qos == {"speech": ("high",)}
    assert accounts.accounts[0].limits == {"GrpTRES": "gres/gpu=12"}
