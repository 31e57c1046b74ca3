"""Limits of accounts and QOS as a reason to wait."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from headway.domain.jobs.job_qos import JobQos
from headway.domain.teams import Team, UserLimits
from tests.support.clusters.explained_jobs import (
    CLUSTER,
    RUNNING,
    pending,
    running,
    said,
    whole,
)


@pytest.mark.parametrize(
    ("reason", "fields", "expected"),
    [
        (
            "QOSGrpGRES",
            {"gpus": 16},
            "team vision holds 16 of 24 GPUs; this needs 16 GPUs: job 812 of alice ends in 14 min at the latest",
        ),
        (
            "QOSGrpGRES",
            {"gpus": 32, "node_count": 4},
            "never starts as it is: it requests 32 GPUs and team vision may hold 24",
        ),
        ("QOSGrpJobsLimit", {}, "team vision runs 2 of 2 jobs; job 812 of alice ends in 14 min at the latest"),
        (
            "QOSMaxJobsPerUserLimit",
            {"user": "carol"},
            "carol runs 1 job; job 815 of carol ends in 2 h 30 min at the latest",
        ),
        (
            "MaxJobsPerAccount",
            {"user": "sue", "account": "small"},
            "the budget of team small is spent (20,000 USD a month): it starts with the next month, "
            "or when the budget is raised",
        ),
        ("QOSMaxGRESPerUser", {"user": "carol", "account": "speech"}, "carol holds 0 GPUs"),
        (
            "AssocMaxJobsLimit",
            {"account": "speech", "user": "bob"},
            "bob runs 2 jobs; job 813 of bob ends in 60 min at the latest",
        ),
        (
            "QOSGrpGRESMinutes",
            {},
            "team vision has 100 GPU hours a week and too few of them left (it may run 2 h, 16 GPU hours). "
            "It starts with the next week; a shorter --time may fit now",
        ),
        (
            "QOSGrpGRESMinutes",
            {"gpus": 64},
            "never starts as it is: it may use 128 GPU hours and team vision has 100 a week; "
            "request a shorter --time or fewer GPUs",
        ),
        (
            "QOSGrpGRESMinutes",
            {"gpus": 512, "time_limit_s": 48 * 3600},
            "never starts as it is: it may use 24,576 GPU hours and team vision has 100 a week; "
            "request a shorter --time or fewer GPUs",
        ),
        (
            "QOSGrpGRESMinutes",
            {"time_limit_s": None},
            "never starts as it is: it has no time limit, and team vision has 100 GPU hours a week; "
            "cancel it and submit with --time",
        ),
        (
            "AssocMaxWallDurationPerJobLimit",
            {},
            "never starts as it is: cancel it and submit with a shorter --time, or have the limit changed",
        ),
        (
            "QOSMaxGRESMinutesPerJob",
            {},
            "never starts as it is: cancel it and submit with a shorter --time or fewer GPUs, or have the limit changed",
        ),
        (
            "QOSMaxCpuPerNode",
            {},
            "never starts as it is: cancel it and submit with fewer CPUs, or have the limit changed",
        ),
        ("QOSMinGRES", {}, "never starts as it is: cancel it and submit with more GPUs, or have the limit changed"),
    ],
)
def test_qos_and_association_limits_are_explained(reason: str, fields: dict[str, Any], expected: str) -> None:
    small = running(815, ("lab-1-4",), 9000, gpus=8, user="carol")
    assert said(pending(reason, **fields), jobs=(*RUNNING, small)) == expected


@pytest.mark.parametrize(
    ("reason", "fields", "expected"),
    [
        (
            "QOSMaxGRESPerUser",
            {"gpus": 8},
            "carol holds 8 of 12 GPUs; this needs 8 GPUs: job 815 of carol ends in 2 h 30 min at the latest",
        ),
        (
            "QOSMaxGRESPerUser",
            {"gpus": 16, "node_count": 2},
            "never starts as it is: it requests 16 GPUs and carol may hold 12",
        ),
        ("QOSMaxCpuPerUserLimit", {"cpus": 500}, "never starts as it is: it requests 500 CPUs and carol may hold 400"),
    ],
)
def test_limits_of_each_user_are_explained_with_their_numbers(
    reason: str, fields: dict[str, Any], expected: str
) -> None:
    holds = running(815, ("lab-1-4",), 9000, gpus=8, user="carol", account="quota")
    waits = pending(reason, user="carol", account="quota", **fields)
    assert said(waits, jobs=(*RUNNING, holds)) == expected


@pytest.mark.parametrize(
    ("reason", "fields", "expected"),
    [
        (
            "QOSMaxGRESPerUser",
            {"gpus": 2},
            "carol holds 4 of 4 GPUs in partition debug; this needs 2 GPUs: job 815 of carol ends in 2 h 30 min at the "
            "latest",
        ),
        (
            "QOSMaxGRESPerUser",
            {"gpus": 8},
            "never starts as it is: it requests 8 GPUs and carol may hold 4 in partition debug",
        ),
        (
            "QOSMaxJobsPerUserLimit",
            {},
            "carol runs 1 of 1 job in partition debug; job 815 of carol ends in 2 h 30 min at the latest",
        ),
        ("QOSMaxCpuPerUserLimit", {"cpus": 500}, "never starts as it is: it requests 500 CPUs and carol may hold 400"),
    ],
)
def test_limits_of_a_partition_replace_those_of_the_team(reason: str, fields: dict[str, Any], expected: str) -> None:
    train, debug = CLUSTER.partitions
    limited = replace(debug, per_user=UserLimits(running_jobs=1, gpus=4))
    elsewhere = running(816, ("lab-2-4",), 60, gpus=8, user="carol", account="quota")
    here = running(815, ("lab-1-4",), 9000, gpus=4, user="carol", account="quota", partition="debug")
    waits = pending(reason, user="carol", account="quota", partition="debug", **fields)
    limits = replace(CLUSTER, partitions=(train, limited))
    assert said(waits, jobs=(*RUNNING, elsewhere, here), cluster=limits) == expected


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (
            "QOSGrpGRES",
            "QOS high holds 8 of 8 GPUs; this needs 4 GPUs: job 815 of dave ends in 2 h 30 min at the latest",
        ),
        ("QOSMaxGRESPerUser", "never starts as it is: it requests 4 GPUs and carol may hold 2 with --qos high"),
        ("QOSGrpJobsLimit", "QOS high runs 1 of 5 jobs; it should start in the next scheduling cycle"),
    ],
)
def test_limits_of_a_qos_count_its_jobs_of_all_teams(reason: str, expected: str) -> None:
    high = JobQos("high", ("quota", "vision"), running_jobs=5, resources={"gpus": 8}, per_user=UserLimits(gpus=2))
    here = running(815, ("lab-1-4",), 9000, gpus=8, user="dave", account="vision", qos="high")
    waits = pending(reason, user="carol", account="quota", qos="high", gpus=4)
    assert said(waits, jobs=(*RUNNING, here), cluster=replace(CLUSTER, qos=(high,))) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"gpus": 8},
            "dave may use 50 recent GPU hours in team quota and has too few left (it may use 16 GPU hours). Use fades from "
            "day to day; a shorter --time may fit now",
        ),
        (
            {"gpus": 32},
            "never starts as it is: it may use 64 GPU hours and dave may use 50 recent GPU hours in team quota; request a "
            "shorter --time or fewer GPUs",
        ),
        (
            {"time_limit_s": None},
            "never starts as it is: it has no time limit, and dave may use 50 recent GPU hours in team quota; cancel it and "
            "submit with --time",
        ),
    ],
)
def test_limit_of_recent_gpu_hours_is_explained(fields: dict[str, Any], expected: str) -> None:
    teams = (Team("quota", ("dave",), 1, per_user=UserLimits(recent_gpu_hours=Decimal(50))),)
    waits = pending("AssocGrpGRESMinutes", user="dave", account="quota", **fields)
    assert said(waits, cluster=replace(CLUSTER, teams=teams)) == expected


def test_every_limit_reason_has_a_readable_text() -> None:
    words = {reason: whole(pending(reason)).reason for reason in ("QOSGrpGRES", "QOSMaxJobsPerUserLimit", "AssocGrpCpuLimit",
             "MaxJobsPerAccount", "AssocGrpGRESMinutes",
             "QOSMaxWallDurationPerJobLimit", "QOSGrpGRESRunMinutes", "QOSMinCpuNotSatisfied", "MaxGRESPerAccount",
             "AssocMaxCPUMinutesPerJobLimit", "QOSMaxMemoryPerJob")}  # fmt: skip
    assert words == {
        "QOSGrpGRES": "the team holds as many GPUs as the limit allows",
        "QOSMaxJobsPerUserLimit": "its user has as many jobs running as the limit allows",
        "MaxJobsPerAccount": "its team's budget is spent",
        "AssocGrpGRESMinutes": "its user has too few GPU hours left for this job",
        "AssocGrpCpuLimit": "the team, or its user in it, holds as many CPUs as the limit allows",
        "QOSMaxWallDurationPerJobLimit": "requests more time than a job may use",
        "QOSGrpGRESRunMinutes": "the team has too few GPU hours left for this job",
        "QOSMinCpuNotSatisfied": "requests fewer CPUs than the minimum for a job",
        "MaxGRESPerAccount": "the team holds as many GPUs as the limit allows",
        "AssocMaxCPUMinutesPerJobLimit": "requests more CPU hours than a job may use",
        "QOSMaxMemoryPerJob": "requests more memory than a job may use",
    }
