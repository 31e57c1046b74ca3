"""A backup of a running cluster: Slurm's state, then the database, secrets, cluster file and records.

The state is read before the database: every job in the state is also in the database, however long that takes to read.
A job that is only in the database began after the backup, and is closed when the backup is restored."""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from headway.backup.archive import SUFFIX, Header, Writer
from headway.backup.verify import VerifiedBackup, verify_backup
from headway.cluster.context import ClusterContext
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.operation_kinds import SECRET_PREFIXES
from headway.domain.operation_progress import ReportProgress
from headway.errors import CommandFailed, Conflict
from headway.store.clusters.cluster_records import BRINGING
from headway.transport.remote_program import program_source

DATABASE = "slurm_acct_db"
_OF_A_MOMENT = SECRET_PREFIXES  # names of secrets that belong to operations, not to the cluster
# Contains no user's text.
_DUMP = f"set -o pipefail; mariadb-dump --single-transaction --quick --hex-blob {DATABASE} | gzip -1"
_PART_S = 6 * 3600.0


def file_of(folder: Path, header: Header) -> Path:
    """Returns the path of a backup: DIR/lab-20261122-034500.headway-backup."""
    when = time.strftime("%Y%m%d-%H%M%S", time.gmtime(header.at))
    return folder / f"{header.cluster}-{when}{SUFFIX}"


def program_argv(*words: str) -> list[str]:
    """Returns the command that runs node/programs/slurm_state_backup.py with these words."""
    return ["python3", "-I", "-S", "-c", program_source("slurm_state_backup"), *words]


async def back_up(
    cluster: Cluster,
    about: Mapping[str, Any],
    context: ClusterContext,
    report: ReportProgress,
    path: Path,
    header: Header,
    key: bytes,
) -> VerifiedBackup:
    """Writes the backup `path`, reads it back and only then gives it its name. `about` is the cluster's row in the
    store. Raises Conflict when no head is running, Refused when the file can't be written; then no file is left."""
    head = (await context.machines(cluster.name)).get(cluster.head)
    if head is None or head.state is not MachineState.RUNNING:
        raise Conflict(
            f"{cluster.head} is not running: there is nothing to back up", hint=f"headway status {cluster.name}"
        )
    writer = await asyncio.to_thread(Writer, path, header, key)
    try:
        since = (await context.connections.remote(head, ["date", "+%s.%N"], timeout_s=20)).stdout.strip()
        await _part(
            writer,
            "state",
            _run(context, head, program_argv("state", cluster.state_folder, since), ["copy", cluster.state_folder]),
            report,
        )
        await _part(writer, "database", _run(context, head, ["bash", "-c", _DUMP], ["mariadb-dump", DATABASE]), report)
        await _part(writer, "about", _one(json.dumps(dict(about)).encode()), report)
        await _part(writer, "secrets", _one(json.dumps(await _secrets(cluster, context)).encode()), report)
        await _part(writer, "records", _lines(context, cluster.name), report)
        await report("proof", "is being verified")
        began = time.monotonic()
        written = await asyncio.to_thread(writer.finish)
        proof = await asyncio.to_thread(verify_backup, written, key)
        await report("proof", f"{proof.bytes} bytes verified", done=True, seconds=time.monotonic() - began)
        await asyncio.to_thread(writer.name)
        return proof
    except BaseException:
        await asyncio.to_thread(writer.drop)
        raise


async def _part(writer: Writer, name: str, pieces: AsyncIterator[bytes], report: ReportProgress) -> None:
    began = time.monotonic()
    await report(name, "is being stored")
    count = 0
    await asyncio.to_thread(writer.begin, name)
    async for piece in pieces:
        count += len(piece)
        await asyncio.to_thread(writer.write, piece)
    await asyncio.to_thread(writer.end)
    await report(name, f"stored, {count} bytes", done=True, seconds=time.monotonic() - began)


async def _run(context: ClusterContext, head: Machine, argv: list[str], what: list[str]) -> AsyncIterator[bytes]:
    """Yields the output of a command on the head. `what` replaces the command in error messages."""
    try:
        async for piece in context.connections.stream(head, argv, timeout_s=_PART_S):
            yield piece
    except CommandFailed as error:
        raise CommandFailed(what, error.code, error.stderr, where=head.name) from None


async def _one(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _secrets(cluster: Cluster, context: ClusterContext) -> dict[str, str]:
    have = await context.store.secrets.of_cluster(cluster.name)
    return {name: value for name, value in have.items() if not name.startswith((*_OF_A_MOMENT, BRINGING))}


async def _lines(context: ClusterContext, cluster: str) -> AsyncIterator[bytes]:
    """Yields Headway's records as compressed JSON, one row a line."""
    packed = zlib.compressobj(1)
    async for table, values in context.store.cluster_records.export(cluster):
        piece = packed.compress(json.dumps([table, values]).encode() + b"\n")
        if piece:
            yield piece
    yield packed.flush()
