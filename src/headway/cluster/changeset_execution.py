"""Carries out one ChangeSet: all machines in parallel, nodes after the controller.

Each step can be repeated, so the next apply completes a killed one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from headway.changes.cluster_changes import DesiredState
from headway.changes.machine_changes import machine_changes
from headway.cluster import old_heads, remote_steps
from headway.cluster.accounts import slurm_accounts
from headway.cluster.active_head import active_or_stopped_head
from headway.cluster.context import ClusterContext
from headway.cluster.desired_state import read_site
from headway.cluster.keys import munge_key
from headway.cluster.machine_request import machine_request
from headway.cluster.machine_steps import AFTER_CONTROLLER, stage_timeout_s, steps_by_stage
from headway.cluster.observe import observe_machine
from headway.cluster.owned import host_containers, machine_claims
from headway.cluster.parallel_machines import failed_machines_error
from headway.cluster.readiness import finish_bring_up, return_new_node, wait_for_nodes, wait_for_slurmrestd
from headway.cluster.rented.missing_machines import rent_and_claim
from headway.cluster.scaling.scale_in import BackgroundTasks, MachineRemoval, YieldedToOperation
from headway.domain.changeset import REBUILD, RESTART, Change, ChangeSet
from headway.domain.cluster import ACCOUNTING_FOLDER, RESTORING_SUFFIX
from headway.domain.machines.machine import Machine, MachineRequest
from headway.domain.machines.observed_state import NOT_OBSERVED, Observed, ObservedMachine
from headway.domain.machines.scale_in_deadline import Deadline
from headway.domain.machines.site import Site
from headway.domain.operation_progress import ReportProgress
from headway.domain.slurm.hostlist import compress
from headway.errors import CommandFailed, HeadwayError, Refused, Unreachable
from headway.images import build, local_images
from headway.parallel_tasks import run_all
from headway.providers.base import OwnedMachinesProvider, Placement
from headway.render.ha import slurm_state_folder
from headway.slurm import node_commands
from headway.store import StoreUnavailable

# Machines created at the same time: starting a container mostly uses this host's CPUs.
MAKE_AT_ONCE = 6
BOOT_S = 120
BeforeStage = Callable[[Machine], Awaitable[None]]
BRINGS_UP = ("machine.create", "machine.start", RESTART, REBUILD)  # machines that must register with Slurm


@dataclass
class ChangeSetExecution:
    """Carries out one ChangeSet."""

    goal: DesiredState
    context: ClusterContext
    report: ReportProgress
    place: Placement
    secrets: dict[str, str]
    observed: Observed
    changes: ChangeSet
    deadline: Deadline | None = None  # see `apply_cluster`
    waiting_work: BackgroundTasks | None = None  # see `apply_cluster`
    before: Mapping[str, BeforeStage] = field(default_factory=dict)  # see `apply_cluster`
    new: Mapping[str, str] = field(default_factory=dict)  # see `apply_cluster`
    rests: bool = False  # see `apply_cluster`
    leaving: frozenset[str] = frozenset()  # nodes that another operation has drained and that this one leaves alone
    image: str = ""  # tag of the image to create machines from; "": the cluster's pinned image, or the present one
    head_begins: asyncio.Event = field(default_factory=asyncio.Event)  # the head's machine is being created
    controller_up: asyncio.Event = field(default_factory=asyncio.Event)
    failures: dict[str, HeadwayError] = field(default_factory=dict)
    making: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAKE_AT_ONCE))
    machines: dict[str, Machine] = field(default_factory=dict)
    resting: list[str] = field(default_factory=list)  # heads whose controller is stopped until Slurm's state has moved
    state_at: str = ""  # the folder of Slurm's state before it moves
    # machines that the user owns and that run in containers on their hosts
    containers: Mapping[str, machine_claims.HostContainer] = field(default_factory=dict)

    async def execute(self) -> None:
        """Carries out the changes. Raises the head's error at once, and at the end Refused naming every other machine
        that failed."""
        cluster = self.goal.cluster
        by_machine: dict[str, list[Change]] = {}
        for change in self.changes.changes:
            by_machine.setdefault(change.where, []).append(change)
        self.machines.update(self.observed.machines)
        served = await old_heads.remove_old_heads(cluster, self.context, self.report, self.changes, self.machines)
        names = [cluster.head, *(name for name in self.goal.machines[1:] if name in by_machine)]
        await run_all(self._guard(name, self.bring(name, by_machine.get(name, []))) for name in names)
        if cluster.head in self.failures:
            raise self.failures[cluster.head]
        await self._end_sessions()
        await wait_for_slurmrestd(cluster, self.context, self.machines[cluster.head])
        await wait_for_nodes(cluster, self.context, self.machines[cluster.head], served)
        started = frozenset(c.where for c in self.changes.changes if c.kind in BRINGS_UP)
        await finish_bring_up(
            self.goal, self.context, self.report, started - set(self.failures), self.leaving, self.failures
        )
        if self.failures:
            raise failed_machines_error(self.failures, self.goal)

    async def claim_machines(self, seen: machine_claims.InventorySurvey) -> Site:
        """Claims new machines that the user owns. All of them are marked and their host keys pinned before any is set
        up, because nodes trust each other's users by these keys. Returns the site with what was found. Raises Refused
        naming the machines that failed."""
        cluster, provider = self.goal.cluster, seen.provider
        self.containers = seen.containers
        new = [change.where for change in self.changes.changes if change.kind == "machine.create"]
        if new:
            await self.report("machines", f"{len(new)} are being claimed")
        taken = await self.context.machines(cluster.name)
        # Machines whose place another machine takes are removed first. A machine that only has a new address keeps its
        # jobs.
        left = {name: taken[name] for name in new if name in taken and not seen.is_still(name, taken[name])}
        if left:
            await (await self._leaving(left, stays=True)).remove_machines(tuple(left))

        async def one(name: str) -> None:
            async with self.making:
                native = name not in self.containers
                await machine_claims.claim_machine(
                    self.context, provider.server_id, seen.machines[name], with_python=native
                )
                machine = await self.context.provider.create(await self._request(name))
                if machine.host is not None:
                    self.machines[name] = machine

        await run_all(self._guard(name, one(name)) for name in new)
        if self.failures:
            raise failed_machines_error(self.failures, self.goal)
        answering = {name: seen.machines[name] for name in seen.surveys}
        if new:
            await machine_claims.check_shared_folders(self.context, cluster, seen.judgement.nfs, answering)
        if new or any((c.kind, c.what) == ("dir.make", cluster.state_folder) for c in self.changes.changes):
            await machine_claims.check_shared_state_folder(self.context, cluster, answering)
        await machine_claims.store_findings(cluster, seen, seen.surveys)
        return await read_site(cluster, self.context, seen.place(self.place), self.goal.members)

    async def _guard(self, name: str, work: Awaitable[None]) -> None:
        """Waits for the work on one machine and keeps its error for the end; only an error of the head stops the rest.
        Raises StoreUnavailable, which is no fault of the machine."""
        try:
            await work
        except StoreUnavailable:
            raise
        except HeadwayError as error:
            self.failures[name] = error
            await self.report(name, error.message, level="error", done=True)
            if name == self.goal.cluster.head:
                await self._stand_by_again()
                self.head_begins.set()
                self.controller_up.set()

    async def _end_sessions(self) -> None:
        """Ends the processes of users who left, on all machines. Their jobs were cancelled with their accounts."""
        leaving: dict[str, list[str]] = {}
        for change in self.changes.changes:
            if change.kind == "user.end" and change.where not in self.failures:
                leaving.setdefault(change.where, []).append(change.what)
        for name, users in leaving.items():
            await remote_steps.run_steps(
                self.context.connections, self.machines[name], [{"op": "end_sessions", "users": users}]
            )

    async def clear(self) -> bool:
        """Removes the machines that leave, before any other change. Returns whether it waited for jobs, so that other
        machines may have been created or deleted meanwhile."""
        going = [c.where for c in self.changes.changes if c.kind == "machine.delete"]
        if not going:
            return False
        if self.rests:
            words = "stays, although the file has no slot for it: the next apply returns it or uses it again"
            await self.report(compress(going), words, level="warning", done=True)
            return False
        leaving = await self._leaving(self.observed.machines)
        leaving.waiting_work = self.waiting_work
        # Another operation may only go first if it leaves these nodes alone. It could not do so for owned machines, or
        # for slots that are no longer in the file.
        leaving.steps_aside = self.context.provider.traits.creates_machines and set(going) <= set(
            self.goal.cluster.slot_names
        )
        try:
            await leaving.remove_machines(going)
        except YieldedToOperation:
            if self.waiting_work is not None:
                await self.waiting_work.finish_tasks()
            raise
        except BaseException:
            if self.waiting_work is not None:
                await self.waiting_work.close()
            raise
        if self.waiting_work is not None:
            await self.waiting_work.finish_tasks()
        return leaving.waited

    async def replace_munge_key(self) -> None:
        """Replaces the MUNGE key of running machines, see cluster.keys.munge_key.replace_munge_key."""
        done = await munge_key.replace_munge_key(self.context, self.goal, self.observed, self.secrets, self.new)
        self.machines.update({name: self.observed.machines[name] for name in done})
        await asyncio.gather(*(self._observe_again(name) for name in done))
        if done:
            count = f"{len(done)} machine{'s have' if len(done) != 1 else ' has'}"
            await self.report("key", f"{count} the new MUNGE key", done=True)

    async def _observe_again(self, name: str) -> None:
        """Reads the facts of one machine again."""
        with contextlib.suppress(HeadwayError):  # a machine that does not answer is reported when it is set up
            found = await self._observe(name)
            self.observed = replace(self.observed, seen={**self.observed.seen, name: found})

    async def _leaving(self, machines: Mapping[str, Machine], *, stays: bool = False) -> MachineRemoval:
        head = (
            None
            if self.rests
            else await active_or_stopped_head(self.goal.cluster, self.context, self.observed.machines)
        )
        leaving = MachineRemoval(
            self.goal.cluster, self.context, self.report, head, machines, self.deadline, keeps_slot=stays
        )
        traits = self.context.provider.traits
        leaving.before_release = self._leave_own if not traits.creates_machines else None
        return leaving

    async def _leave_own(self, machine: Machine) -> None:
        await machine_claims.release_machine(self.context, machine, self.report)

    async def bring(self, name: str, changes: list[Change]) -> None:
        """Creates or starts one machine, sets it up and starts its daemons. Waits while a repair restarts the
        machine."""
        lock = self.context.machine_locks[name]
        restarts = lock.locked()
        if restarts:
            await self.report(name, "waits until the repair of the node has restarted the machine")
        async with lock:
            if restarts:
                await self._observe_again(name)
            await self._bring(name, changes)

    async def _bring(self, name: str, changes: list[Change]) -> None:
        kinds = {change.kind for change in changes}
        seen, fresh = self.observed.seen.get(name), False
        if kinds.intersection(BRINGS_UP):
            fresh = await self._make(name, kinds)
            # A new container has the packages and parts of its image, unlike a new machine without an image.
            contained = self.machines[name].host is not None
            seen = NOT_OBSERVED if fresh and not contained else await self._observe(name)
        if seen is None:
            raise Refused(f"{name}: {self.observed.unreachable.get(name, 'is not there')}", hint="run apply again")
        await self._set_up(name, seen, fresh=fresh)
        if fresh and name in self.goal.cluster.group_of and self.observed.seen.keys() & set(self.goal.cluster.heads):
            await return_new_node(self.context, await self._commanded_head(), name)

    async def _commanded_head(self) -> Machine:
        """Returns the head that gets commands about nodes. The first head may be down while the second one is
        active."""
        return (
            await active_or_stopped_head(self.goal.cluster, self.context, self.machines)
            or self.machines[self.goal.cluster.head]
        )

    async def _make(self, name: str, kinds: set[str]) -> bool:
        """Creates or starts the machine and waits until it answers. Returns whether it is a new one. A container that
        does not come back is created again, because nothing that must be kept is stored in it."""
        began = time.monotonic()
        fresh = bool({"machine.create", REBUILD} & kinds)
        if not fresh:
            await self.report(name, "machine is being started")
            try:
                await self._start(name, again=RESTART in kinds)
            except (Unreachable, CommandFailed) as error:
                if not self.goal.cluster.provider_of(name).creates_machines:
                    raise
                await self.report(name, f"{error.message}; the machine is recreated", level="warning")
                if self.goal.cluster.provider_of(name).rents_machines:
                    await self.context.provider.delete(self.observed.machines[name])
                    await rent_and_claim(self.goal.cluster, self.context, self.report, self.secrets, [name])
                fresh = True
        if fresh:
            owned = isinstance(self.context.provider, OwnedMachinesProvider)
            if self._creates_head and name != self.goal.cluster.head:  # the head's set-up takes longest
                await self.head_begins.wait()
            await self.report(name, "machine is being signed in to" if owned else "machine is being created")
            async with self.making:
                if name == self.goal.cluster.head:
                    self.head_begins.set()
                request, before = await self._request(name), self.machines.get(name)
                # The container comes first, so that the record of its image never says more than is true.
                if before is not None and before.host is not None:
                    image = (await local_images.get_image(request.image_tag)).id
                    await self._bring_up_container(before, before.host, image)
                machine = self.machines[name] = await self.context.provider.create(request)
            await self._wait(machine)
        await self.report(name, "machine is up", done=True, seconds=time.monotonic() - began)
        return fresh

    @property
    def _creates_head(self) -> bool:
        head = self.goal.cluster.head
        return any(c.where == head and c.kind in ("machine.create", REBUILD) for c in self.changes.changes)

    async def _start(self, name: str, *, again: bool) -> None:
        machine = self.observed.machines[name]
        if machine.host is not None:
            async with self.making:
                await self._bring_up_container(machine, machine.host, machine.image)
                if again:
                    await host_containers.restart_container(self.context, machine.host)
            await self._wait(machine)
            return
        async with self.making:
            now = (await self.context.machines(self.goal.cluster.name)).get(name, machine)
            if again and now.started_at == machine.started_at:  # a repair may have restarted it since it was observed
                await self.context.provider.stop(machine)
            await self.context.provider.start(machine)
            machine = self.machines[name] = (await self.context.machines(self.goal.cluster.name))[name]
        await self._wait(machine)

    async def _bring_up_container(self, machine: Machine, host: Machine, image: str) -> None:
        """Starts the machine from the image with this id, in the container on its host."""
        known = self.containers.get(machine.name)
        runtime = await host_containers.read_runtime(self.context, host) or (known.runtime if known else "")
        storage = self.goal.cluster.storage
        folders = (storage.home, storage.scratch)
        request = await self._request(machine.name, creates=False)
        await host_containers.bring_up(
            self.context, host, image, request, self.report, runtime=runtime, folders=folders
        )

    async def _wait(self, machine: Machine) -> None:
        """Waits until the machine answers SSH. Raises Unreachable, with a hint on how to see what the machine does."""
        await self.context.connections.drop(machine.name)  # a connection from before the restart may still seem to work
        try:
            await self.context.connections.wait_ready(machine, timeout_s=BOOT_S)
        except Unreachable as error:
            error.hint = error.hint or self.context.provider.inspection_hint(machine)
            raise

    async def _request(self, name: str, *, creates: bool = True) -> MachineRequest:
        """Returns the request for a machine. `creates` False: no image is looked for."""
        cluster = self.goal.cluster
        tag = await old_heads.image_tag_of(cluster, self.context, name, self.image) if creates else ""
        known, machine = self.containers.get(name), self.machines.get(name)
        port = machine.port if machine and machine.host else known.port if known else 0
        if port and creates and not tag:
            tag = (await build.ensure_image(cluster.image, self.report, state_dir=self.context.state_dir)).tag
        address = self.place.addresses[name]
        return machine_request(cluster, self.secrets, name, address, image_tag=tag, container_port=port)

    async def _observe(self, name: str) -> ObservedMachine:
        role = self.goal.cluster.role_of(name)
        seen, _ = await observe_machine(self.context, self.machines[name], self.goal.roles[role])
        return seen

    async def _set_up(self, name: str, seen: ObservedMachine, *, fresh: bool) -> None:
        began = time.monotonic()
        cluster = self.goal.cluster
        desired = self.goal.roles[cluster.role_of(name)]
        stages = steps_by_stage(machine_changes(name, desired, seen), desired, self.secrets, fresh=fresh)
        is_head, has_accounts = name == cluster.head, False
        for stage, steps in stages.items():
            if is_head and not has_accounts and stage in AFTER_CONTROLLER:
                await self._update_accounts()
                has_accounts = True
            if stage == "node" or (stage == "controller" and not is_head):
                await self.controller_up.wait()
                if cluster.head in self.failures:
                    raise Refused(f"{name}: waits for the head, which did not come up")
            if stage == "node" and cluster.group_of[name].idle_s is not None:
                await node_commands.power_up_node(self.context.connections, await self._commanded_head(), name)
            if is_head:
                await self.report(name, f"{stage}: {len(steps)} steps")
                if stage in self.before:
                    await self.before[stage](self.machines[name])
                elif stage == "accounting":
                    await self._not_half(self.machines[name])
                if stage == "controller":
                    await slurm_accounts.add_partition_qos(
                        self.goal.cluster, self.context, self.machines[self.goal.cluster.head]
                    )
                    await self._rest_others()
            if stage == "software" and any(step["op"] == "packages" for step in steps):
                await self.report(name, "packages are being installed from the machine's package sources")
            patience = stage_timeout_s(stage, steps)
            warnings = await remote_steps.run_steps(
                self.context.connections, self.machines[name], steps, timeout_s=patience
            )
            for warning in warnings:
                await self.report(name, f"a step failed, the others go on: {warning}", level="warning", done=True)
            if machine_claims.loads_firewall_rules(steps):
                await machine_claims.check_ssh_after_firewall(self.context, self.machines[name])
        if is_head and not has_accounts:
            await self._update_accounts()
        if stages:
            await self.report(name, "is set up", done=True, seconds=time.monotonic() - began)

    async def _update_accounts(self) -> None:
        """Updates teams, users and limits in Slurm, while the nodes already start their slurmd: they wait neither for
        this nor for volumes that only the head can't mount."""
        self.controller_up.set()
        head = self.machines[self.goal.cluster.head]
        await slurm_accounts.update_accounts(self.goal, self.context, head, self.report)

    async def _not_half(self, head: Machine) -> None:
        """Raises Refused if a restore is unfinished. Without this check slurmdbd would fail to start
        without a reason given."""
        argv = ["test", "-e", f"{ACCOUNTING_FOLDER}{RESTORING_SUFFIX}"]
        if (await self.context.connections.remote(head, argv, timeout_s=20, check=False)).code == 0:
            raise Refused(
                f"{head.name}: a restore is unfinished, so slurmdbd and slurmctld do not start",
                hint=f"run it again: headway restore {head.cluster} --from FILE",
            )

    async def _rest_others(self) -> None:
        """Stops the second controller if Slurm's state is to move. The first head copies the state while no controller
        runs, because another one would take over in the old folder. Each controller is started again in its own head's
        stage."""
        moves = {
            c.where for c in self.changes.changes if (c.kind, c.what) == ("file.write", slurm_state_folder.PROGRAM)
        }
        for name in self.goal.cluster.heads[1:]:
            seen = self.observed.seen.get(name)
            if name in moves and seen is not None and slurm_state_folder.PROGRAM in seen.files:
                await self.report(name, "slurmctld waits until Slurm's state has moved")
                self.state_at = self.state_at or await self._state_at()
                self.resting.append(name)
                await self._controller(name, "stop")

    async def _stand_by_again(self) -> None:
        """Starts the second controller again if the head failed and Slurm's state has not moved; otherwise the cluster
        would have no controller until the next apply. If the state has moved or the head can't be asked, a controller
        may be active in the new folder, and two would run."""
        head, waiting = self.goal.cluster.head, ", ".join(self.resting)
        if not waiting:
            return
        try:
            argv = ["systemctl", "is-active", "slurmctld.service"]
            ran = await self.context.connections.remote(self.machines[head], argv, timeout_s=20, check=False)
            if ran.stdout.strip() != "active":
                # it may still be copying the state, and systemd restarts it again and again
                await self._controller(head, "stop")
            if await self._state_at() != self.state_at:
                await self.report(
                    waiting, "slurmctld stays stopped until the next apply: Slurm's state has moved", level="warning"
                )
                return
            for name in self.resting:
                await self._controller(name, "start")
            await self.report(
                waiting,
                "slurmctld is on standby again, with Slurm's state in its former folder",
                level="warning",
                done=True,
            )
        except StoreUnavailable:
            raise  # the server's database is no part of a machine
        except HeadwayError as error:
            words = f"slurmctld stays stopped until the next apply: {error.first_line}"
            await self.report(waiting, words, level="warning")

    async def _controller(self, name: str, do: str) -> None:
        step = remote_steps.run_step(["systemctl", do, "slurmctld.service"], timeout_s=120)
        await remote_steps.run_steps(self.context.connections, self.machines[name], [step])

    async def _state_at(self) -> str:
        """Returns the folder of Slurm's state that the first head's last start recorded, "" if the state never
        moved."""
        head = self.machines[self.goal.cluster.head]
        return (
            await self.context.connections.remote(head, ["cat", slurm_state_folder.LAST], timeout_s=20, check=False)
        ).stdout
