"""Reads the present state: the provider's machines, each machine's facts, the accounts. Changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from functools import partial

from headway.changes.cluster_changes import SLURM_CONF, DesiredState
from headway.changes.machine_changes import DesiredMachine
from headway.cluster import remote_steps
from headway.cluster.active_head import active_head
from headway.cluster.context import ClusterContext
from headway.cluster.planned_reservations import read_reservations
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.machines.observed_state import Observed, ObservedMachine
from headway.domain.slurm.accounts import Accounts
from headway.errors import CommandFailed, HeadwayError
from headway.images import local_images
from headway.providers.base import OwnedMachinesProvider
from headway.render.slurm.change_impact import AbortingChanges, aborting_changes, unreadable
from headway.slurm import node_jobs
from headway.slurm.accounting import sacctmgr_reader

# The number of machines that are read at the same time; each takes one SSH channel and one short Python process there.
FAN_OUT = 64
RETRY_S = 2.0  # seconds before a failed observation is repeated
MachineFacts = tuple[ObservedMachine, dict[str, str]]
AbortedJobs = tuple[dict[str, tuple[int, ...]], str]  # (partition or node -> jobs, why that can't be known or "")


async def observe_cluster(goal: DesiredState, context: ClusterContext) -> Observed:
    """Returns all facts that the ChangeSet is computed from. Machines that run but do not answer are listed with the
    reason. Raises CommandFailed if a created machine answers but its observation fails twice."""
    cluster = goal.cluster
    wanted_names = set(goal.machines)
    replaced = await replaced_machines(context, cluster.name) & wanted_names
    machines = {
        name: machine for name, machine in (await context.machines(cluster.name)).items() if name not in replaced
    }
    limit = asyncio.Semaphore(FAN_OUT)
    seen: dict[str, ObservedMachine] = {}
    unreachable: dict[str, str] = {}
    failed: list[CommandFailed] = []
    texts: dict[str, dict[str, str]] = {}  # head -> path -> text

    async def observe(machine: Machine) -> None:
        role = cluster.role_of(machine.name)
        async with limit:
            try:
                facts, found = await _with_one_retry(
                    partial(
                        observe_machine, context, machine, goal.roles[role], with_texts=machine.name in cluster.heads
                    )
                )
            except HeadwayError as error:
                if isinstance(error, CommandFailed) and error.code is not None and cluster.provider.boots_node_images:
                    failed.append(error)
                unreachable[machine.name] = error.message
                return
        seen[machine.name] = facts
        texts[machine.name] = found

    other = await heads_with_other_slurm(cluster, machines.values())
    running = [
        m for m in machines.values() if m.state is MachineState.RUNNING and m.name in wanted_names - other.keys()
    ]
    head = machines.get(cluster.head)
    looking = [asyncio.create_task(observe(machine)) for machine in running]
    images = asyncio.create_task(_of_earlier_image(cluster.image, running))
    accounts = await read_accounts(context, head)
    reservations = await read_reservations(context, head)
    attached = await context.provider.attached(cluster.name)
    await asyncio.gather(*looking)
    for error in failed:
        images.cancel()
        error.hint = error.hint or f"try again; headway node reboot {error.where} if it happens again"
        raise error
    leads = await active_head(cluster, context, machines)
    jobs = await _jobs_on(context, leads, (machines.keys() - wanted_names) | replaced)
    there = next((texts[name] for name in cluster.heads if SLURM_CONF in texts.get(name, {})), {})
    ended, unasked = await _aborted(goal, context, leads, there)
    return Observed(
        machines,
        seen,
        unreachable,
        accounts,
        reservations,
        there,
        frozenset(attached),
        jobs,
        ended,
        unasked,
        replaced,
        other,
        await images,
    )


async def replaced_machines(context: ClusterContext, cluster: str) -> frozenset[str]:
    """Returns the names whose machine is to be replaced by another one in the inventory."""
    return (
        await context.provider.replaced(cluster) if isinstance(context.provider, OwnedMachinesProvider) else frozenset()
    )


async def _jobs_on(context: ClusterContext, head: Machine | None, names: Set[str]) -> dict[str, tuple[int, ...]]:
    """Returns the jobs on nodes that leave, {} if the controller does not answer."""
    if not names or head is None:
        return {}
    try:
        busy = await node_jobs.jobs_by_node(context.connections, head)
    except HeadwayError:
        return {}
    return {name: busy[name] for name in names if name in busy}


async def _aborted(
    goal: DesiredState, context: ClusterContext, head: Machine | None, texts: Mapping[str, str]
) -> AbortedJobs:
    """Returns the jobs that Slurm ends when it reads the new slurm.conf, and why they can't be known. If the old text
    is unreadable there is nothing to compare; the plan reports that."""
    desired, old = goal.roles.get("head"), texts.get(SLURM_CONF, "")
    ending = (
        aborting_changes(old, desired.files[SLURM_CONF].text) if desired and not unreadable(old) else AbortingChanges()
    )
    if not ending:
        return {}, ""
    if head is None:
        return {}, "no head is running"
    try:
        busy = await node_jobs.jobs_by_node(context.connections, head) if ending.nodes else {}
        queued = await node_jobs.jobs_by_partition(context.connections, head, sorted(ending.partitions))
    except HeadwayError as error:
        return {}, error.first_line
    return {**{name: busy[name] for name in ending.nodes if name in busy}, **queued}, ""


async def _of_earlier_image(name: str, machines: Iterable[Machine]) -> tuple[str, ...]:
    """Returns the names of machines created from another image than the present one, () if that can't be determined."""
    made = {machine.name: machine.image for machine in machines if machine.image}
    if not made:
        return ()
    try:
        present = await local_images.find_current_image(name)
    except HeadwayError:
        return ()
    return tuple(
        sorted(machine_name for machine_name, made_from in made.items() if present is None or made_from != present.id)
    )


