"""Plans and applies a cluster file: `apply_cluster` carries out the same ChangeSet that `plan_changes` returns. Changes
are computed from facts at every start, so running a killed apply again completes it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from headway.changes.cluster_changes import DesiredState, changeset, with_effects
from headway.changes.desired_accounts import desired_accounts
from headway.cluster.changeset_execution import BeforeStage, ChangeSetExecution
from headway.cluster.context import ClusterContext
from headway.cluster.current_gpu_parts import observe_with_parts
from headway.cluster.desired_state import read_site, render_desired_state
from headway.cluster.keys import secrets
from headway.cluster.owned import gpu_drivers, machine_claims
from headway.cluster.readiness import finish_bring_up
from headway.cluster.rented.missing_machines import end_surplus, rent_missing
from headway.cluster.rented.plan_notes import with_rental_notes
from headway.cluster.scaling.scale_in import BackgroundTasks
from headway.cluster.scaling.slot_selection import leaving_with_jobs, select_slots
from headway.domain.changeset import RESTART, ChangeSet
from headway.domain.cluster import Cluster
from headway.domain.machines.observed_state import Observed
from headway.domain.machines.scale_in_deadline import Deadline
from headway.domain.machines.scale_in_order import choose_slots
from headway.domain.operation_progress import ReportProgress
from headway.domain.slurm.hostlist import compress
from headway.errors import Refused


async def plan_changes(cluster: Cluster, context: ClusterContext) -> ChangeSet:
    """Returns what apply would do. Creates neither secrets nor uids."""
    seen = await machine_claims.survey_machines(cluster, context)
    place = await context.provider.find(cluster)
    if place is None:
        changes = await asyncio.to_thread(lambda: changeset(_unbuilt(cluster), Observed()))
        return await with_rental_notes(cluster, context, changes, (*cluster.heads, *choose_slots(cluster, ())))
    place = seen.place(place) if seen else place
    chosen, _ = await _chosen(cluster, context, asks=True)
    site = await read_site(cluster, context, place, chosen, give_uids=False, known_uids=seen.uids if seen else None)
    have = {**await context.store.secrets.of_cluster(cluster.name), **await secrets.read_given_secrets(cluster)}
    _, goal, observed = await observe_with_parts(cluster, context, site, have)
    changes = await asyncio.to_thread(changeset, goal, observed)
    changes = seen.with_notes(changes) if seen else changes
    return await with_rental_notes(cluster, context, changes, (*cluster.heads, *chosen))


async def _chosen(cluster: Cluster, context: ClusterContext, *, asks: bool) -> tuple[tuple[str, ...], frozenset[str]]:
    """Returns (slots with a machine, those of them that another operation is removing and that this one leaves
    alone)."""
    machines = await context.machines(cluster.name)
    chosen = await select_slots(cluster, context, machines)
    leaving = await leaving_with_jobs(cluster, context, machines, chosen) if asks else frozenset()
    return tuple(name for name in cluster.slot_names if name in leaving or name in chosen), leaving


def _unbuilt(cluster: Cluster) -> DesiredState:
    """Returns the desired state of a cluster without machines. Only the machines to create matter."""
    return DesiredState(cluster, {}, desired_accounts(cluster), choose_slots(cluster, ()))


async def apply_cluster(
    cluster: Cluster,
    context: ClusterContext,
    report: ReportProgress,
    deadline: Deadline | None = None,
    waiting_work: BackgroundTasks | None = None,
    before: Mapping[str, BeforeStage] | None = None,
    *,
    new: Mapping[str, str] | None = None,
    rests: bool = False,
    divided: Collection[str] = (),
    has_drivers: bool = False,
    restarts: bool = True,
) -> None:
    """Carries out what must change. `deadline`: until when jobs on leaving nodes may run; with None no node with jobs
    is removed, and nodes that another operation drains are left alone. `waiting_work`: work to do while those jobs are waited
    for. `before`: stage -> function that runs on the head right before that stage. `new`: secrets that replace others;
    they are stored once every running machine can take them. `rests`: the controller was stopped for a restore, so it
    is not known what runs where, and no machine is removed. `divided`: as in `observe_with_parts`. `has_drivers`: this
    apply has installed the GPU drivers of its machines. `restarts` False: machines that do not answer stay as they are, with
    a warning, instead of being restarted. Raises HeadwayError naming every machine that failed, and
    YieldedToOperation (cluster.scaling.scale_in) if another operation goes before the rest of this one."""
    began = time.monotonic()
    problems = [problem for problem in await context.provider.preflight(cluster) if problem.fatal]
    if problems:
        raise Refused(
            "this host is not ready:\n" + "\n".join(f"  {problem.what}" for problem in problems),
            hint="; ".join(dict.fromkeys(problem.fix for problem in problems)),
        )
    outside = await secrets.read_given_secrets(cluster)
    have = await secrets.ensure_secrets(context.store, cluster, cluster.machine_names, outside)
    new = {name: value for name, value in {**outside, **(new or {})}.items() if value != have.get(name)}
    have |= new
    context.connections.use_key(have["bootstrap_key"])
    if cluster.rents_machines:
        slots, _ = await _chosen(cluster, context, asks=deadline is None and not rests)
        await end_surplus(cluster, context, report, (*cluster.heads, *slots))
        await rent_missing(cluster, context, report, have, (*cluster.heads, *slots))
    seen = await machine_claims.survey_machines(cluster, context)
    if seen:
        machine_claims.check_claimable(seen)
    await context.store.linux_uids.add_to_cluster(cluster.name, [user.name for user in cluster.users])
    place = await context.provider.place(cluster)
    place = seen.place(place) if seen else place
    chosen, leaving = await _chosen(cluster, context, asks=deadline is None and not rests)
    site = await read_site(cluster, context, place, chosen, known_uids=seen.uids if seen else None)
    site, goal, observed = await observe_with_parts(cluster, context, site, have, divided)
    goal = with_effects(goal, observed)
    changes = changeset(goal, observed)
    if not restarts:
        changes = await without_restarts(changes, report)
    if changes.empty:
        await report("changes", f"nothing to do: {changes.why_empty}", done=True, seconds=time.monotonic() - began)
        await secrets.store_new_secrets(context.store, cluster, new)
        await finish_bring_up(goal, context, report, frozenset(), leaving)
        return
    machine_claims.check_state_stays(cluster, changes)
    count = len(changes.changes)
    await report("changes", f"{count} change{'s' * (count != 1)}", done=True, seconds=time.monotonic() - began)
    await context.provider.attach(cluster.name, cluster.storage.datasets)
    run = ChangeSetExecution(
        goal, context, report, place, have, observed, changes, deadline, waiting_work, before or {}, new, rests, leaving
    )
    if seen:
        site = replace(await run.claim_machines(seen), parts_now=site.parts_now)
        if seen.without_driver and not has_drivers:
            await gpu_drivers.install_drivers(context, cluster.gpu_driver, seen.without_driver, report)
            # Slurm counts only GPUs with a driver, so the machines are surveyed again.
            await apply_cluster(
                cluster, context, report, deadline, waiting_work, before, new=new, rests=rests, divided=divided,
                has_drivers=True, restarts=restarts,
            )  # fmt: skip
            return
        run.goal = with_effects(await render_desired_state(cluster, site, have), observed)
    if await run.clear():  # read all facts again, because machines were created or deleted meanwhile
        await apply_cluster(
            cluster, context, report, deadline, before=before, new=new, divided=divided, restarts=restarts
        )
        return
    await run.replace_munge_key()
    await run.execute()
    await report("cluster", f"{cluster.name} is ready", done=True, seconds=time.monotonic() - began)


async def without_restarts(changes: ChangeSet, report: ReportProgress) -> ChangeSet:
    """Returns the changes without restarts of machines that do not answer, and reports these machines."""
    silent = [change.where for change in changes.changes if change.kind == RESTART]
    if not silent:
        return changes
    text = "does not answer and is not restarted: the next apply makes its changes"
    await report(compress(silent), text, level="warning", done=True)
    return replace(changes, changes=tuple(change for change in changes.changes if change.where not in silent))
