"""Tells the machines of a running cluster the addresses of machines that were rented since: a cloud chooses them at the launch,
and names, firewalls and exports of all other machines contain them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace

from headway.changes.machine_changes import DesiredMachine, machine_changes
from headway.cluster import remote_steps
from headway.cluster.context import ClusterContext
from headway.cluster.desired_state import read_site, render_desired_state
from headway.cluster.machine_steps import stage_timeout_s, steps_by_stage
from headway.cluster.observe import FAN_OUT, observe_machine
from headway.cluster.owned import machine_claims
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.operation_progress import ReportProgress
from headway.errors import HeadwayError, Refused
from headway.store import StoreUnavailable

_NO_ADDRESS = "198.18.255.255"  # stands for addresses, to see which files contain them


async def update_addresses(
    cluster: Cluster,
    context: ClusterContext,
    names: Collection[str],
    report: ReportProgress,
    *,
    on: Collection[str] | None = None,
) -> None:
    """Writes the files that contain addresses of these machines on all running machines that are set up, except them, where
    they are not up to date. `on`: only on these machines instead. A machine that does not answer is reported: the next call
    or apply tells it. Raises Refused if nothing is rented."""
    async with context.address_lock:
        place = await context.provider.find(cluster)
        if place is None:
            raise Refused(f"{cluster.name} has no network", hint="headway apply")
        machines = await context.machines(cluster.name)
        told = {name: m for name, m in machines.items() if (name not in names if on is None else name in on)}
        told = {name: machine for name, machine in told.items() if machine.state is MachineState.RUNNING}
        members = tuple(name for name in cluster.slot_names if name in machines)
        site = await read_site(cluster, context, place, members, give_uids=False)
        have = await context.store.secrets.of_cluster(cluster.name)
        goal = await render_desired_state(cluster, site, have)
        addresses = {**place.addresses, **dict.fromkeys(names, _NO_ADDRESS)}
        other = await render_desired_state(cluster, replace(site, addresses=addresses), have)
        roles = {role: _with_addresses(machine, other.roles[role]) for role, machine in goal.roles.items()}
        limit = asyncio.Semaphore(FAN_OUT)

        async def tell(machine: Machine) -> None:
            try:
                async with limit:
                    await _update_machine(context, machine, roles[cluster.role_of(machine.name)], have)
            except StoreUnavailable:
                raise
            except HeadwayError as error:
                words = f"does not know the addresses of new machines yet: {error.first_line}"
                await report(machine.name, words, level="warning", done=True)

        await asyncio.gather(*(tell(told[name]) for name in goal.machines if name in told))


def _with_addresses(desired: DesiredMachine, other: DesiredMachine) -> DesiredMachine:
    """Returns only the files that differ between two desired states, and the units that read them."""
    files = {path: file for path, file in desired.files.items() if desired.digests[path] != other.digests.get(path)}
    units = tuple(unit for unit in desired.units if files.keys() & {*unit.restart_on, *unit.reload_on})
    return DesiredMachine(files, desired.digests, units, loaded=desired.loaded)


async def _update_machine(
    context: ClusterContext, machine: Machine, desired: DesiredMachine, secrets: Mapping[str, str]
) -> None:
    seen, _ = await observe_machine(context, machine, desired)
    if not seen.managed:  # it is not set up yet, and gets these files then
        return
    changes = [
        c for c in machine_changes(machine.name, desired, seen) if c.kind not in ("file.remove", "managed.write")
    ]
    for stage, steps in steps_by_stage(changes, desired, secrets, fresh=False).items():
        patience = stage_timeout_s(stage, steps)
        await remote_steps.run_steps(context.connections, machine, steps, timeout_s=patience)
        if machine_claims.loads_firewall_rules(steps):
            await machine_claims.check_ssh_after_firewall(context, machine)
