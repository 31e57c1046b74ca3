"""Brings the accounts in Slurm's accounting to those of the cluster file, as a step of an apply."""

from __future__ import annotations

from headway.changes.account_changes import account_changes
from headway.changes.cluster_changes import DesiredState
from headway.cluster import remote_steps
from headway.cluster.context import ClusterContext
from headway.cluster.machine_steps import CONVERT_S, STAGE_S, save_accounts_step, wait_for_slurmdbd, wait_step
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine
from headway.domain.operation_progress import ReportProgress
from headway.domain.slurm.accounts import Accounts
from headway.errors import HeadwayError, Refused
from headway.slurm.accounting import sacctmgr_reader
from headway.slurm.accounting.sacctmgr_commands import account_change_argv, add_missing_qos_argv


async def add_partition_qos(cluster: Cluster, context: ClusterContext, head: Machine) -> None:
    """Adds the QOS of partitions that are missing, without limits. slurmctld needs them before it reads a slurm.conf that
    names them, and slurmdbd knows the resources of limits only after slurmctld's first start. slurmdbd may end once soon
    after its own, and is waited for."""
    names = [partition.qos for partition in cluster.partitions if partition.qos]
    steps = [wait_step(add_missing_qos_argv(name), f"slurmdbd does not add QOS {name}") for name in names]
    await remote_steps.run_steps(context.connections, head, steps)


async def update_accounts(goal: DesiredState, context: ClusterContext, head: Machine, report: ReportProgress) -> None:
    """Adds, changes and removes accounts, users and limits in accounting. Raises Refused if slurmdbd does not answer."""
    changes = account_changes(goal.accounts, await _read_accounts(context, head))
    steps = [remote_steps.run_step(account_change_argv(c.data)) for c in changes]
    if steps:
        await remote_steps.run_steps(context.connections, head, steps)
        await report("accounts", f"{len(steps)} changes to teams, users and limits", done=True)
    if steps and goal.cluster.controllers > 1:
        await remote_steps.run_steps(context.connections, head, [save_accounts_step(goal.cluster.slurm_version)])


async def _read_accounts(context: ClusterContext, head: Machine) -> Accounts:
    """Returns the accounts once slurmdbd answers. A slurmdbd that has just started may first convert the records of an
    earlier Slurm version. Raises Refused if it does not answer."""
    try:
        await remote_steps.run_steps(context.connections, head, [wait_for_slurmdbd()], timeout_s=CONVERT_S + STAGE_S)
        return await sacctmgr_reader.read_accounts(context.connections, head)
    except HeadwayError as error:
        raise Refused(
            f"{head.name}: slurmdbd runs but does not answer sacctmgr: {error.message}",
            hint=f"headway exec {head.cluster} -- journalctl -u slurmdbd",
        ) from error
