"""Brings the reservations in Slurm to those of the cluster file, as the last step of an apply."""

from __future__ import annotations

from headway.changes.reservation_changes import reservation_changes
from headway.cluster.context import ClusterContext
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.operation_progress import ReportProgress
from headway.domain.slurm.reservations import ObservedReservations
from headway.errors import CommandFailed, HeadwayError, Refused
from headway.slurm import planned_reservations


async def read_reservations(context: ClusterContext, head: Machine | None) -> ObservedReservations | None:
    """Returns the reservations; None if there is no running head or its slurmctld does not answer."""
    if head is None or head.state is not MachineState.RUNNING:
        return None
    try:
        return await planned_reservations.read_reservations(context.connections, head)
    except HeadwayError:
        return None


async def update_reservations(cluster: Cluster, context: ClusterContext, head: Machine, report: ReportProgress) -> None:
    """Makes, changes and removes reservations. Raises Refused, naming those that Slurm does not accept, after the
    others."""
    observed = await planned_reservations.read_reservations(context.connections, head)
    changes = reservation_changes(cluster.reservations, cluster.slot_names, observed)
    names = {one.name for one in cluster.reservations}
    if names - observed.made:  # recorded first: an apply that is killed in between leaves none behind
        await planned_reservations.record_made(context.connections, head, sorted(observed.made | names))
    refused: dict[str, str] = {}
    for change in changes:
        if change.what in refused:  # Slurm does not remove it, so it can't be made again
            continue
        try:
            await planned_reservations.apply_reservation_change(context.connections, head, change.data)
        except CommandFailed as error:
            reason = " ".join((error.stderr or error.message).split())
            refused[change.what] = f"reservation {change.what}: {reason}"
    left = {change.what for change in changes if change.kind == "reservation.delete"} if refused else set()
    if observed.made - names - left:
        await planned_reservations.record_made(context.connections, head, sorted(names | left))
    if refused:
        raise Refused(
            "; ".join(refused.values()),
            hint=f"change it under reservations, or look at headway exec {cluster.name} -- scontrol show res",
        )
    if changes:
        count = len(changes)
        await report("reservations", f"{count} change{'s' * (count != 1)}", done=True)
