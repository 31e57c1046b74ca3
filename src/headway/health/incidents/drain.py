"""seen -> draining: Slurm starts no new job on the node. The machine of a dead node is fenced before Slurm sets the
node down."""

from __future__ import annotations

from headway.domain.incident import DRAINS, OUT_BEFORE, Incident, IncidentState, Repair
from headway.domain.machines.machine import MachineState
from headway.domain.slurm.node_reasons import SCALE_IN_REASON, is_headway_reason, reason_before_scale_in
from headway.domain.slurm.nodes_and_jobs import OUT
from headway.health.context import HealthContext
from headway.health.incidents.move_jobs import (
    ENDED_BADLY,
    ended_by_user,
    hold_completing,
    jobs_ended_by_fault,
    jobs_in_evidence,
    jobs_in_symptoms,
    raise_fault,
    requeue_jobs,
)
from headway.slurm import node_commands, node_jobs


async def isolate_node(context: HealthContext, incident: Incident) -> Incident:
    """Drains the node, or fences and sets down a dead one. An error that affects only one job just requeues that job.
    Returns the incident after the step."""
    if incident.action not in DRAINS:
        return await _requeue_only(context, incident)
    if incident.found("dead"):
        if await _was_restarted(context, incident):
            incident = await _drain(context, await _requeue_fenced_jobs(context, incident))
            words = "its machine was recreated or restarted in the meantime: tests begin"
            evidence = {"try": Repair.REBOOT.value, "tests": True}
            return await context.add_step(incident, IncidentState.TESTING, words, evidence=evidence)
        return await _set_down(context, await _fence(context, incident))
    return await _drain(context, incident)


async def _requeue_only(context: HealthContext, incident: Incident) -> Incident:
    """Requeues the jobs that the error ended and closes the incident. The error ended with the job's process, and the
    node stays in service."""
    there = await context.jobs_on(incident.node)
    due = jobs_in_symptoms(incident) & there | await jobs_ended_by_fault(
        context, incident, there
    )  # without jobs that already run again on other nodes
    due -= jobs_in_evidence(incident, "requeued") | await ended_by_user(context, incident.node, due)
    sent = await requeue_jobs(context, incident, due)
    await raise_fault(context, incident, sent)
    words = f"jobs requeued: {', '.join(map(str, sent.requeued)) or 'none'}; the node stays in service"
    return await context.add_step(incident, IncidentState.RETURNED, words, evidence={"requeued": sent.requeued})


async def _drain(context: HealthContext, incident: Incident) -> Incident:
    """Drains the node in Slurm, unless a person has drained it already. Returns the incident after the step."""
    states, reason = await context.node_state(incident.node)
    if states & OUT and not _reason_is_ours(reason):
        words = f"was drained already ({reason}): that drain stays"
        return await context.add_step(
            incident, IncidentState.DRAINING, words, drained=False, evidence={OUT_BEFORE: reason or True}
        )
    await node_commands.drain_node(
        context.cluster_context.connections, await context.head(), incident.node, drain_reason(incident, reason)
    )
    words = f"drained: incident {incident.number}"
    return await context.add_step(incident, IncidentState.DRAINING, words, drained=True)


async def _was_restarted(context: HealthContext, incident: Incident) -> bool:
    """Returns whether the dead node's machine was started or created again since the incident began, for example by an
    apply after the server that opened the incident was killed. The new machine has jobs of its own, so it must not be
    fenced. Jobs lost with the old machine are detected separately."""
    machine = (await context.machines()).get(incident.node)
    if machine is None or machine.state is not MachineState.RUNNING:
        return False
    stopped = bool(incident.found("fence") or incident.found("fenced")) and not incident.found("runs_again")
    return machine.started_at > incident.current[0].at or (
        stopped and context.cluster_context.provider.traits.powers_off_machines
    )


async def _requeue_fenced_jobs(context: HealthContext, incident: Incident) -> Incident:
    """Requeues the jobs that fencing ended before the fence was recorded as done."""
    had = jobs_in_evidence(incident, "had") - jobs_in_evidence(incident, "requeued")
    ended = [job for job in sorted(had) if await context.job_state(job) in ENDED_BADLY]
    if not ended:
        return incident
    sent = await requeue_jobs(context, incident, ended)
    await raise_fault(context, incident, sent)
    words = f"jobs requeued: {', '.join(map(str, sent.requeued)) or 'none'}"
    return await context.add_step(incident, IncidentState.SEEN, words, evidence={"requeued": sent.requeued})


async def _fence(context: HealthContext, incident: Incident) -> Incident:
    """Stops the machine before Slurm learns that the node is down, so that two runs of one job never write at the same
    time. Records the node's jobs before they disappear from it. Their batch hosts keep them completing: a batch script
    whose tasks are cut off fails before Slurm learns that the node is down."""
    if incident.found("fenced"):
        return incident
    if incident.found("had") is None:
        # Recorded first: a server that continues after a kill finds the jobs that the fence ended only here.
        hosts = await node_jobs.batch_hosts(context.cluster_context.connections, await context.head(), incident.node)
        noted = {"had": sorted(hosts), "held": await hold_completing(context, incident, hosts)}
        words = f"its jobs: {', '.join(map(str, sorted(hosts))) or 'none'}"
        incident = await context.add_step(incident, IncidentState.SEEN, words, evidence=noted)
    machine = (await context.machines()).get(incident.node)
    words = str(incident.found("fence") or "")
    if not words and machine is not None and machine.state is MachineState.RUNNING:
        await context.cluster_context.provider.fence(machine)
        words = "fenced, its machine is stopped"
    words = words or "its machine is stopped"
    words = f"no process writes there any more: {words}"
    return await context.add_step(incident, IncidentState.SEEN, words, evidence={"fenced": True})


async def _set_down(context: HealthContext, incident: Incident) -> Incident:
    """Sets the node down. Slurm requeues the jobs of a node that is down and starts them on other nodes."""
    node, head, run = incident.node, await context.head(), context.cluster_context.connections
    states, reason = await context.node_state(node)
    mine = not states & OUT or _reason_is_ours(reason)
    if mine or "DOWN" not in states:
        await node_commands.set_node_down(run, head, node, drain_reason(incident, reason) if mine else reason)
    words = "down; its jobs are requeued" if mine else f"down; it was out of service already ({reason})"
    evidence = {} if mine else {OUT_BEFORE: reason or True}
    return await context.add_step(incident, IncidentState.DRAINING, words, drained=mine, evidence=evidence)


def _reason_is_ours(reason: str) -> bool:
    """Returns whether Headway set the drain reason; for a node that is being scaled in, whether it set the reason
    before that."""
    before = reason_before_scale_in(reason) if reason.startswith(SCALE_IN_REASON) else reason
    return is_headway_reason(before) or (before == "" and reason != "")


def drain_reason(incident: Incident, before: str) -> str:
    """Returns the drain reason to set in Slurm. `before`: the current reason. A node that is being scaled in keeps the
    scale-in prefix, because its machine is removed in any case."""
    reason = incident.reasons[0]
    return f"{SCALE_IN_REASON}: {reason}" if before.startswith(SCALE_IN_REASON) else reason
