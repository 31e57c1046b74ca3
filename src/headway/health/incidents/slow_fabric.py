"""Incidents of nodes and links that a fabric test has named.

A slow node is drained, repaired and tested like one with another fault; its test with another node must reach the figure
that the fabric test expected. Headway can't repair a link between leaf switches: its incident stays open until a fabric
test finds the link sound or a person closes it, and no node is drained."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from headway.domain.fabric.fabric_results import FabricFinding, Suspect, SuspectKind
from headway.domain.incident import DRAINS, FaultAction, Incident, IncidentState
from headway.domain.slurm.nodes_and_jobs import OUT
from headway.health.context import HealthContext
from headway.health.policy import flaky_score, repair_ladder
from headway.health.policy.xid_verdicts import Verdict, more_severe

LEAST_GB_S = "least_gb_s"  # evidence: what an all-reduce with the node must reach before the node returns to service
_SIMULATED_SHARE = 0.5  # of the least figure: where GPUs are simulated, other load on the machine lowers all figures


async def record_findings(
    context: HealthContext,
    findings: Sequence[tuple[FabricFinding, Sequence[str]]],
    cancel: Callable[[Incident], Awaitable[None]],
) -> dict[Suspect, int]:
    """Opens an incident for each finding, or adds the finding to the open incident of its node or link. The second
    value of each is the evidence as sentences. `cancel`: cancels the running repair or test of an incident. Returns the
    number of the incident by suspect."""
    numbers = {}
    share = _SIMULATED_SHARE if context.cluster.simulated_gpus else 1.0
    for finding, how in findings:
        link = finding.suspect.kind is SuspectKind.LINK
        incident = await _open_incident(context, finding.suspect.name, link=link)
        evidence = {
            "measured": list(how),
            "expected_gb_s": round(finding.expected_gb_s, 4),
            LEAST_GB_S: round(finding.least_gb_s * share, 4),
        }
        words = "the fabric test names it: " + "; ".join(how)
        if incident is None:
            incident = await _open(context, finding, link=link)
            await context.add_step(incident, incident.state, words, evidence=evidence)
        elif link:
            await context.add_step(incident, incident.state, words, evidence=evidence)
        else:
            await _add_to_node(context, incident, words, evidence, cancel)
        numbers[finding.suspect] = incident.number
    return numbers


async def close_sound_links(context: HealthContext, sound: Collection[str]) -> None:
    """Closes the incidents of links that a fabric test has found sound. `sound`: names of links."""
    store = context.cluster_context.store.incidents
    for incident in await store.search(context.cluster.name, unfinished=True):
        if incident.action is FaultAction.LINK and incident.node in sound:
            await context.add_step(incident, IncidentState.RETURNED, "a fabric test finds it sound")


async def _open(context: HealthContext, finding: FabricFinding, *, link: bool) -> Incident:
    store, name, now = context.cluster_context.store.incidents, context.cluster.name, context.clock()
    verdict = Verdict(FaultAction.LINK if link else FaultAction.DRAIN, finding.what)
    if not link:
        history = await store.search(name, node=finding.suspect.name)
        verdict = repair_ladder.escalate_repeated_drain(verdict, history, now)
    score = flaky_score.action_score(verdict.action)
    evidence = {"at": now}
    return await store.open(name, finding.suspect.name, verdict.why, verdict.action, now, evidence, score=score)


async def _add_to_node(
    context: HealthContext,
    incident: Incident,
    words: str,
    evidence: Mapping[str, object],
    cancel: Callable[[Incident], Awaitable[None]],
) -> None:
    """Adds a finding to the open incident of a node. A lighter action becomes a drain; a node that is in service is
    drained again; running tests count as failed, because they began without the finding."""
    state, action = incident.state, more_severe(incident.action, FaultAction.DRAIN)
    in_service = incident.action is FaultAction.MOUNT or incident.action not in DRAINS
    if state is IncidentState.OUT:  # a person may have returned the node in Slurm directly
        in_service = not (await context.node_state(incident.node))[0] & OUT
    if in_service:
        state = IncidentState.SEEN
        await cancel(incident)
    score = max(incident.score, flaky_score.action_score(action))
    await context.add_step(incident, state, words, evidence={**evidence, "drains": True}, action=action, score=score)


async def _open_incident(context: HealthContext, name: str, *, link: bool) -> Incident | None:
    found = await context.cluster_context.store.incidents.search(context.cluster.name, node=name, unfinished=True)
    return next(
        (one for one in found if (one.action is FaultAction.LINK) is link and one.action is not FaultAction.MAKE), None
    )
