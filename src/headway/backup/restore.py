"""Restores a cluster from its backup, on existing machines or on new ones.

The whole backup is read and checked first. Then the head's Slurm daemons are stopped, an apply creates what is
missing, and the backup is put in place after the database has started and before slurmdbd starts: no daemon ever runs
on a state that is only partly restored."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from headway.backup.archive import ArchiveReader
from headway.backup.create import program_argv
from headway.backup.verify import VerifiedBackup, record_rows, verify_backup
from headway.changes.desired_accounts import desired_accounts
from headway.cluster.apply import apply_cluster
from headway.cluster.context import ClusterContext
from headway.cluster.observe import replaced_machines
from headway.domain.cluster import ACCOUNTING_FOLDER, Cluster, head_names
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.operation_progress import ReportProgress
from headway.errors import CommandFailed, HeadwayError, Refused
from headway.slurm import job_commands
from headway.slurm.accounting.sacctmgr_commands import close_runaway_jobs_argv
from headway.store.clusters.cluster_records import BRINGING

STAMP = "/srv/headway-state/restored"  # contains the name of the restore that this head's state comes from
_DAEMONS = ("slurmctld.service", "slurmrestd.service", "slurmdbd.service")
_NO_UNIT = 5  # systemctl's exit code for an unknown unit
_MOST_HEADS = 2
_ROWS_AT_ONCE = 500
T = TypeVar("T")
_PART_S = 6 * 3600.0


@dataclass(frozen=True)
class BackupContents:
    """The small parts of a backup, in memory."""

    about: dict[str, Any]
    secrets: dict[str, str]
    uids: dict[str, int]
    proof: VerifiedBackup


def read_contents(path: Path, key: bytes) -> BackupContents:
    """Returns the small parts of a backup, after reading and checking the whole file. Raises Damaged."""
    proof = verify_backup(path, key)
    contents: dict[str, Any] = {}
    uids: dict[str, int] = {}
    with ArchiveReader(path, key) as reader:
        for name, pieces in reader.parts():
            if name in ("about", "secrets"):
                contents[name] = json.loads(b"".join(pieces))
            elif name == "records":
                uids = {values["name"]: values["uid"] for table, values in record_rows(pieces) if table == "uids"}
    return BackupContents(contents["about"], contents["secrets"], uids, proof)


async def restore_records(cluster: str, env_store: Any, path: Path, key: bytes, kept: BackupContents) -> int:
    """Restores Headway's own secrets and records of the cluster, and returns the number of records."""
    for name, value in kept.secrets.items():
        if name == BRINGING:
            continue
        await env_store.secrets.put_if_absent(cluster, name, value)
    with await asyncio.to_thread(ArchiveReader, path, key) as reader:
        parts = reader.parts()
        while (part := await asyncio.to_thread(next, parts, None)) is not None:
            name, pieces = part
            if name == "records":
                return int(await env_store.cluster_records.restore(cluster, _read_beside(record_rows(pieces))))
    return 0


async def _read_beside(found: Iterator[T]) -> AsyncIterator[T]:
    """Yields the rows, read in a thread, many at a time. Raises Refused where the file can't be read: inside a
    database transaction an OSError would be mistaken for an error of the database."""

    def some() -> list[T]:
        try:
            return list(islice(found, _ROWS_AT_ONCE))
        except OSError as error:
            raise Refused(
                f"the backup can't be read: {error.strerror or error}", hint="check that its disk is mounted"
            ) from error

    while batch := await asyncio.to_thread(some):
        for row in batch:
            yield row


async def restore_cluster(
    cluster: Cluster, context: ClusterContext, report: ReportProgress, path: Path, key: bytes, ref: str
) -> None:
    """Restores Slurm's state and its database. `ref` names this restore: after an interruption it starts from the
    beginning, unless everything was already put back; then later changes stay. The previous state that an earlier
    try has set aside is kept. Raises HeadwayError naming what could not be restored."""
    machines = await context.machines(cluster.name)
    head = machines.get(cluster.head)
    answers = done = False
    if head is not None and head.state is MachineState.RUNNING:
        with contextlib.suppress(HeadwayError):  # the apply recreates a head that does not answer
            done = (await _stamp(context, head)) == ref
            answers = True
    if not done:
        await _stop_other_controllers(cluster, context, report)
    if head is not None and answers and not done:
        await report("head", "Slurm's daemons are stopped")
        await _stop_daemons(context, head)
        await report("head", "Slurm's daemons are stopped", done=True)
    parts = (cluster.state_folder, ACCOUNTING_FOLDER)

    async def put_back(machine: Machine) -> None:
        nonlocal done
        if not done and (await _stamp(context, machine)) != ref:
            await _stop_daemons(context, machine)  # a head that was off has started the daemons at its boot
            await _run_state_program(context, machine, "begin", *parts)
            await _restore_parts(cluster, context, machine, report, path, key)
        await _run_state_program(context, machine, "end", STAMP, ref, *parts)
        done = True

    hook: Callable[[Machine], Awaitable[None]] = put_back
    await apply_cluster(_as_many(cluster, machines), context, report, before={"accounting": hook}, rests=True)
    if not done:
        raise Refused(f"{cluster.head}: slurmdbd did not stop, so nothing was restored", hint="run restore again")
    await _close_runaways(cluster, context, report)
    await _give_allowed_qos(cluster, context, report)


def _as_many(cluster: Cluster, machines: Collection[str]) -> Cluster:
    """Returns the cluster with as many nodes as exist, if these are more than the file's number: jobs of the
    backup may run on any of them. A group with autoscaling keeps its nodes anyway, and a larger number in
    Slurm's configuration would keep them powered up."""
    groups = []
    for group in cluster.groups:
        if group.idle_s is not None:
            groups.append(group)
            continue
        there = sum(name in machines for name in group.slots) - group.spares
        groups.append(replace(group, nodes=max(group.nodes, min(there, group.most))))
    return replace(cluster, groups=tuple(groups))


