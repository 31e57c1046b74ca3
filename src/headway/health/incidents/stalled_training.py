"""Incidents of nodes on which a rank holds a stalled training back. Nothing is done to such a node, because the cause may be
the program; but a node that is named again and again counts as flaky."""

from __future__ import annotations

from headway.domain.incident import FaultAction, IncidentState
from headway.health.jobs.rank_stacks import JobStacks
from headway.health.jobs.stall_stragglers import Stragglers
from headway.store.store import Store

SCORE = 1  # what one stall counts against the node
_RANKS = 256  # ranks whose places are kept
_NCCL = 4000  # characters of NCCL's report that are kept


async def record_straggler(
    store: Store, cluster: str, job: int, found: Stragglers, stacks: JobStacks, now: float
) -> None:
    """Records an incident of the node with the ranks that the others wait for, and closes it; does nothing if they are
    on several nodes. An open incident of the node gets the evidence instead."""
    if len(found.nodes) != 1:
        return
    (node,) = found.nodes
    places = [f"rank {stack.rank} on {stack.node}: {stack.place}" for stack in stacks.stacks]
    evidence: dict[str, object] = {"at": now, "job": job, "ranks": places[:_RANKS]}
    if stacks.nccl:
        evidence["nccl"] = {name: text[:_NCCL] for name, text in stacks.nccl.items()}
    words = f"job {job} hangs: {found.text()}"
    unfinished = await store.incidents.search(cluster, node=node, unfinished=True)
    if unfinished:
        await store.incidents.add_step(unfinished[0], unfinished[0].state, words, evidence=evidence)
        return
    what = f"job {job} waits for rank {', '.join(str(stack.rank) for stack in found.stacks)}"
    incident = await store.incidents.open(cluster, node, what, FaultAction.WATCH, now, evidence, score=SCORE)
    text = f"{words}; the node stays in service, and this counts {SCORE} against it"
    await store.incidents.add_step(incident, IncidentState.RETURNED, text)
