"""Replaces the GPU driver of owned nodes in service, when the cluster file wants another one."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from headway.changes.checks.gpu_drivers import driver_change, drivers_to_roll
from headway.cluster.owned import gpu_drivers, machine_claims
from headway.domain.changeset import Change, ChangeSet, Disturbs
from headway.domain.machines.machine import Machine
from headway.domain.machines.survey import Survey
from headway.domain.operation_progress import OperationWaits, ReportProgress
from headway.domain.slurm.node_reasons import DRIVER_REASON
from headway.errors import HeadwayError
from headway.health.context import HealthContext
from headway.render.system.agent_config import AGENT, GPU_PARTS
from headway.rollout.node_rollout import CreationLock, NodeRollout, read_rollout_state, return_unchanged_nodes
from headway.rollout.rollout_changes import RolloutState

DRIVER = "gpu.driver"  # kind of a Change: the driver is replaced
# The daemons that keep a GPU open, so that the kernel can't unload its driver: on a native node, and on a host.
_NATIVE = ("slurmd.service", AGENT)
_HOST = ("headway-machine.service",)
_SYSTEMCTL_S = 300


async def plan_driver_rollout(context: HealthContext, *, by: bool) -> ChangeSet:
    """Returns the nodes in service whose driver a rollout would replace. `by`: jobs are requeued after a deadline."""
    cluster = context.cluster
    due = await _read_due(context)
    if due is None:
        return ChangeSet(cluster.name, ())
    seen = due.state
    changes, notes = [], []
    for name in sorted({*seen.rolling, *due.surveys}):
        if name not in due.surveys:
            why = "its driver is replaced already and not tested yet"
            changes.append(Change(DRIVER, name, "GPU driver", why, Disturbs.REBUILD))
            continue
        if name in seen.out and name not in seen.rolling:
            notes.append(f"{name} is out of service and stays unchanged: {seen.out[name]}")
            continue
        jobs = seen.busy.get(name, ())
        waits = "its jobs may continue until the deadline" if by else "once its jobs have ended"
        why = driver_change(cluster.gpu_driver, due.surveys[name]) + (f"; {waits}" if jobs else "")
        changes.append(Change(DRIVER, name, "GPU driver", why, Disturbs.JOBS if jobs and by else Disturbs.REBUILD))
    why_empty = "" if changes else "no node in service needs another GPU driver"
    return ChangeSet(cluster.name, tuple(changes), why_empty, tuple(notes))


async def roll_drivers(
    context: HealthContext, report: ReportProgress, alone: CreationLock, waits: OperationWaits, *, until: float | None
) -> bool:
    """Replaces the driver node by node. Returns False if another operation has to go first (`waits`). `until`: unix
    seconds from which jobs are requeued. Raises Refused when a node fails its tests; that node stays drained."""
    due = await _read_due(context)
    if due is None or not (due.surveys or due.state.rolling):
        return True
    return await DriverRollout(context, report, alone, waits, until, machines=dict(due.machines)).roll_all()


async def halt_driver_rollout(context: HealthContext, report: ReportProgress) -> None:
    """Returns nodes to service that are drained and still have their former driver. The others stay drained."""
    due = await _read_due(context)
    if due is None or not due.state.rolling:
        return
    back = "is in service again with its former GPU driver"
    await return_unchanged_nodes(context, report, due.state.rolling, due.surveys, kind=DRIVER_REASON, back=back)


@dataclass(frozen=True)
class _Due:
    """The nodes in service that lack the driver of the cluster file, and what the rollout decides by."""

    state: RolloutState
    surveys: Mapping[str, Survey]
    machines: Mapping[str, Machine]  # of a node in a container, its host


async def _read_due(context: HealthContext) -> _Due | None:
    """Returns the nodes to change; None where machines are not the user's own."""
    if context.cluster_context.provider.traits.boots_node_images:
        return None
    state = await read_rollout_state(context, DRIVER_REASON)
    found = None
    if context.cluster.gpu_driver.install:
        found = await machine_claims.survey_machines(context.cluster, context.cluster_context)
    if found is None:
        return _Due(state, {}, {})
    names = drivers_to_roll(context.cluster, found.surveys, found.claimed)
    return _Due(state, {name: found.surveys[name] for name in names}, {name: found.machines[name] for name in names})


@dataclass
class DriverRollout(NodeRollout):
    """The rollout of a driver. `machines`: by node, the machines that lack it; of a node in a container, its host."""

    machines: dict[str, Machine] = field(kw_only=True)
    reason: ClassVar[str] = DRIVER_REASON

    @property
    def target(self) -> str:
        branch = self.context.cluster.gpu_driver.branch
        return f"NVIDIA driver {branch}" if branch else "the newest NVIDIA driver"

    @property
    def changed(self) -> str:
        return f"has {self.target}"

    async def nodes_due(self, seen: RolloutState) -> tuple[str, ...]:
        names = [
            name
            for name in self.context.cluster.slot_names
            if name in seen.rolling or (name in self.machines and name not in seen.out)
        ]
        return tuple(sorted(names, key=lambda name: (name not in seen.rolling, name in seen.busy)))

    async def nodes_left_out(self, seen: RolloutState) -> Mapping[str, str]:
        return {name: seen.out[name] for name in self.machines if name in seen.out and name not in seen.rolling}

    async def change_node(self, name: str) -> None:
        machine = self.machines.get(name)
        if machine is None:
            return
        node = (await self.context.machines())[name]
        units = _HOST if node.host is not None else _NATIVE
        context = self.context.cluster_context
        if node.host is None and await self._has_unit(GPU_PARTS, machine):
            units = (*units, GPU_PARTS)  # a driver that was reloaded has no MIG instances; slurmd waits for them
        await self._systemctl("stop", units, machine)
        try:
            await gpu_drivers.install_driver(context, self.context.cluster.gpu_driver, name, machine, self.report)
        except HeadwayError:
            with contextlib.suppress(HeadwayError):  # the installation's error says more
                await self._systemctl("start", units, machine)
            raise
        await self._systemctl("start", units, machine)
        await context.connections.drop(name)
        del self.machines[name]

    async def _has_unit(self, unit: str, machine: Machine) -> bool:
        argv = ["systemctl", "cat", unit]
        run = self.context.cluster_context.connections
        return (await run.remote(machine, argv, timeout_s=_SYSTEMCTL_S, check=False)).code == 0

    async def _systemctl(self, action: str, units: Sequence[str], machine: Machine) -> None:
        await self.context.cluster_context.connections.remote(
            machine, ["systemctl", action, *units], timeout_s=_SYSTEMCTL_S
        )
