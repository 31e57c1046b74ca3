"""A full disk of the host that all local machines share: one incident of the host, no drained node. It closes when the host has
space again."""

from __future__ import annotations

from headway.domain.incident import FaultAction, Incident, IncidentState, Symptom
from headway.health.context import HealthContext
from headway.health.policy.symptom_policy import Verdict, symptom_evidence

HOST = "host"  # stands for the node in these incidents
_FREE_MIB = 1000  # more than the agent's limits, so that the incident does not open and close in turn


async def handle_full_host_disk(context: HealthContext, symptom: Symptom, verdict: Verdict) -> list[tuple[str, str]]:
    """Opens the incident of the host. Returns its message, [] if the incident is open already: every node reports the disk."""
    store, name = context.cluster_context.store, context.cluster.name
    await store.symptoms.add(name, symptom)
    found = await store.incidents.search(name, node=HOST, unfinished=True)
    if any(incident.action is FaultAction.HOST for incident in found):
        return []
    await store.incidents.open(
        name, HOST, verdict.why, FaultAction.HOST, symptom.at, symptom_evidence(symptom), score=0
    )
    return [(HOST, verdict.why)]


async def close_if_space(context: HealthContext, incident: Incident) -> Incident:
    """Closes the incident when the head, which is on the same disk, has space again. Returns the incident."""
    argv = ["df", "--output=avail", "--block-size=1M", "/"]
    ran = await context.cluster_context.connections.remote(await context.head(), argv, timeout_s=10)
    free_mib = int(ran.stdout.split()[-1])
    if free_mib < _FREE_MIB:
        return incident
    return await context.add_step(incident, IncidentState.RETURNED, f"the host's disk has {free_mib} MiB free again")