async def heads_with_other_slurm(cluster: Cluster, machines: Iterable[Machine]) -> dict[str, str]:
    """Returns the heads whose image has another Slurm version than the file, with that version. Returns {} if
    unknown."""
    made = [machine for machine in machines if machine.image and machine.name in cluster.heads]
    if not made:
        return {}
    try:
        return machines_with_other_slurm(cluster.slurm_version, made, await local_images.list_images())
    except HeadwayError:
        return {}


def machines_with_other_slurm(
    slurm: str, machines: Iterable[Machine], images: Iterable[local_images.ImageInfo]
) -> dict[str, str]:
    """Returns the machines whose image has another Slurm version, with that version. Machines with an unknown image are
    left out."""
    carries = {info.id: info.slurm_version for info in images}
    found = {machine.name: carries.get(machine.image, "") for machine in machines}
    return {name: version for name, version in found.items() if version not in ("", slurm)}


async def _with_one_retry(look: Callable[[], Awaitable[MachineFacts]]) -> MachineFacts:
    """Returns an observation, repeated once if it fails, because a machine that can't be observed is restarted, and its
    jobs with it. A created machine that answers but whose command fails is not restarted: `observe_cluster` raises that
    error. (An owned machine may still lack programs that the observation needs.)"""
    try:
        return await look()
    except HeadwayError:
        await asyncio.sleep(RETRY_S)
    return await look()


async def observe_machine(
    context: ClusterContext, machine: Machine, desired: DesiredMachine, *, with_texts: bool = False
) -> MachineFacts:
    """Returns one machine's facts. Raises Unreachable."""
    return await remote_steps.read_facts(
        context.connections,
        machine,
        files=desired.files,
        units=[unit.name for unit in desired.units],
        dirs=[*(path for path, _, _ in desired.dirs), *(path for path, _, _ in desired.homes)],
        owners={path: owner for path, owner, _ in desired.dirs},
        users=desired.departed,
        blocks=[path for path, file in desired.files.items() if file.block],
        packages=desired.packages,
        quotas=desired.quotas,
        texts=[p for p, f in desired.files.items() if p.startswith("/etc/slurm/") and not f.secret]
        if with_texts
        else (),
    )


async def read_accounts(context: ClusterContext, head: Machine | None) -> Accounts | None:
    """Returns the accounts, None if there is no running head or its accounting database does not answer."""
    if head is None or head.state is not MachineState.RUNNING:
        return None
    try:
        return await sacctmgr_reader.read_accounts(context.connections, head)
    except HeadwayError:
        return None
