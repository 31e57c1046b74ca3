"""Decides which repair comes next, and when a repeated drain becomes an RMA. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headway.domain.cluster import Health
from headway.domain.incident import DRAINS, FaultAction, Incident, IncidentState, Repair
from headway.health.policy.flaky_score import action_score
from headway.health.policy.xid_verdicts import DAY_S, Verdict

WEEK_S = 7 * DAY_S
# mount: the wait for the volume is repeated. rma: one reboot first, because the cause may have been a loose contact.
# hands_on: no repair; a person must check the node first.
_LADDERS = {
    FaultAction.MOUNT: (Repair.MOUNT,),
    FaultAction.RESET: (Repair.RESET, Repair.REBOOT, Repair.REPLACE),
    FaultAction.DRAIN: (Repair.RESET, Repair.REBOOT, Repair.REPLACE),
    FaultAction.REBOOT: (Repair.REBOOT, Repair.REPLACE),
    FaultAction.RMA: (Repair.REBOOT, Repair.REPLACE),
}


def tried_repairs(incident: Incident) -> tuple[Repair, ...]:
    """Returns the repairs tried for this fault, in order."""
    begun = (step.evidence.get("try") for step in incident.current)
    return tuple(Repair(str(name)) for name in begun if name)


def next_repair(incident: Incident, health: Health, *, makes_machines: bool) -> Repair | None:
    """Returns the next repair, None when none is left. `makes_machines`: the provider can create a replacement."""
    done = tried_repairs(incident)
    if len(done) >= health.tries:
        return None
    for repair in _LADDERS.get(incident.action, ()):
        if (repair in done and repair is not Repair.MOUNT) or (repair is Repair.REPLACE and not makes_machines):
            continue
        if repair is Repair.RESET and incident.found("gpu") is None:  # the symptom names no GPU, so none can be reset
            continue
        return repair
    return None


def escalate_repeated_drain(verdict: Verdict, incidents: Iterable[Incident], now: float) -> Verdict:
    """Returns the verdict with a drain raised to an RMA if the node was already drained within a week. `incidents`:
    earlier incidents of the node."""
    if verdict.action is not FaultAction.DRAIN:
        return verdict
    again = [
        incident
        for incident in incidents
        if incident.score >= action_score(FaultAction.DRAIN)
        and incident.action in DRAINS
        and incident.state is not IncidentState.FALSE_ALARM
        and now - incident.opened_at <= WEEK_S
    ]
    if not again:
        return verdict
    why = f"{verdict.why} (again within a week: incident {again[0].number})"
    return replace(verdict, action=FaultAction.RMA, why=why)
