"""Machines that the user owns: surveys them before a plan, claims them with a mark file, and releases them."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import cast

from headway.changes.checks.gpu_drivers import driver_notes, drivers_to_install
from headway.changes.checks.host_containers import DeclaredHosts, container_notes, container_runtime
from headway.changes.checks.moved_hosts import moved_host_notes
from headway.changes.checks.owned_machines import EarlierFindings, SurveyResult, evaluate_surveys
from headway.changes.checks.uid_conflicts import agreed_uids
from headway.cluster import remote_steps
from headway.cluster.context import ClusterContext
from headway.cluster.machine_steps import DAEMONS
from headway.cluster.owned import host_containers
from headway.domain.changeset import ChangeSet
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import HostProblem, Machine
from headway.domain.machines.scale_in_order import choose_slots
from headway.domain.machines.survey import DetectedHardware, MachineClaim, Survey
from headway.domain.operation_progress import ReportProgress
from headway.domain.slurm.hostlist import compress
from headway.errors import CommandFailed, HeadwayError, Refused, Unreachable
from headway.paths import node_dir
from headway.providers.base import OwnedMachinesProvider, Placement, RentingProvider
from headway.providers.ssh.survey_parser import survey_machine
from headway.render.system import firewall
from headway.render.system.agent_config import AGENT
from headway.render.system.volume_mounts import unit_name
from headway.store import StoreUnavailable

_AT_ONCE = 32
_TAKE_S = 900  # seconds; Python is installed on machines without it
_LEAVE_S = 300
_KNOCKS = 3
# Daemons of packages, in the order in which they stop: one that others need is stopped after them. Headway's own units
# are stopped too, by their files.
_ENDED = (AGENT, *(unit for unit in DAEMONS if unit not in ("nfs-server.service", "nftables.service")))
_SIGN = ".headway-shared"
_SIGNS = 'mkdir -p "$1" && : >"$2" && chown 1:1 "$2"'


@dataclass(frozen=True, slots=True)
class HostContainer:
    """The container of a host: the machine's SSH port, and the program that runs it."""

    port: int
    runtime: str


