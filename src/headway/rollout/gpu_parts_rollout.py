"""Changes how the GPUs of nodes are divided (MIG, shards, MPS). On a drained node without jobs slurmd is stopped, the
GPUs and Slurm's configuration are changed, and slurmd is started again, because Slurm ends the jobs of a node whose GPUs
change. How GPUs are divided now is in the head's slurm.conf."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from headway.cluster.apply import apply_cluster
from headway.cluster.current_gpu_parts import read_parts_now
from headway.cluster.desired_state import read_site
from headway.cluster.scaling.job_eviction import format_jobs
from headway.domain.changeset import Change, ChangeSet, Disturbs
from headway.domain.machines.gpu_parts import GpuParts
from headway.domain.operation_progress import OperationWaits, ReportProgress
from headway.domain.slurm.node_reasons import PARTS_REASON
from headway.errors import HeadwayError
from headway.health.context import HealthContext
from headway.render.machine_paths import agent_argv
from headway.render.system.agent_config import AGENT
from headway.rollout.node_rollout import CreationLock, NodeRollout, read_rollout_state, return_unchanged_nodes
from headway.rollout.rollout_changes import RolloutState

DIVIDE = "node.gpus"  # kind of a Change: the division of the GPUs of a drained node changes
STEP_S = 300.0
_DCGM = "nvidia-dcgm.service"


async def read_undivided(context: HealthContext) -> dict[str, GpuParts]:
    """Returns node -> how its GPUs are divided now, for the nodes where the cluster file says otherwise. Raises
    HeadwayError if the head's slurm.conf can't be read."""
    cluster, tools = context.cluster, context.cluster_context
    place = await tools.provider.find(cluster)
    if place is None or not any(group.plan.gpus for group in cluster.groups):
        return {}
    site = await read_site(cluster, tools, place, give_uids=False)
    return await read_parts_now(cluster, tools, site, await context.head(), await context.machines())


async def plan_parts_rollout(context: HealthContext, *, by: bool) -> ChangeSet:
    """Returns what this rollout would do now. `by`: jobs are requeued after a deadline."""
    present, seen = await read_undivided(context), await read_rollout_state(context, PARTS_REASON)
    changes = tuple(_change(context, name, seen, present, by=by) for name in nodes_to_divide(seen, present))
    notes = tuple(
        f"{name} is out of service and stays unchanged: {reason}"
        for name, reason in nodes_left_out(seen, present).items()
    )
    return ChangeSet(context.cluster.name, changes, "" if changes else "GPUs are divided as the file says", notes)


def nodes_to_divide(seen: RolloutState, present: Mapping[str, GpuParts]) -> tuple[str, ...]:
    """Returns the nodes still to do: those begun first, then those without jobs."""
    names = [*seen.rolling, *(name for name in present if name not in seen.rolling and name not in seen.out)]
    return tuple(sorted(names, key=lambda name: (name not in seen.rolling, name in seen.busy, name)))


def nodes_left_out(seen: RolloutState, present: Mapping[str, GpuParts]) -> dict[str, str]:
    """Returns the nodes that stay as they are because they are out of service, with the reason for that."""
    return {name: seen.out[name] for name in present if name in seen.out}


def _change(
    context: HealthContext, name: str, seen: RolloutState, present: Mapping[str, GpuParts], *, by: bool
) -> Change:
    wanted, jobs = context.cluster.group_of[name].parts.description, seen.busy.get(name, ())
    before = f", now {present[name].description}" if name in present else " and is not tested yet"
    what = f"each GPU is to be {wanted}{before}"
    if jobs and by:
        return Change(
            DIVIDE, name, "GPUs", f"{what}; {format_jobs(jobs)} may continue until the deadline", Disturbs.JOBS
        )
    waits = f", once {format_jobs(jobs)} {'has' if len(jobs) == 1 else 'have'} ended" if jobs else ""
    return Change(DIVIDE, name, "GPUs", what + waits, Disturbs.NODE_DRAIN)


async def roll_gpu_parts(
    context: HealthContext, report: ReportProgress, alone: CreationLock, waits: OperationWaits, *, until: float | None
) -> bool:
    """Divides the GPUs of all nodes in service as the cluster file says. Returns False if another operation has to go
    first (`waits`). `until`: unix seconds from which jobs are requeued. Raises Refused when a node fails its tests; that
    node stays drained, the others stay as they were."""
    if (await plan_parts_rollout(context, by=until is not None)).empty:
        return True
    return await PartsRollout(context, report, alone, waits, until).roll_all()


@dataclass
class PartsRollout(NodeRollout):
    """The rollout of how GPUs are divided; see `roll_gpu_parts`."""

    reason: ClassVar[str] = PARTS_REASON

    @property
    def target(self) -> str:
        return "the new division of GPUs"

    @property
    def changed(self) -> str:
        return "has its GPUs divided as the cluster file says"

    async def nodes_due(self, seen: RolloutState) -> tuple[str, ...]:
        return nodes_to_divide(seen, await read_undivided(self.context))

    async def nodes_left_out(self, seen: RolloutState) -> Mapping[str, str]:
        return nodes_left_out(seen, await read_undivided(self.context))

    async def change_node(self, name: str) -> None:
        """Divides the GPUs of a node. slurmd is stopped first, because it would end when Slurm's configuration names
        device files that do not exist yet; applying starts it again. The agent and DCGM are stopped because the driver
        switches the MIG mode only of a GPU that no program has open. Without MIG instances no unit of the node switches
        MIG off, so that is done here."""
        context = self.context
        wanted = context.cluster.group_of[name].parts
        await self.report(name, f"each GPU becomes {wanted.description}")
        connections, machine = context.cluster_context.connections, await context.running_machine(name)
        active = ["systemctl", "--quiet", "is-active", _DCGM]
        dcgm = (await connections.remote(machine, active, timeout_s=STEP_S, check=False)).code == 0
        stopped = ["slurmd.service", AGENT, *([_DCGM] if dcgm else [])]
        await connections.remote(machine, ["systemctl", "stop", *stopped], timeout_s=STEP_S)
        try:
            if not wanted.mig:
                await connections.remote(machine, agent_argv("parts", "none"), timeout_s=STEP_S)
            await apply_cluster(context.cluster, context.cluster_context, _quiet(self.report), divided=(name,))
        finally:
            with contextlib.suppress(HeadwayError):  # a node that does not answer is reported by its tests
                await connections.remote(machine, ["systemctl", "start", *stopped[1:]], timeout_s=STEP_S)


async def halt_parts_rollout(context: HealthContext, report: ReportProgress) -> None:
    """Returns nodes to service that are drained and whose GPUs were not changed yet. The others stay drained."""
    seen = await read_rollout_state(context, PARTS_REASON)
    present = await read_undivided(context) if seen.rolling else {}
    back = "is in service again, its GPUs as they were"
    await return_unchanged_nodes(context, report, seen.rolling, present, kind=PARTS_REASON, back=back)


def _quiet(report: ReportProgress) -> ReportProgress:
    """Returns a function that reports only warnings and errors, because an apply reports each of its steps."""

    async def report_problem(
        step: str, text: str, *, level: str = "info", done: bool = False, seconds: float | None = None
    ) -> None:
        if level != "info":
            await report(step, text, level=level, done=done, seconds=seconds)

    return report_problem
