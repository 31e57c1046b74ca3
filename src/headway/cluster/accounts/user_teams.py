"""Puts Linux users of a running cluster into the teams of its file and of the sign-in provider without an apply. What is changed
is what an apply would change for these users, so that the next apply finds it done; nothing else of the file is applied."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from headway.changes.account_changes import member_changes
from headway.changes.cluster_changes import DesiredState
from headway.changes.desired_accounts import desired_accounts
from headway.changes.user_changes import user_changes, user_part
from headway.cluster import remote_steps
from headway.cluster.accounts.user_locks import lock_on_heads, running_head
from headway.cluster.context import ClusterContext
from headway.cluster.desired_state import read_site, render_desired_state
from headway.cluster.machine_steps import steps_by_stage
from headway.cluster.observe import FAN_OUT, observe_machine
from headway.cluster.parallel_machines import errors_of_all
from headway.domain.access.user_change_results import UserUpdateResult
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.teams import User
from headway.errors import HeadwayError, Refused, Unreachable
from headway.slurm.accounting import sacctmgr_reader
from headway.slurm.accounting.sacctmgr_commands import apply_account_change

MACHINE_S = 60.0


async def update_users(
    cluster: Cluster, context: ClusterContext, users: Collection[str]
) -> dict[str, UserUpdateResult]:
    """Gives users of the cluster what an apply gives them on all running machines, and Slurm's accounts of their teams. Users
    who are in no team lose Slurm's accounts, and the sign-in on heads; what becomes of their jobs is `departures` of the
    cluster file. Returns the changes in Slurm and the first fault by user; a machine that failed keeps Slurm and other
    machines from no change. Raises HeadwayError if nothing could be tried."""
    machines = await context.machines(cluster.name)
    head = await running_head(cluster, context, machines)
    observed = await sacctmgr_reader.read_accounts(context.connections, head)
    known = await context.store.linux_uids.of_cluster(cluster.name)
    members = [user for user in cluster.users if user.name in users]
    names = {member.name for member in members}
    gone = [user for user in sorted(set(users) - names) if user in known]
    # A job must not start on a machine that does not know its user: before the first account in Slurm.
    on_machines = [] if not members and not gone else await _update_machines(cluster, context, machines, head, members)
    found: dict[str, UserUpdateResult] = {}
    for user in users:
        errors, done = list(on_machines if user in names or user in gone else ()), list[str]()
        try:
            for change in member_changes(user, desired_accounts(cluster), observed):
                await apply_account_change(context.connections, head, change.data)
                done.append(f"{change.what}: {change.why}")
        except HeadwayError as error:
            errors.append(error)
        if user in gone:
            errors += await lock_on_heads(cluster, context, machines, user)
        found[user] = UserUpdateResult(tuple(done), errors[0].first_line if errors else "")
    return found


async def _update_machines(
    cluster: Cluster, context: ClusterContext, machines: dict[str, Machine], head: Machine, members: list[User]
) -> list[HeadwayError]:
    """Brings all heads and the nodes that run up to date with the users of the cluster. Returns the errors. Nodes that do not
    run get it when they are started or created."""
    await _assign_uids(cluster, context, head, [member.name for member in members])
    work = _MachineWork(cluster, context, members, await _goal(cluster, context, machines))
    limit = asyncio.Semaphore(FAN_OUT)

    async def update(name: str) -> None:
        machine = machines.get(name)
        if machine is None or machine.state is not MachineState.RUNNING:
            raise Unreachable(f"{name} does not run", hint=f"headway status {cluster.name}")
        async with limit:
            await work.carry_out(machine)

    running = {name for name, machine in machines.items() if machine.state is MachineState.RUNNING}
    nodes = running.intersection(cluster.slot_names)
    return await errors_of_all(map(update, [*cluster.heads, *sorted(nodes)]))


async def _assign_uids(cluster: Cluster, context: ClusterContext, head: Machine, users: list[str]) -> None:
    """Gives these users a uid, and records that the cluster has them."""
    store = context.store.linux_uids
    new = sorted(set(users) - (await store.known_uids(users)).keys())
    if new:
        wishes = {**await _uids_on(cluster, context, head, new), **cluster.file_uids}
        await store.assign_uids(new, wishes=wishes)
    await store.add_to_cluster(cluster.name, users)


async def _uids_on(cluster: Cluster, context: ClusterContext, head: Machine, users: list[str]) -> dict[str, int]:
    """Returns the uids by which owned machines know the users already, by name."""
    if not cluster.hosts:
        return {}
    ran = await context.connections.remote(head, ["getent", "passwd", *users], timeout_s=MACHINE_S, check=False)
    rows = (line.split(":") for line in ran.stdout.splitlines())
    return {row[0]: int(row[2]) for row in rows}


async def _goal(cluster: Cluster, context: ClusterContext, machines: Mapping[str, Machine]) -> DesiredState:
    place = await context.provider.find(cluster)
    if place is None:
        raise Refused(f"{cluster.name} has no network", hint="headway apply")
    there = tuple(name for name in cluster.slot_names if name in machines)
    site = await read_site(cluster, context, place, there)
    return await render_desired_state(cluster, site, await context.store.secrets.of_cluster(cluster.name))


@dataclass(frozen=True)
class _MachineWork:
    """What each machine gets."""

    cluster: Cluster
    context: ClusterContext
    members: list[User]
    goal: DesiredState

    async def carry_out(self, machine: Machine) -> None:
        """Brings one machine up to date. Raises HeadwayError."""
        # On owned machines the file of a user that Headway signs in as also has Headway's own key.
        part = user_part(
            self.goal.roles[self.cluster.role_of(machine.name)],
            {member.name for member in self.members},
            keep_keys_of={host.user for host in self.cluster.hosts},
        )
        seen, _ = await observe_machine(self.context, machine, part)
        changes = user_changes(machine.name, part, seen)
        stages = steps_by_stage(changes, part, {}, fresh=False)
        steps = [*self._accounts(), *(step for stage in stages.values() for step in stage)]
        new = [row.what for row in changes if row.kind == "file.write" and row.what not in seen.managed]
        steps += [{"op": "managed", "add": new}] if new else []
        failed = await remote_steps.run_steps(self.context.connections, machine, steps, timeout_s=MACHINE_S)
        if failed:
            raise remote_steps.RemoteStepFailed(f"{machine.name}: {failed[0]}")

    def _accounts(self) -> list[remote_steps.Step]:
        uids = {user: uid for _, user, uid in self.goal.roles["head"].homes}
        home = PurePosixPath(self.cluster.storage.home)
        return [
            {"op": "add_user", "user": member.name, "uid": uids[member.name], "home": str(home / member.name)}
            for member in self.members
        ]
