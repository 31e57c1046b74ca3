"""Creates machines of slots of a running cluster. Others are only told the addresses of rented ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from headway.changes.cluster_changes import DesiredState
from headway.cluster.active_head import require_active_head
from headway.cluster.changeset_execution import ChangeSetExecution
from headway.cluster.context import ClusterContext
from headway.cluster.current_gpu_parts import read_parts_now
from headway.cluster.desired_state import read_site, render_desired_state
from headway.cluster.keys import secrets
from headway.cluster.parallel_machines import errors_of_all
from headway.cluster.rented.address_updates import update_addresses
from headway.cluster.rented.missing_machines import rent_and_claim
from headway.domain.changeset import Change, ChangeSet
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine
from headway.domain.machines.observed_state import NOT_OBSERVED, Observed
from headway.domain.machines.scale_in_order import choose_slots
from headway.domain.operation_progress import ReportProgress
from headway.errors import Refused


async def provision_machine(
    cluster: Cluster,
    context: ClusterContext,
    name: str,
    report: ReportProgress,
    *,
    why: str = "Slurm powers the node up",
    image: str = "",
) -> None:
    """Creates the machine, sets it up and starts slurmd last. `image`: tag of the image, as in ChangeSetExecution. Raises
    HeadwayError; a machine that was created stays for inspection or deletion."""
    await provision_machines(cluster, context, [name], report, why=why, image=image)


async def provision_machines(
    cluster: Cluster,
    context: ClusterContext,
    names: Sequence[str],
    report: ReportProgress,
    *,
    why: str = "Slurm powers the node up",
    image: str = "",
) -> None:
    """Does the same for several slots of one group, side by side. Rented machines are launched in one zone, all or none."""
    machines = await context.machines(cluster.name)
    head = await require_active_head(cluster, context, machines)
    have = await secrets.ensure_secrets(context.store, cluster, cluster.machine_names)
    await rent_and_claim(cluster, context, report, have, names)
    goal = await _goal(cluster, context, {*machines, *names}, head)
    place = await context.provider.find(cluster)
    if place is None:
        raise Refused(f"{cluster.name} has no network", hint="headway apply")
    if cluster.rents_machines:
        await update_addresses(cluster, context, names, report)
    observed = Observed(machines, {head.name: NOT_OBSERVED})
    run = ChangeSetExecution(goal, context, report, place, have, observed, ChangeSet(cluster.name, ()), image=image)
    run.machines.update(machines)
    run.controller_up.set()
    errors = await errors_of_all(run.bring(name, [Change("machine.create", name, name, why)]) for name in names)
    if errors:
        raise errors[0]
    if cluster.rents_machines:  # others may have been rented while these were set up
        others = [name for name in cluster.machine_names if name not in names]
        await update_addresses(cluster, context, others, report, on=names)


async def _goal(cluster: Cluster, context: ClusterContext, machines: Collection[str], head: Machine) -> DesiredState:
    place = await context.provider.find(cluster)
    if place is None:
        raise Refused(f"{cluster.name} has no network", hint="headway apply")
    site = await read_site(cluster, context, place, choose_slots(cluster, machines), give_uids=False)
    site = replace(site, parts_now=await read_parts_now(cluster, context, site, head, machines))
    return await render_desired_state(cluster, site, await context.store.secrets.of_cluster(cluster.name))
