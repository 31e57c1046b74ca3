"""Returns nodes of incidents to service: only with a report of passed tests, and flaky nodes into their reservation."""

from __future__ import annotations

import contextlib

from headway.domain.incident import Incident, IncidentState
from headway.domain.slurm.node_reasons import SCALE_IN_REASON, is_headway_reason
from headway.domain.slurm.nodes_and_jobs import FLAKY_NODES
from headway.errors import CommandFailed
from headway.health.context import HealthContext
from headway.health.incidents import flaky_node_reservation
from headway.health.node_tests import NodeTestReport
from headway.slurm import node_commands


async def return_to_service(
    context: HealthContext, incident: Incident, report: NodeTestReport, state: IncidentState, actor: str
) -> Incident:
    """Closes the incident and ends the node's drain, if the drain is Headway's and the node is not being scaled in.
    Raises ValueError unless the report says that all tests passed."""
    if report.fault or report.node != incident.node:
        raise ValueError(f"incident {incident.number}: {report.fault or f'tests of {report.node}'}")
    words = "tests passed; the node was drained by a person and stays drained"
    if incident.drained:
        _, reason = await context.node_state(incident.node)
        if reason.startswith(SCALE_IN_REASON):  # if the scale-in is cancelled, `repeat_return` returns the node
            words = "tests passed; it stays drained: it is being scaled in"
        elif is_headway_reason(reason):
            is_flaky = incident.node in await flaky_node_reservation.find_flaky_nodes(context)
            if context.cluster.health.reserve_flaky_nodes:
                # A flaky node returns only after the reservation holds it. For other nodes the next pass tries the
                # update again.
                with contextlib.nullcontext() if is_flaky else contextlib.suppress(CommandFailed):
                    await flaky_node_reservation.update_flaky_reservation(context)
            if not await node_commands.resume_node_if(
                context.cluster_context.connections, await context.head(), incident.node, is_headway_reason
            ):
                words = "tests passed; back in service"
                words += f" for jobs in reservation {FLAKY_NODES} only: it fails too often" if is_flaky else ""
    words += f"; skipped: {report.skipped}" if report.skipped else ""
    return await context.add_step(incident, state, words, actor=actor, evidence={"passed": report.passed})


async def repeat_return(context: HealthContext, node: str) -> str:
    """Returns a node to service again if it is out with the reason of a closed incident: slurmctld can forget the
    return when it is killed. Returns what was done, "" for nothing."""
    store, name = context.cluster_context.store, context.cluster.name
    if await store.incidents.search(name, node=node, unfinished=True):
        return ""
    _, reason = await context.node_state(node)
    for incident in await store.incidents.with_steps(await store.incidents.search(name, node=node)):
        if incident.drained and reason in incident.reasons:
            if await node_commands.resume_node_if(
                context.cluster_context.connections, await context.head(), node, incident.reasons.__contains__
            ):
                return ""
            return f"incident {incident.number} has ended and the controller had lost that: back in service"
    return ""
