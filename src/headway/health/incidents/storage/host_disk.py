"""A full disk of the host that all local machines share: one incident of the host, no drained node. It closes when the host has
space again."""

from __future__ import annotations

from headway.domain.incident import FaultAction, Incident, IncidentState, Symptom
from headway.health.context import HealthContext
from headway.health.policy.xid_verdicts import Verdict, symptom_evidence

HOST = "host"  # stands for the node in these incidents
# What the agents check (node/agent/checks/disk_checks.py), with more room, so that the incident does not open and close in turn.
FREE_MIB = {"/": 1000, "/var/lib/headway": 1000, "/tmp": 400}
FREE_INODES = 2000


async def handle_full_host_disk(context: HealthContext, symptom: Symptom, verdict: Verdict) -> list[tuple[str, str]]:
    """Opens the incident of the host. Returns its message, [] if the incident is open already: every node reports the disk."""
    store, name = context.cluster_context.store, context.cluster.name
    await store.symptoms.add(name, symptom)
    found = await store.incidents.search(name, node=HOST, unfinished=True)
    if any(incident.action is FaultAction.HOST_DISK for incident in found):
        return []
    await store.incidents.open(
        name, HOST, verdict.why, FaultAction.HOST_DISK, symptom.at, symptom_evidence(symptom), score=0
    )
    return [(HOST, verdict.why)]


async def close_if_space(context: HealthContext, incident: Incident) -> Incident:
    """Closes the incident when the head, which is on the same disks, has space and inodes again. Returns the incident."""
    argv = ["df", "--output=file,fstype,avail,itotal,iavail", "--block-size=1M", *FREE_MIB]
    ran = await context.cluster_context.connections.remote(await context.head(), argv, timeout_s=10)
    rows = [line.split() for line in ran.stdout.splitlines()[1:]]
    on_disk = [row for row in rows if row[1] != "tmpfs"]
    if not all(_has_room(*row) for row in on_disk):
        return incident
    free_mib = min(int(row[2]) for row in on_disk)
    return await context.add_step(incident, IncidentState.RETURNED, f"the host's disk has {free_mib} MiB free again")


def _has_room(place: str, _: str, free_mib: str, inodes: str, free_inodes: str) -> bool:
    """Returns whether a folder has space and inodes, as `df` says. Some file systems have no fixed number of inodes."""
    return int(free_mib) >= FREE_MIB[place] and (inodes in ("0", "-") or int(free_inodes) >= FREE_INODES)
