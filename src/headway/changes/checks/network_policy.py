"""Owned machines whose kernel can't enforce the network policy of jobs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headway.domain.cluster import Cluster
from headway.domain.machines.machine import HostProblem
from headway.domain.machines.survey import Survey

_OLDEST = (5, 13)  # nftables know the cgroup of a socket since this Linux


def network_policy_problems(cluster: Cluster, survey: Survey) -> Iterator[HostProblem]:
    """Yields a problem that stops the apply if jobs are restricted and the machine's kernel is too old for that."""
    version = re.match(r"(\d+)\.(\d+)", survey.kernel)
    if not cluster.restricts_network or version is None or survey.machine in cluster.heads:
        return
    if (int(version[1]), int(version[2])) < _OLDEST:
        yield HostProblem(
            f"{survey.machine} ({survey.address}) has kernel {survey.kernel}, which can't restrict the network of a job",
            "boot Linux 5.13 or newer, or remove job_ports and internet from network and teams",
        )