async def _stop_other_controllers(cluster: Cluster, context: ClusterContext, report: ReportProgress) -> None:
    """Stops the other controllers before the first one is stopped, because a second one would take over; the apply
    starts them again. Deletes the machine of a controller that does not answer, also of one that is powered off,
    because it would take over when it boots; the controller on a new machine waits for the first one. A controller
    that is not in the backup's cluster file is disabled. A machine of one's own that is being replaced need not
    answer: it was reinstalled, or is gone."""
    machines, replaced = await context.machines(cluster.name), await replaced_machines(context, cluster.name)
    for name in head_names(cluster.name, _MOST_HEADS)[1:]:
        machine = machines.get(name)
        if machine is None or await _ended(context, machine, for_good=name not in cluster.heads) or name in replaced:
            continue
        await report(name, "does not answer: its machine is recreated", level="warning")
        await context.provider.fence(machine)  # a paused machine must not continue before it is deleted
        await context.provider.delete(machine)
        await context.connections.drop(name)


async def _ended(context: ClusterContext, machine: Machine, *, for_good: bool) -> bool:
    """Returns whether the controller on the machine has stopped. `for_good` also disables it."""
    if machine.state is not MachineState.RUNNING:
        return False
    argv = ["systemctl", *(("disable", "--now") if for_good else ("stop",)), "slurmctld.service"]
    try:
        ran = await context.connections.remote(machine, argv, timeout_s=90, check=False)
    except HeadwayError:
        return False
    return ran.code in (0, _NO_UNIT)


async def _stop_daemons(context: ClusterContext, head: Machine) -> None:
    """Stops Slurm's daemons on the head. Raises Refused when they can't be stopped."""
    try:
        ran = await context.connections.remote(head, ["systemctl", "stop", *_DAEMONS], timeout_s=90, check=False)
    except CommandFailed:  # they are still stopping
        ran = None
    if ran is None or ran.code not in (0, _NO_UNIT):
        why = ran.stderr.strip()[-300:] if ran else "they took longer than 90 s"
        hint = f"nothing was restored; see headway exec {head.cluster} -- systemctl status slurmctld slurmdbd, then restore again"
        raise Refused(f"{head.name}: Slurm's daemons could not be stopped: {why}", hint=hint)


async def _run_state_program(context: ClusterContext, head: Machine, *words: str) -> None:
    """Runs node/programs/slurm_state_backup.py on the head. Raises Refused with its error message."""
    ran = await context.connections.remote(head, program_argv(*words), timeout_s=_PART_S, check=False)
    if ran.code != 0:
        raise Refused(f"{head.name}: {ran.stderr.strip()[-500:]}", hint="correct that, then run restore again")


async def _stamp(context: ClusterContext, head: Machine) -> str:
    return (await context.connections.remote(head, ["cat", STAMP], timeout_s=20, check=False)).stdout.strip()


async def _restore_parts(
    cluster: Cluster, context: ClusterContext, head: Machine, report: ReportProgress, path: Path, key: bytes
) -> None:
    takers = {"state": ("take", cluster.state_folder), "database": ("database", ACCOUNTING_FOLDER)}
    with await asyncio.to_thread(ArchiveReader, path, key) as reader:
        parts = reader.parts()
        while (part := await asyncio.to_thread(next, parts, None)) is not None:
            name, pieces = part
            if name in takers:
                await report(name, "is being restored")
                await _send(context, head, program_argv(*takers[name]), pieces)
                await report(name, "is restored", done=True)


async def _send(context: ClusterContext, head: Machine, argv: list[str], pieces: Iterator[bytes]) -> None:
    async def feed() -> AsyncIterator[bytes]:
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            yield piece

    output = b""
    async with asyncio.timeout(_PART_S):
        async for kind, data in context.connections.converse(head, argv, feed()):
            if kind == "code" and data != b"0":
                raise CommandFailed(argv[-2:], int(data), output.decode(errors="replace"), where=head.name)
            if kind != "code":
                output = (output + data)[-2000:]


async def _close_runaways(cluster: Cluster, context: ClusterContext, report: ReportProgress) -> None:
    """Closes accounting records of jobs that began after the backup read Slurm's state: they are in the database
    and unknown to slurmctld."""
    head = (await context.machines(cluster.name))[cluster.head]
    argv = close_runaway_jobs_argv()
    ran = await context.connections.remote(head, argv, timeout_s=60, check=False, input=b"y\n")
    if ran.code != 0:
        await report(
            "accounting", f"open job records were not checked: {ran.stderr.strip()[-200:]}", level="warning", done=True
        )


async def _give_allowed_qos(cluster: Cluster, context: ClusterContext, report: ReportProgress) -> None:
    """Gives pending jobs whose QOS their user may not use, as after the move from another Slurm, the team's default: Slurm
    would never start them."""
    head = (await context.machines(cluster.name))[cluster.head]
    desired = desired_accounts(cluster)
    allowed, own = desired.account_qos, {(one.user, one.account): one.qos for one in desired.associations}
    changed = 0
    for job, user, account, qos in await job_commands.pending_jobs_qos(context.connections, head):
        if account in allowed and qos not in (own.get((user, account)) or allowed[account]):
            await job_commands.set_job_qos(context.connections, head, job, allowed[account][0])
            changed += 1
    if changed:
        text = (
            f"{changed} pending job{'s' * (changed != 1)} now {'has' if changed == 1 else 'have'} the QOS of the team"
        )
        await report("queue", text, done=True)
