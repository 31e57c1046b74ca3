"""A node whose kernel can't restrict jobs stops an apply that would."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.changes.checks.network_policy import network_policy_problems
from headway.domain.cluster import Cluster
from headway.domain.network_policy import Network, NetworkPolicy
from tests.support.clusters import builders
from tests.unit.changes.checks.test_owned_machines import GOOD

LAB = builders.cluster(nodes=2, spares=0)
CLOSED = replace(LAB, network=Network(NetworkPolicy("user")))


@pytest.mark.parametrize(
    ("cluster", "machine", "kernel", "stops"),
    [
        (CLOSED, "lab-1-1", "5.4.0-200-generic", True),
        (CLOSED, "lab-1-1", "4.18.0-553.el8.x86_64", True),
        (CLOSED, "lab-1-1", "5.13.0", False),
        (CLOSED, "lab-1-1", "6.1.0-28-amd64", False),
        (CLOSED, "lab-head", "5.4.0-200-generic", False),
        (LAB, "lab-1-1", "5.4.0-200-generic", False),
    ],
)
def test_old_kernel_stops_an_apply_that_restricts_jobs(
    cluster: Cluster, machine: str, kernel: str, stops: bool
) -> None:
    survey = replace(GOOD, machine=machine, address="10.9.0.11", kernel=kernel)
    problems = list(network_policy_problems(cluster, survey))
    assert [problem.fatal for problem in problems] == [True] * stops
    assert all(kernel in problem.what for problem in problems)
