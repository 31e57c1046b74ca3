"""Computes the score of a node from its incidents. A node whose score is too high is flaky; the highest
score and the days that count are `health.flaky_nodes` of the cluster file (`clusterfile.models.health`). Pure."""

from __future__ import annotations

from collections.abc import Iterable

from headway.domain.cluster import Health
from headway.domain.incident import FaultAction, Incident, IncidentState
from headway.domain.slurm.nodes_and_jobs import FLAKY_NODES
from headway.health.policy.xid_verdicts import DAY_S

# The score that an incident adds to its node.
_SCORES = {
    FaultAction.RESET: 1,
    FaultAction.REBOOT: 1,
    FaultAction.DRAIN: 2,
    FaultAction.RMA: 3,
    FaultAction.HANDS_ON: 3,
}


def action_score(action: FaultAction) -> int:
    """Returns the score that an incident with this action adds to its node."""
    return _SCORES.get(action, 0)


def node_score(incidents: Iterable[Incident], health: Health, now: float) -> int:
    """Returns the sum of the scores of the node's incidents within `health.flaky_days`."""
    since = now - health.flaky_days * DAY_S
    return sum(
        incident.score
        for incident in incidents
        if incident.opened_at >= since and incident.state is not IncidentState.FALSE_ALARM
    )


def keep_out_reason(incidents: Iterable[Incident], health: Health, now: float) -> str:
    """Returns why the node is kept out of service, "" if it is not."""
    line = health.flaky_score * (2 if health.reserve_flaky_nodes else 1)
    return _score_reason(incidents, health, now, line)


def flaky_reason(incidents: Iterable[Incident], health: Health, now: float) -> str:
    """Returns why the flaky node is reserved for jobs that request it, "" if it runs any job. The score for keeping a
    node out of service is higher; see `keep_out_reason`."""
    why = _score_reason(incidents, health, now, health.flaky_score) if health.reserve_flaky_nodes else ""
    return why and f"for jobs in reservation {FLAKY_NODES} only: {why}"


def _score_reason(incidents: Iterable[Incident], health: Health, now: float, line: int) -> str:
    counted = node_score(incidents, health, now)
    return f"fails too often: score {counted} of {line} over {health.flaky_days} days" if counted >= line else ""
