"""Job logs: streamed while they are written, read in parts, and searched."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Request

from headway.api.auth.dependencies import Member, State
from headway.api.http.array_task import ArrayTask
from headway.api.http.authorized_stream import stream_while_allowed
from headway.api.http.byte_stream import (
    ByteStream,
    abort_after_last_piece,
    error_frame,
    not_allowed_frame,
    not_allowed_note,
    note_line,
)
from headway.api.http.path_numbers import PathNumber
from headway.errors import HeadwayError
from headway.jobs.logs.follow import LogPiece
from headway.schemas.base import API_PREFIX
from headway.schemas.jobs import LogFoundOut, LogPartOut
from headway.schemas.submission.stream_frames import frame
from headway.services.access.ownership_rights import authorize_log
from headway.services.access.role_rights import Principal, Right
from headway.services.jobs import details
from headway.services.jobs.log_stream import StreamAborted, open_log

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}/jobs/{{job_id}}", tags=["jobs"])
MAX_LINES = 5000


@router.get("/log", response_class=ByteStream)
async def get_log(
    name: str,
    job_id: PathNumber,
    request: Request,
    state: State,
    who: Member,
    follow: bool = False,
    err: bool = False,
    start: Annotated[
        int, Query(ge=0, le=2**53, description="start at this byte; not for all tasks of an array together")
    ] = 0,
    task: ArrayTask = "",
    frames: Annotated[bool, Query(description="in frames; the last frame marks the end")] = False,
) -> ByteStream:
    """Streams the job's output; with `follow` until the job has ended. For an array's first number it streams the lines
    of all its tasks, each with its task number in front. If the server stops or an error happens before the end, the
    response is cut off."""
    with contextlib.ExitStack() as resources:
        opened = await open_log(state, who, name, job_id, resources, follow=follow, err=err, start=start, task=task)
        resources = resources.pop_all()

    async def check(who: Principal) -> None:
        await authorize_log(state, opened.cluster, who, opened.job, job_id)

    if frames:
        framed = _framed(opened.pieces, opened.start)
        allowed = stream_while_allowed(request, framed, Right.RUN_JOBS, check, not_allowed_frame)
        return ByteStream(allowed, resources=resources)
    allowed = stream_while_allowed(request, _plain(opened.pieces), Right.RUN_JOBS, check, not_allowed_note)
    return ByteStream(abort_after_last_piece(allowed), resources=resources)


async def _plain(pieces: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """Yields only the bytes of the log. An error becomes a line, after which the stream is aborted."""
    try:
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                yield piece
    except HeadwayError as error:
        yield note_line(error.message)
        raise StreamAborted from error


async def _framed(pieces: AsyncGenerator[bytes, None], offset: int | None) -> AsyncIterator[bytes]:
    """Yields frames of schemas.submission.stream_frames. `offset` is where in its file the log begins; None for the logs of
    several files."""
    if offset is not None:
        yield frame("at", b"%d" % offset)
    try:
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                if not isinstance(piece, LogPiece):
                    yield frame("said", piece)
                    continue
                if piece.offset != offset:
                    yield frame("at", b"%d" % piece.offset)
                yield frame("out", piece)
                offset = piece.offset + len(piece)
        yield frame("end", b"")
    except StreamAborted:
        return
    except Exception as error:  # the response has begun, so the error can only be its last frame
        yield error_frame(error)


@router.get("/log/part")
async def log_part(
    name: str,
    job_id: PathNumber,
    state: State,
    who: Member,
    before: Annotated[int | None, Query(ge=0, le=2**53)] = None,
    lines: Annotated[int, Query(ge=1, le=MAX_LINES)] = 500,
    err: bool = False,
    task: ArrayTask = "",
) -> LogPartOut:
    """Returns the last lines of the log, or the lines before a byte offset."""
    return await details.read_log_part(state, who, name, job_id, task=task, before=before, lines=lines, err=err)


@router.get("/log/search")
async def log_search(
    name: str,
    job_id: PathNumber,
    state: State,
    who: Member,
    q: Annotated[str, Query(max_length=200)] = "",
    err: bool = False,
    task: ArrayTask = "",
) -> LogFoundOut:
    """Returns the lines of the log that contain a text, ignoring case. The search runs on the cluster."""
    return await details.search_log(state, who, name, job_id, q, task=task, err=err)
