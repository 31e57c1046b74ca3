"""Handles a machine that its provider reclaims: its jobs are moved before that, and another machine replaces it.

    seen ──────────► draining ──────────────────► jobs moved ────────► repairing ─────────────► returned
     │ isolate_node    │ move_jobs_before_reclaim    │ delete_machine     │ wait_for_replacement

`headway.autoscale` creates the replacement, as it does for every machine of such a group."""

from __future__ import annotations

from headway.cluster.scaling.reclaim_notices import reclaim_notices
from headway.domain.incident import Incident, IncidentState
from headway.domain.machines.machine import MachineState
from headway.domain.slurm.node_reasons import INCIDENT_REASON, is_headway_reason
from headway.domain.slurm.nodes_and_jobs import OUT
from headway.health.context import HealthContext
from headway.health.incidents import machine_gone
from headway.health.incidents.move_jobs import ENDED_BADLY, move_jobs
from headway.slurm import node_commands

JOBS_END_BEFORE_S = 15.0  # seconds before the machine is reclaimed; a warned job may run until then
CUT_OFF_BEFORE_S = (
    # seconds before the machine is reclaimed; Slurm then ends what still runs, because it would wait minutes for a lost
    # node
    5.0
)


async def move_jobs_before_reclaim(context: HealthContext, incident: Incident) -> Incident:
    """Warns jobs that requested a signal and requeues all others at once. Jobs that may not be requeued run until the
    machine is reclaimed."""
    if incident.found("dead"):
        return await move_jobs(context, incident)
    machine = (await context.machines()).get(incident.node)
    runs = machine is not None and machine.state is MachineState.RUNNING
    if runs and context.clock() < reclaim_at(incident) - CUT_OFF_BEFORE_S:
        return await move_jobs(context, incident)
    return await _end_remaining_jobs(context, incident)


async def _end_remaining_jobs(context: HealthContext, incident: Incident) -> Incident:
    """Sets the node down when its time is over: Slurm ends the jobs that still run there and requeues those that may be
    requeued."""
    jobs = await context.jobs_on(incident.node)
    if not jobs:
        return await context.add_step(incident, IncidentState.JOBS_MOVED, "no job is left on the node")
    head, run = await context.head(), context.cluster_context.connections
    _, reason = await context.node_state(incident.node)
    await node_commands.set_node_down(run, head, incident.node, reason)
    states = {job: await context.job_state(job) for job in sorted(jobs)}
    ended = {*ENDED_BADLY, "COMPLETED", "CANCELLED", "COMPLETING", ""}
    moved = [job for job, state in states.items() if state not in ended]
    await context.cluster_context.store.incidents.record_requeued_jobs(incident.number, moved, context.clock())
    stay = [job for job in states if job not in moved]
    words = "its time has ended" + (f"; jobs requeued: {_list(moved)}" if moved else "")
    words += f"; ended: {_list(stay)}" if stay else ""
    evidence = {"requeued": moved, "stay": stay}
    return await context.add_step(incident, IncidentState.JOBS_MOVED, words, evidence=evidence)


async def delete_machine(context: HealthContext, incident: Incident) -> Incident:
    """Deletes the machine before its provider takes it, and releases its slot. A machine that was created since the
    notice is a new one and stays."""
    node, head, run = incident.node, await context.head(), context.cluster_context.connections
    machine = (await context.machines()).get(node)
    began = incident.found("started_at")
    the_one = machine is not None and machine.started_at <= (float(began) if isinstance(began, int | float) else 0.0)
    if machine is not None and the_one:
        await context.cluster_context.provider.delete(machine)
        await run.drop(node)
    states, reason = await context.node_state(node)
    if (machine is None or the_one) and states & OUT and is_headway_reason(reason):
        await machine_gone.release_slot(context, node)
    elif states & OUT and reason.startswith(INCIDENT_REASON):  # an apply has created and set up a new machine meanwhile
        await node_commands.resume_node(run, head, node)
    left_s = reclaim_at(incident) - context.clock()
    words = f"returned to the provider {left_s:.0f} s before the deadline" if the_one else "its machine is gone"
    # The drain ended with the machine: the next machine in the slot is set up and checked like any new one.
    return await context.add_step(incident, IncidentState.REPAIRING, words, drained=False)


async def wait_for_replacement(context: HealthContext, incident: Incident) -> Incident:
    """Closes the incident when the group has all its machines again."""
    group = context.cluster.group_of[incident.node]
    going = await reclaim_notices(context.cluster_context.provider, context.cluster)
    machines = await context.machines()
    there = [name for name in group.slots if name in machines and name not in going]
    if len(there) < group.min_machines:
        return incident
    new = [name for name in there if machines[name].started_at > incident.opened_at]
    states = await node_commands.read_node_reasons(context.cluster_context.connections, await context.head())
    if not all(node_commands.is_in_service(states.get(name, ("", ""))[0]) for name in new):
        return incident
    words = f"{', '.join(new)} replaced it" if new else "no replacement is needed now"
    return await context.add_step(incident, IncidentState.RETURNED, words)


def reclaim_at(incident: Incident) -> float:
    """Returns when the provider takes the machine, in unix seconds."""
    until = incident.found("until")
    return float(until) if isinstance(until, int | float) else 0.0


def _list(jobs: list[int]) -> str:
    return ", ".join(map(str, jobs))
