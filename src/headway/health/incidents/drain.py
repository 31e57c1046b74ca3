"""seen -> draining: no new job starts on the node; a dead one is fenced first and down then."""

from __future__ import annotations

from headway.domain.incident import DRAINS, OUT_BEFORE, Incident, IncidentState, Repair, own
from headway.domain.machine import MachineState
from headway.domain.slots import LEAVES, out_before
from headway.domain.slurm.state import OUT
from headway.health.context import Tools
from headway.health.incidents.requeue import ENDED_BADLY, died, given_up, hold, numbers, requeue, told, victims
from headway.slurm import commands


async def isolate(tools: Tools, incident: Incident) -> Incident:
    if incident.action not in DRAINS:
        return await _only_its_jobs(tools, incident)
    if incident.found("dead"):
        if await _lives_again(tools, incident):
            incident = await _drain(tools, await _jobs_of_before(tools, incident))
            words = "its machine was made or started again meanwhile: tests begin"
            evidence = {"try": Repair.REBOOT.value, "tests": True}
            return await tools.go(incident, IncidentState.TESTING, words, evidence=evidence)
        return await _down(tools, await _fence(tools, incident))
    return await _drain(tools, incident)


async def _only_its_jobs(tools: Tools, incident: Incident) -> Incident:
    """The error is over with the process that made it: the node stays in service."""
    there = await tools.jobs_on(incident.node)
    due = victims(incident) & there | await died(tools, incident, there)  # not one that runs again elsewhere
    due -= numbers(incident, "requeued") | await given_up(tools, incident.node, due)
    sent = await requeue(tools, incident, due)
    await told(tools, incident, sent)
    words = f"jobs requeued: {', '.join(map(str, sent.done)) or 'none'}; the node stays in service"
    return await tools.go(incident, IncidentState.RETURNED, words, evidence={"requeued": sent.done})


async def _drain(tools: Tools, incident: Incident) -> Incident:
    states, reason = await tools.node_now(incident.node)
    if states & OUT and not _ours(reason):
        words = f"was drained already ({reason}): that drain stays as it is"
        return await tools.go(
            incident, IncidentState.DRAINING, words, drained=False, evidence={OUT_BEFORE: reason or True}
        )
    await commands.node_drain(tools.env.connections, await tools.head(), incident.node, reason_of(incident, reason))
    words = f"drained: incident {incident.number}"
    return await tools.go(incident, IncidentState.DRAINING, words, drained=True)


async def _lives_again(tools: Tools, incident: Incident) -> bool:
    """The server that saw it dead may have been killed, and an apply been at work before the next one goes on: what runs
    there now is another life of the machine, with jobs of its own. That jobs of the one before are lost is seen by itself."""
    machine = (await tools.machines()).get(incident.node)
    if machine is None or machine.state is not MachineState.RUNNING:
        return False
    stopped = bool(incident.found("fence") or incident.found("fenced")) and not incident.found("runs_again")
    return machine.started_at > incident.current[0].at or (stopped and tools.env.provider.traits.powers_off_machines)


async def _jobs_of_before(tools: Tools, incident: Incident) -> Incident:
    """Those that the fence ended before it was noted as done."""
    had = numbers(incident, "had") - numbers(incident, "requeued")
    ended = [job for job in sorted(had) if await tools.job_word(job) in ENDED_BADLY]
    if not ended:
        return incident
    sent = await requeue(tools, incident, ended)
    await told(tools, incident, sent)
    words = f"jobs requeued: {', '.join(map(str, sent.done)) or 'none'}"
    return await tools.go(incident, IncidentState.SEEN, words, evidence={"requeued": sent.done})


async def _fence(tools: Tools, incident: Incident) -> Incident:
    """The machine does nothing any more before anybody is told that the node is down: two runs of one job never write
    at once. Which jobs it had is noted before they are gone from it, and they are kept completing where their scripts run:
    a script whose tasks are cut off fails before Slurm hears that the node is down."""
    if incident.found("fenced"):
        return incident
    if incident.found("had") is None:
        # Noted first: whoever goes on after a kill finds them ended by the fence, and nowhere else.
        hosts = await commands.batch_hosts(tools.env.connections, await tools.head(), incident.node)
        noted = {"had": sorted(hosts), "held": await hold(tools, incident, hosts)}
        words = f"its jobs: {', '.join(map(str, sorted(hosts))) or 'none'}"
        incident = await tools.go(incident, IncidentState.SEEN, words, evidence=noted)
    machine = (await tools.machines()).get(incident.node)
    words = str(incident.found("fence") or "")
    if not words and machine is not None and machine.state is MachineState.RUNNING:
        await tools.env.provider.fence(machine)
        words = "fenced, its machine is stopped"
    words = words or "its machine does not run"
    words = f"nothing writes there any more: {words}"
    return await tools.go(incident, IncidentState.SEEN, words, evidence={"fenced": True})


async def _down(tools: Tools, incident: Incident) -> Incident:
    """Slurm requeues the jobs of a node that is down, and starts them elsewhere."""
    node, head, run = incident.node, await tools.head(), tools.env.connections
    states, reason = await tools.node_now(node)
    mine = not states & OUT or _ours(reason)
    if mine or "DOWN" not in states:
        await commands.node_down(run, head, node, reason_of(incident, reason) if mine else reason)
    words = "down; its jobs are requeued" if mine else f"down; it was out of service already ({reason}), which stays"
    evidence = {} if mine else {OUT_BEFORE: reason or True}
    return await tools.go(incident, IncidentState.DRAINING, words, drained=mine, evidence=evidence)


def _ours(reason: str) -> bool:
    """Whether nobody else has taken the node out, also before it was to leave."""
    before = out_before(reason) if reason.startswith(LEAVES) else reason
    return own(before) or (before == "" and reason != "")


def reason_of(incident: Incident, before: str) -> str:
    """`before`: Slurm's reason until now. That a node leaves stands before what is wrong with it: its machine goes either way."""
    reason = incident.reasons[0]
    return f"{LEAVES}: {reason}" if before.startswith(LEAVES) else reason