@dataclass(frozen=True)
class InventorySurvey:
    """The findings on all machines of a cluster."""

    cluster: Cluster
    provider: OwnedMachinesProvider
    machines: Mapping[str, Machine]  # the machines that show a host key
    surveys: Mapping[str, Survey]
    silent: Mapping[str, HeadwayError]  # the machines that could not be surveyed, and why
    taken: frozenset[str]  # the machines that this cluster has claimed already
    judgement: SurveyResult
    # uids by which all machines know users that have none here yet
    uids: Mapping[str, int] = field(default_factory=dict)
    run_in: DeclaredHosts = field(default_factory=DeclaredHosts)
    # stored hardware of the machines that this cluster has claimed already
    claimed: Mapping[str, DetectedHardware] = field(default_factory=dict)
    there: Mapping[str, str] = field(default_factory=dict)  # addresses of the cluster's owned machines, by name

    @property
    def containers(self) -> dict[str, HostContainer]:
        """Returns how the machines run that are in containers, by name."""
        return {
            name: HostContainer(self.run_in.container_port(name), container_runtime(self.surveys[name]))
            for name in self.judgement.contained
        }

    @property
    def stops(self) -> tuple[HostProblem, ...]:
        """Returns the problems that stop an apply. A machine that was claimed earlier and does not answer now is not among
        them."""
        silent = (
            HostProblem(error.message, error.hint) for name, error in self.silent.items() if name not in self.taken
        )
        return (*silent, *(problem for problem in self.judgement.problems if problem.fatal))

    @property
    def without_driver(self) -> dict[str, Machine]:
        """Returns the machines to install the GPU driver on, by name: the hosts of those in containers."""
        names = drivers_to_install(self.cluster, self.surveys, self.claimed)
        return {name: self.machines[name] for name in names}

    def is_still(self, name: str, before: Machine) -> bool:
        """Returns whether the inventory's machine for this place is the same machine under another address: it has the
        same host key and this server's mark for that place."""
        now, survey, was = self.machines.get(name), self.surveys.get(name), before.host or before
        mark = MachineClaim(before.cluster, self.provider.server_id, name)
        return now is not None and survey is not None and now.host_key == was.host_key and survey.claim == mark

    def place(self, place: Placement) -> Placement:
        """Returns the placement as it will be once this survey is stored."""
        ports = {name: container.port for name, container in self.containers.items()}
        own = place.own and replace(
            place.own,
            nfs=self.judgement.nfs,
            server_addresses=self._ways_in(place.own.server_addresses),
            ssh_ports=tuple(sorted({*place.own.ssh_ports, *ports.values()})),
            machine_ports={**place.own.machine_ports, **ports},
        )
        found = {name: hardware for name, hardware in self.judgement.found.items() if name in place.addresses}
        return replace(place, found=found, own=own)

    def _ways_in(self, known: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the addresses from which machines see the server connect. With address translation or a bastion with
        several addresses they differ from those that the server knows, so each machine reports its own."""
        return tuple(sorted({*known, *(survey.seen_from for survey in self.surveys.values() if survey.seen_from)}))

    def with_notes(self, changes: ChangeSet) -> ChangeSet:
        """Returns the ChangeSet with notes on what a user should know before an apply."""
        listed = _owned(self.cluster, {name: host.address for name, host in self.run_in.hosts.items()})
        notes = list(moved_host_notes(self.there, listed, self.taken))
        notes += container_notes(self.cluster.image, self.surveys, self.judgement.contained)
        notes += driver_notes(self.cluster, self.surveys, self.claimed)
        notes += [f"apply would stop: {problem.what}; {problem.fix}" for problem in self.stops]
        notes += [f"{problem.what}; {problem.fix}" for problem in self.judgement.problems if not problem.fatal]
        return replace(changes, notes=(*changes.notes, *notes), differences=self.judgement.differences)


async def survey_machines(
    cluster: Cluster, context: ClusterContext, new: Sequence[str] | None = None
) -> InventorySurvey | None:
    """Surveys every machine that there is. `new`: slots that get a rented machine now; None: all that the cluster file wants.
    Others that were rented and that the cluster has not taken are left out: they may not answer yet. Returns None for a
    provider whose machines start from node images, and where nothing is rented yet."""
    provider = context.provider
    if not isinstance(provider, OwnedMachinesProvider):
        return None
    place = await context.provider.find(cluster)
    if place is None:
        return None
    there = {machine.name: machine for machine in await context.provider.list(cluster.name)}
    taken = frozenset(there) - await provider.replaced(cluster.name)
    contained = frozenset(name for name in taken if there[name].host is not None)
    run_in = DeclaredHosts(await provider.inventory(cluster), taken, contained)
    paths = (cluster.storage.home, cluster.storage.scratch)
    users = [user.name for user in cluster.users]
    expected = await context.store.linux_uids.assign_uids(users, give=False)
    limit = asyncio.Semaphore(_AT_ONCE)
    machines: dict[str, Machine] = {}
    surveys: dict[str, Survey] = {}
    silent: dict[str, HeadwayError] = {}

    async def survey(name: str) -> None:
        async with limit:
            try:
                machines[name] = await provider.candidate(cluster, name)
                surveys[name] = await survey_machine(
                    context.connections,
                    machines[name],
                    paths,
                    users,
                    cluster.storage.state if name in cluster.heads else "",
                    sorted(expected.values()),
                )
            except HeadwayError as error:
                silent[name] = error

    names = cluster.machine_names
    if isinstance(provider, RentingProvider):
        wanted = {*taken, *((*cluster.heads, *choose_slots(cluster, taken)) if new is None else new)}
        rented = wanted.intersection(await provider.rented(cluster))
        names = tuple(
            name for name in names if name in rented or (new is None and not cluster.provider_of(name).rents_machines)
        )
    await asyncio.gather(*(survey(name) for name in names))
    agreed = {**agreed_uids(surveys, users), **cluster.file_uids}
    known = EarlierFindings(
        provider.server_id,
        await context.store.linux_uids.assign_uids(users, give=False, wishes=agreed),
        {n: f for n, f in place.found.items() if n in taken},
        place.own.nfs if place.own else (),
        frozenset(await context.store.linux_uids.known_uids(users)),
        run_in,
    )
    ordered = {name: surveys[name] for name in names if name in surveys}
    return InventorySurvey(
        cluster,
        provider,
        machines,
        ordered,
        silent,
        taken,
        evaluate_surveys(cluster, ordered, known),
        agreed,
        run_in,
        known.found,
        _owned(cluster, {name: machine.address for name, machine in there.items()}),
    )


def _owned(cluster: Cluster, addresses: Mapping[str, str]) -> dict[str, str]:
    return {name: address for name, address in addresses.items() if not cluster.provider_of(name).rents_machines}


def check_claimable(found: InventorySurvey) -> None:
    """Raises Refused with everything that stops an apply, before anything was changed."""
    if found.stops:
        raise Refused(
            "these machines can't be used in their present state:\n"
            + "\n".join(f"  {problem.what}\n    {problem.fix}" for problem in found.stops),
            hint="no machine was changed; correct that or remove the machines from hosts, then apply again",
        )


def check_state_stays(cluster: Cluster, changes: ChangeSet) -> None:
    """Raises Refused if the change would detach the volume that Slurm's state is on."""
    above = {unit_name(str(path)): path for path in PurePosixPath(cluster.state_folder).parents if str(path) != "/"}
    for change in changes.changes:
        unit = change.what.rpartition("/")[2]
        if change.kind == "file.remove" and change.where in cluster.heads and unit in above:
            raise Refused(
                f"Slurm's state lies on {above[unit]}, which would be detached from {change.where}",
                hint="set another storage.state and apply; then remove the volume",
            )


async def claim_machine(context: ClusterContext, server_id: str, machine: Machine, *, with_python: bool = True) -> None:
    """Marks the machine as claimed and installs Python. Raises Refused if another cluster claimed it first, Unreachable
    if no claim could be written, and CommandFailed if Python can't be installed."""
    ours = {"cluster": machine.cluster, "server": server_id, "machine": machine.name}
    script = (node_dir() / "programs" / "owned_machines" / "claim_machine.sh").read_bytes()
    argv = ["sh", "-s", "--", json.dumps(ours), *(["python3"] if with_python else [])]
    ran = await context.connections.remote(machine, argv, timeout_s=_TAKE_S, input=script, check=False)
    try:
        holder = json.loads(ran.stdout.splitlines()[0])
    except (ValueError, IndexError):
        raise Unreachable(
            f"{machine.name} ({machine.address}) could not be claimed: {ran.stderr.strip()[-300:]}"
        ) from None
    if holder != ours:
        raise Refused(
            f"{machine.name} ({machine.address}) was just claimed by cluster {holder.get('cluster')}",
            hint="use another machine: a machine belongs to one cluster",
        )
    if ran.code != 0:
        raise CommandFailed(["apt-get", "install", "python3"], ran.code, ran.stderr, where=machine.name)


async def check_shared_folders(
    context: ClusterContext, cluster: Cluster, nfs: Iterable[str], machines: Mapping[str, Machine]
) -> None:
    """Checks that home and scratch, unless the head exports them, are the same folder everywhere: what the head writes,
    all other machines see. Raises Refused."""
    head = next((machines[name] for name in cluster.heads if name in machines), None)
    if head is None:
        return
    others = [machine for machine in machines.values() if machine is not head]
    token = secrets.token_hex(8)
    for where in sorted({cluster.storage.home, cluster.storage.scratch} - set(nfs)):
        file = f"{where}/{_SIGN}-{token}"
        await context.connections.remote(head, ["sh", "-c", ': >"$1"', "sh", file], timeout_s=30)
        try:
            tests = [
                context.connections.remote(machine, ["test", "-e", file], timeout_s=30, check=False)
                for machine in others
            ]
            seen = await asyncio.gather(*tests)
        finally:
            await context.connections.remote(head, ["rm", "-f", file], timeout_s=30, check=False)
        lacking = [machine.name for machine, ran in zip(others, seen, strict=True) if ran.code != 0]
        if lacking:
            raise Refused(
                f"{where} looks alike on all machines, but files of {head.name} there do not appear on {compress(lacking)}",
                hint=f"mount the same {where} on every machine, or on none: then the head exports it",
            )


async def check_shared_state_folder(context: ClusterContext, cluster: Cluster, machines: Mapping[str, Machine]) -> None:
    """Checks that the folder for Slurm's state is the same on both heads, and that root may change owners in it. Checks
    nothing if Headway has yet to mount the folder. Raises Refused."""
    where = cluster.storage.state
    volumes = (volume.path for volume in cluster.storage.volumes)
    heads = [machines[name] for name in cluster.heads if name in machines]
    if not where or not heads or any(f"{where}/".startswith(f"{path}/") for path in volumes):
        return
    first, *others = heads
    file = f"{where}/{_SIGN}-{secrets.token_hex(8)}"
    made = await context.connections.remote(first, ["sh", "-c", _SIGNS, "sh", where, file], timeout_s=30, check=False)
    try:
        if made.code != 0:
            raise Refused(
                f"{first.name}: root can't change the owner of files in {where}: {made.stderr.strip()[-200:]}",
                hint="export it to the heads with no_root_squash: Slurm's state belongs to user slurm",
            )
        for machine in others:
            ran = await context.connections.remote(machine, ["test", "-e", file], timeout_s=30, check=False)
            if ran.code != 0:
                raise Refused(
                    f"{where} looks alike on both heads, but files of {first.name} there do not appear on {machine.name}",
                    hint="mount the same file system there on both heads",
                )
    finally:
        await context.connections.remote(first, ["rm", "-f", file], timeout_s=30, check=False)


async def store_findings(cluster: Cluster, found: InventorySurvey, names: Iterable[str]) -> None:
    """Stores what was found on these machines."""
    judged = found.judgement
    await found.provider.note(cluster.name, {n: judged.found[n] for n in names if n in judged.found}, judged.nfs)


def loads_firewall_rules(steps: Iterable[remote_steps.Step]) -> bool:
    """Returns whether these steps load or change the firewall's rules."""
    return any(firewall.SERVICE in cast(list[str], step.get("names", [])) for step in steps if step["op"] == "units")


async def check_ssh_after_firewall(context: ClusterContext, machine: Machine) -> None:
    """Tries a new SSH connection after the firewall's rules were loaded, because open connections continue under any
    rules. If it fails, disables the rules and raises Refused."""
    for _ in range(_KNOCKS):
        try:
            await context.connections.knock(machine)
            return
        except Unreachable as error:
            reason = error.message
    await context.connections.remote(machine, ["systemctl", "disable", "--now", firewall.SERVICE], timeout_s=30)
    raise Refused(
        f"{machine.name} ({machine.address}) accepts no SSH connection with firewall.ssh_from: {reason}",
        hint="the rules are removed again; add the network of the server to firewall.ssh_from",
    )


async def release_machine(
    context: ClusterContext, machine: Machine, report: ReportProgress, delete: Sequence[str] = ()
) -> None:
    """Releases one machine. Only warns if it does not answer. `delete`: folders with the cluster's data to delete
    too."""
    if machine.host is not None:
        await _release_host(context, machine, machine.host, report, delete)
        return
    step: remote_steps.Step = {"op": "leave", "units": list(_ENDED), "delete": list(delete)}
    try:
        await remote_steps.run_steps(context.connections, machine, [step], timeout_s=_LEAVE_S)
        await report(
            machine.name,
            f"returned: {machine.address} is in its former state, except for installed packages",
            done=True,
        )
    except StoreUnavailable:
        raise  # the server's database is no part of a machine
    except HeadwayError as error:
        await report(
            machine.name,
            f"{machine.address} could not be returned and keeps Headway's files and /etc/headway/held-by: "
            f"{error.message}",
            level="warning",
            done=True,
        )


async def _release_host(
    context: ClusterContext, machine: Machine, host: Machine, report: ReportProgress, delete: Sequence[str]
) -> None:
    """Removes the machine from the host that it runs on. Only warns if the host does not answer."""
    try:
        await host_containers.remove_container(context, host, delete)
        await report(machine.name, f"its container is gone: host {host.address} is in its former state", done=True)
    except StoreUnavailable:
        raise  # the server's database is no part of a machine
    except HeadwayError as error:
        await report(
            machine.name,
            f"host {host.address} could not be returned and keeps {host_containers.FOLDER} and /etc/headway/held-by: "
            f"{error.message}",
            level="warning",
            done=True,
        )
