"""The calls of `services.cluster_backend` that measure a cluster: usage, metrics, bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headway.cluster.monitoring.metric_queries import MetricQuery, MetricRow
from headway.domain.billing.ledger import CheckpointStats, JobRun, NodeSpan, Notification
from headway.domain.cluster import Cluster
from headway.domain.operation_progress import OperationWaits, ReportProgress
from headway.schemas.nodes.fabric_tests import FabricTestOut
from headway.schemas.whatif import WhatIfOut


class ClusterFabricTests(Protocol):
    """Measures the bandwidth between nodes."""

    async def test_fabric(
        self, cluster: Cluster, nodes: Sequence[str], report: ReportProgress, waits: OperationWaits
    ) -> FabricTestOut:
        """Measures these nodes, or all idle ones for (), and opens an incident for each node or link that is slow. Jobs
        do not wait: a node where one starts leaves the test. Ends early if another operation must run (`waits`). Raises
        Refused if fewer than two nodes can be measured."""
        ...


class ClusterWhatIf(Protocol):
    """Replays the queue of a cluster through slurmctld."""

    async def replay(
        self, cluster: Cluster, changed: Cluster | None, since: str, until: str, operation: str, report: ReportProgress
    ) -> WhatIfOut:
        """Returns the figures of the jobs between `since` and `until` (sacct's words) on the cluster and, unless None, on the
        changed one, from containers of this machine, named after the operation. Raises Refused if there are no jobs, or too
        many; CommandFailed or Unreachable if accounting, podman or a program in a container fails."""
        ...


class ClusterUsage(Protocol):
    """Reads usage from accounting and from progress reports, and holds the jobs of a team that is over its budget."""

    async def usage_runs(self, cluster: Cluster, since: int, until: int) -> tuple[JobRun, ...]:
        """Returns every run of every job between `since` and `until` (unix seconds). Raises CommandFailed or Unreachable
        if accounting or the head does not answer."""
        ...

    async def runs_of_jobs(self, cluster: Cluster, jobs: Sequence[int]) -> tuple[JobRun, ...]:
        """Returns every run of the jobs with these numbers that accounting knows. Raises as `usage_runs`."""
        ...

    async def node_events(self, cluster: Cluster, since: int) -> tuple[NodeSpan, ...]:
        """Returns the periods after `since` (unix seconds) in which nodes were down or drained. Raises as `usage_runs`."""
        ...

    async def restart_losses(self, cluster: Cluster) -> dict[int, tuple[tuple[float, float], ...]]:
        """Returns by job id, for jobs that report progress: (unix seconds of the last report before a restart, seconds
        of work that were repeated) of each restart."""
        ...

    async def checkpoint_stats(self, cluster: Cluster) -> dict[int, CheckpointStats]:
        """Returns checkpoint statistics by job id, for jobs that report their checkpoints."""
        ...

    async def hold_team_jobs(self, cluster: Cluster, team: str, *, on: bool) -> None:
        """Stops the team's jobs from starting (`on`) or allows it again. Running jobs continue."""
        ...


class ClusterMonitoring(Protocol):
    """Queries the cluster's Prometheus and sends through its Alertmanager."""

    async def query_metrics(
        self, cluster: Cluster, queries: Sequence[MetricQuery], start: float, end: float, step_s: int
    ) -> tuple[MetricRow, ...]:
        """Returns the results of the queries from `start` to `end` (unix seconds), one value per `step_s` seconds. Raises
        Unreachable if Prometheus does not answer."""
        ...

    async def send_alerts(self, cluster: Cluster, notifications: Sequence[Notification]) -> None:
        """Sends notifications to the cluster's Alertmanager, which passes them to its alert channels and suppresses
        repeated ones. Raises Unreachable if it does not answer."""
        ...
