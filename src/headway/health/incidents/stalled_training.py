"""Incidents of trainings that stall. Nothing is done to a node for one, because the cause may be the program; but a node whose
ranks are named again and again counts as flaky."""

from __future__ import annotations

from headway.domain.incident import FaultAction, IncidentState
from headway.health.jobs.rank_stacks import JobStacks
from headway.store.store import Store

SCORE = 1  # what one stall counts against the node of the ranks that are named
_RANKS = 256  # ranks whose places are kept
_NCCL = 4000  # characters of NCCL's report that are kept


async def record_stall(
    store: Store, cluster: str, job: int, stacks: JobStacks, named: dict[int, str], words: str, now: float
) -> int | None:
    """Records an incident with the stacks and NCCL's reports of a job that stalls, and closes it. It is of the node of the
    ranks in `named` (rank -> node) and counts against it; if they are on several nodes, or none is named, it is of the first
    of these nodes, or of the first rank's, and does not count. An open incident of the node gets the evidence instead.
    Returns the incident's number, None if there is no evidence. `words`: what is known of the stall."""
    nodes = list(dict.fromkeys(named.values())) or [stack.node for stack in stacks.stacks[:1]] or list(stacks.nccl)[:1]
    if not nodes:
        return None
    blamed, node = bool(named) and len(nodes) == 1, nodes[0]
    places = [f"rank {stack.rank} on {stack.node}: {stack.place}" for stack in stacks.stacks]
    evidence: dict[str, object] = {"at": now, "job": job, "ranks": places[:_RANKS]}
    if stacks.nccl:
        evidence["nccl"] = {name: text[:_NCCL] for name, text in stacks.nccl.items()}
    words = f"job {job} stalls: {words}"
    unfinished = await store.incidents.search(cluster, node=node, unfinished=True)
    if unfinished:
        await store.incidents.add_step(unfinished[0], unfinished[0].state, words, evidence=evidence)
        return unfinished[0].number
    what = f"job {job} waits for rank {', '.join(map(str, sorted(named)))}" if blamed else f"job {job} stalls"
    score = SCORE if blamed else 0
    incident = await store.incidents.open(cluster, node, what, FaultAction.WATCH, now, evidence, score=score)
    counts = f"this counts {SCORE} against it" if blamed else "this does not count against it"
    await store.incidents.add_step(
        incident, IncidentState.RETURNED, f"{words}; the node stays in service, and {counts}"
    )
    return incident.number
