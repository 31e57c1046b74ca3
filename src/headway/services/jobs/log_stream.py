"""A job's log as a stream of bytes, and the check of who may read it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

from headway.domain.cluster import Cluster
from headway.domain.slurm.job_states import ENDED
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.jobs.logs.masking import mask_stream
from headway.services.access.concurrency_limits import log_slot
from headway.services.access.ownership_rights import authorize_log
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.interruptible_stream import Interrupted, next_piece, pieces_until
from headway.services.job_secrets.masked_values import log_mask

FIRST_PIECE_TIMEOUT_S = 2.0  # of a followed log, whose job may write nothing for long


class StreamAborted(Exception):
    """A stream stopped before its end: the server is stopping, or reading failed."""


@dataclass(frozen=True, slots=True)
class LogStream:
    """An open log. `start` is the byte offset of its first piece; None for the merged logs of an array's tasks."""

    cluster: Cluster
    job: JobState
    start: int | None
    pieces: AsyncGenerator[bytes, None]


async def open_log(
    state: AppState,
    who: Principal,
    name: str,
    job_id: int,
    resources: contextlib.ExitStack,
    *,
    follow: bool,
    err: bool,
    start: int,
    task: str,
) -> LogStream:
    """Opens the log of a job, or of all tasks of an array (each line then begins with its task number).

    With `follow` the stream ends when the job has ended. `resources` gets what must be released after the stream.
    Waits for the first piece, so that a missing log raises here; of a job that has not ended, with `follow`, at most
    FIRST_PIECE_TIMEOUT_S. Raises NotFound,
    NotAllowed, TooManyAtOnce."""
    _, cluster = await state.clusters.get(name)
    job = await state.readings.job(cluster, job_id)
    await authorize_log(state, cluster, who, job, job_id)
    mask = await log_mask(state, cluster, job)
    whole_array = job.array_job_id == job_id and not task
    waits = follow and job.state not in ENDED  # the log of an ended job is read to its end at once
    with contextlib.ExitStack() as entered:
        entered.enter_context(log_slot(state, who))
        if whole_array:
            stream = state.backend.jobs.follow_array_logs(cluster, job_id, follow=follow, err=err)
        else:
            if task:
                job = await state.backend.slurm.task(cluster, job_id, task)
            begin = max(0, start - max(0, mask.longest - 1))  # a value may begin before `start`
            stream = state.backend.jobs.follow_log(cluster, job, follow=follow, err=err, start=begin)
        if mask.longest:
            stream = mask_stream(stream, mask, start)
        first = next_piece(stream)
        await asyncio.wait({first}, timeout=FIRST_PIECE_TIMEOUT_S if waits else None)
        if first.done():
            first.result()
        resources.push(entered.pop_all())
    return LogStream(cluster, job, None if whole_array else start, _until_stopping(state, first, stream))


async def _until_stopping(
    state: AppState, first: asyncio.Future[Any], stream: AsyncIterator[bytes]
) -> AsyncGenerator[bytes, None]:
    """Yields the pieces to the end of the log. Raises StreamAborted if the server stops before, and the stream's own
    errors."""
    try:
        async with contextlib.aclosing(pieces_until(stream, state.live.stopping.wait, first=first)) as pieces:
            async for piece in pieces:
                yield piece
    except Interrupted as error:
        raise StreamAborted from error
