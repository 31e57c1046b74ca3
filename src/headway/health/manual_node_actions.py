"""Actions of a person on a node: drain, return, reboot. Headway never ends a drain set by a person."""

from __future__ import annotations

import contextlib

from headway.domain.incident import OUT_BEFORE, FaultAction, Incident, IncidentState
from headway.domain.slurm.node_reasons import REBOOTS, person_reason, rebooting_person
from headway.domain.slurm.nodes_and_jobs import OUT
from headway.errors import Conflict, HeadwayError
from headway.health import node_tests
from headway.health.context import HealthContext, fault_text
from headway.health.incidents import repair
from headway.health.policy.repair_time_limits import BOOT_S
from headway.slurm import node_commands

IN_SERVICE_AS = "Slurm has it as"
_INCIDENT_S = 60.0  # time in which an incident's jobs leave the node, or its tests end


async def drain_node(context: HealthContext, node: str, reason: str, person: str) -> str:
    """Drains the node with the person's reason. Running jobs continue. Returns what was done."""
    words = person_reason(person, reason)
    await node_commands.drain_node(context.cluster_context.connections, await context.head(), node, words)
    jobs = await context.jobs_on(node)
    return f"drained by {words}" + (f"; jobs {', '.join(map(str, sorted(jobs)))} end first" if jobs else "")


async def return_node(context: HealthContext, node: str, person: str) -> str:
    """Returns a node without an open incident to service, if its machine answers. Raises Conflict otherwise."""
    states, reason = await context.node_state(node)
    if not states & OUT:
        raise Conflict(f"{node} is in service: {IN_SERVICE_AS} {'+'.join(sorted(states))}")
    machine = await context.running_machine(node)
    await context.cluster_context.connections.remote(machine, ["true"], timeout_s=10)
    await node_commands.resume_node(context.cluster_context.connections, await context.head(), node)
    return f"returned to service by {person}" + (f"; it was out: {reason}" if reason else "")


async def check_reboot(context: HealthContext, node: str, *, end_jobs: bool) -> None:
    """Raises Conflict while jobs run on the node, unless `end_jobs`."""
    jobs = sorted(await context.jobs_on(node))
    if jobs and not end_jobs:
        raise Conflict(
            f"jobs {', '.join(map(str, jobs))} run on {node}: a reboot would end them",
            hint="drain it and wait, or use --even-if-busy to end them",
        )


async def person_rebooting(context: HealthContext, node: str) -> str:
    """Returns the person whose reboot of the node has not ended, read from the node's drain reason. Returns "" if there
    is none."""
    states, reason = await context.node_state(node)
    return rebooting_person(reason) if states & OUT else ""


async def reboot_node(context: HealthContext, node: str, person: str, *, end_jobs: bool = False) -> str:
    """Reboots a node and returns what went wrong, "" once it has registered again. A node in service is drained first
    and returns after its tests; a node out of service stays out. Continues a reboot that a killed server had begun.
    `end_jobs`: running jobs may end."""
    began = context.clock()
    again = await person_rebooting(context, node) == person
    served = again or not (await context.node_state(node))[0] & OUT
    connections, head, mine = context.cluster_context.connections, await context.head(), person_reason(person, REBOOTS)

    def ours(reason: str) -> bool:
        return reason.startswith(mine)  # slurmctld may append text to the reason

    if served:
        await node_commands.drain_node(connections, head, node, mine)
    try:
        jobs = () if end_jobs else sorted(await context.jobs_on(node))  # a job may have started before the drain
        if jobs:
            if served:
                await node_commands.resume_node_if(connections, head, node, ours)
            return f"not rebooted: jobs {', '.join(map(str, jobs))} run there now"
        if not (
            context.cluster_context.provider.traits.powers_off_machines or again
        ):  # a machine that does not answer now can't be rebooted over SSH: fail at once instead of waiting
            await connections.remote(await context.running_machine(node), ["true"], timeout_s=10)
        await repair.restart_machine(context, node, began)
        fault = await repair.wait_until_registered(context, node, BOOT_S)
    except HeadwayError as error:
        fault = fault_text(error)
    if not served:
        return fault
    fault = (
        fault
        or (await node_tests.run_node_tests(context, node)).fault
        or await _blocking_incident(context, node, person, began)
    )
    if not fault:
        kept = await node_commands.resume_node_if(connections, head, node, ours)
        return kept and f"its tests passed; it stays out of service for another reason: {kept}"
    with contextlib.suppress(HeadwayError):  # the reboot has ended and is not continued
        states, reason = await context.node_state(node)
        if not states & OUT or ours(reason):
            await node_commands.drain_node(connections, head, node, person_reason(person, f"reboot: {fault}"))
    return fault


async def _blocking_incident(context: HealthContext, node: str, person: str, began: float) -> str:
    """Returns why a node whose tests passed does not return to service, "" if nothing blocks it. A fault during the
    reboot opens an incident, which takes over the drain and returns the node when it closes. Incidents that the reboot
    itself caused are closed here."""
    store, ends = context.cluster_context.store, context.clock() + _INCIDENT_S
    while True:
        unfinished = await store.incidents.search(context.cluster.name, node=node, unfinished=True)
        found = await store.incidents.with_steps(
            [incident for incident in unfinished if incident.action is not FaultAction.MAKE]
        )
        led = [incident for incident in found if context.cluster.health.act and incident.state is not IncidentState.OUT]
        if not led or context.clock() >= ends:
            break
        await context.sleep(repair.POLL_S)
    others = [incident for incident in found if incident in led or not _caused_by_reboot(incident, person, began)]
    for incident in (incident for incident in found if incident not in others):
        words = f"the reboot by {person} has ended, and the tests passed"
        await context.add_step(incident, IncidentState.RETURNED, words, actor=person, score=0)
    if not others:
        return ""
    incident = others[0]
    states, reason = await context.node_state(node)
    if not states & OUT or reason.startswith(person_reason(person, REBOOTS)):
        # Recorded first: a server that continues in between still finds the reboot's reason.
        await context.add_step(
            incident,
            incident.state,
            f"it was drained for the reboot by {person}, which has ended",
            actor=person,
            drained=True,
        )
        await node_commands.drain_node(
            context.cluster_context.connections, await context.head(), node, incident.reasons[0]
        )
    return f"incident {incident.number} is open: headway incident return {incident.number} first"


def _caused_by_reboot(incident: Incident, person: str, began: float) -> bool:
    """Returns whether the incident's only fault is that the machine was away during the reboot: the reboot began at
    `began`, or the node was already drained for a reboot by this person, perhaps one that another server began."""
    dead = incident.action is FaultAction.REBOOT and incident.found("dead")
    alone = not any("signal" in step.evidence for step in incident.steps)
    then = str(incident.found(OUT_BEFORE)).startswith(person_reason(person, REBOOTS)) or incident.opened_at >= began
    return bool(dead and alone and then)
