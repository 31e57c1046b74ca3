"""Refusals of a plan or an apply: a person may not name these resources, rented machines would be left running, the plan is
not the one that was shown, its cost is above the limit, running work would be disturbed without confirmation, or busy nodes
removed without a deadline."""

from __future__ import annotations

from headway.domain.changeset import ChangeSet
from headway.domain.cluster import Cluster
from headway.domain.machines.rental_price import paid_slots, total_price
from headway.domain.slurm.hostlist import compress
from headway.errors import Conflict, Fault, NeedsConfirmation, NotAllowed
from headway.schemas.clusters import ApplyIn, ScaleGroupsIn
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.cluster.shown_plan import ShownPlan

COST_LIMIT_FIELD = "cost.usd_per_hour"


def require_known_resources(who: Principal, cluster: Cluster, known: Cluster | None) -> None:
    """Raises NotAllowed if a person who is not an admin names new machines, keys or folders, because planning makes the
    server connect to and read them."""
    if known is None:
        machines = bool(cluster.hosts) or not cluster.provider.creates_machines or cluster.rents_machines
        other = machines or cluster.munge_key is not None
    else:
        other = _machines_and_keys(cluster) != _machines_and_keys(known)
    folders = {dataset.source for dataset in known.storage.datasets} if known else set()
    own = (dataset.source for dataset in cluster.storage.datasets if not dataset.versioned)
    new = {source for source in own if source} - folders
    if other or new:
        what = "other machines, datasets or keys" if known else "machines, datasets or keys of the server"
        raise NotAllowed(f"{who.person} may not plan {cluster.name} with {what}", hint="ask an admin")


def _machines_and_keys(cluster: Cluster) -> object:
    return cluster.provider, cluster.rents_machines, cluster.hosts, cluster.cloud, cluster.munge_key


async def unended_rental_faults(state: AppState, before: Cluster | None, after: Cluster) -> list[Fault]:
    """Returns a fault for each group that would lose its cloud while machines are rented for it: without the cloud in the
    file, no apply would end them."""
    if before is None or not before.rents_machines:
        return []
    if before.provider.rents_machines:
        rented = {} if after.provider.rents_machines else await state.backend.rentals.rented_prices(before.name)
        message = f"is {after.provider.name}, but {compress(sorted(rented))} is rented from {before.provider.name}"
        return [Fault("provider", message, "take the cluster down first (headway down)")] if rented else []
    now = {group.name: group for group in after.groups}
    # A removed group whose cloud still serves another group is ended by the apply.
    lost = [
        group
        for group in before.groups
        if group.provider is not None and not (now[group.name].provider if group.name in now else after.rents_machines)
    ]
    rented = await state.backend.rentals.rented_prices(before.name) if lost else {}
    faults = []
    for group in lost:
        if names := sorted(rented.keys() & set(group.slots)):
            path = f"groups.{group.name}.provider" if group.name in now else f"groups.{group.name}"
            message = f"is missing, but {compress(names)} is rented"
            hint = "first apply the group with its provider, nodes: 0 and max, without idle; this ends what is rented"
            faults.append(Fault(path, message, hint))
    return faults


def require_shown_plan(name: str, plan: ShownPlan, request: ApplyIn | ScaleGroupsIn) -> None:
    """Raises Conflict if the request agrees to another plan, which was shown before."""
    if request.digest and request.digest != plan.digest:
        raise Conflict(f"the plan for {name} has changed since it was shown", hint="run headway plan again")


async def cost_limit_conflict(state: AppState, before: Cluster | None, after: Cluster) -> Conflict | None:
    """Returns the error if `after` would exceed its limit: the machines that it always runs, plus those that its
    scaling groups run now. Returns None if it does not, or if it requests no more always-on machines than `before`
    (then power saving keeps the limit)."""
    limit = after.max_usd_per_hour
    if before is None or limit is None or after.min_usd_per_hour <= before.min_usd_per_hour:
        return None
    scaling = [group for group in after.groups if group.idle_s is not None]
    if not scaling:
        return None  # a fixed cost above the limit is a fault of the file
    machines = {machine.name for machine in await state.backend.lifecycle.machines(before)}
    there = {group.name: len(machines & set(group.slots)) for group in scaling}
    more = [group.name for group in scaling if not machines.isdisjoint(group.slots[group.min_machines :])]
    prices = await state.backend.rentals.rented_prices(before.name) if before.rents_machines else {}
    always_on = (group for group in after.groups if group.idle_s is None)
    slots = {name for group in scaling for name in paid_slots(group, machines)}
    slots |= {name for group in always_on for name in paid_slots(group, ())}
    # A machine that is still to be rented is checked before its launch, at the price of the cloud's offer.
    known = (name for name in slots if name in prices or not after.provider_of(name).rents_machines)
    total = total_price(after, (*after.heads, *known), prices)
    if total <= limit:
        return None
    run = " and ".join(f"{there[name]} nodes of {name}" for name in more)
    cost = f"an hour of {after.name} would cost {total:.2f} USD, and {COST_LIMIT_FIELD} is {limit.normalize():f}"
    return Conflict(
        f"{cost}: {run} run for jobs now",
        hint=f"wait until these jobs have ended (headway queue {after.name}), request fewer nodes, or raise {COST_LIMIT_FIELD}",
    )


def require_confirmation(name: str, plan: ShownPlan, request: ApplyIn | ScaleGroupsIn) -> None:
    """Raises NeedsConfirmation if the plan disturbs running work and the request does not confirm it, Conflict if it
    removes nodes with running jobs and the request gives no deadline for them."""
    if plan.disturbing and not request.confirmed:
        what = "1 change disturbs" if plan.disturbing == 1 else f"{plan.disturbing} changes disturb"
        raise NeedsConfirmation(
            f"{what} jobs or sessions on {name}", hint="check `headway plan`, then apply with --yes"
        )
    if plan.busy and request.deadline_s is None:
        raise Conflict(
            f"nodes with running jobs would be removed: {plan.busy}",
            hint="give the time that these jobs may continue before they are requeued: --deadline 10 (minutes)",
        )


def require_undisturbed_work(name: str, changes: ChangeSet) -> None:
    """Raises NeedsConfirmation if an apply that waited for another one, and was not confirmed, would now disturb running
    work."""
    if changes.disturbing_changes:
        raise NeedsConfirmation(
            f"after the previous apply, it would disturb jobs or sessions on {name}", hint="headway plan, then apply"
        )
