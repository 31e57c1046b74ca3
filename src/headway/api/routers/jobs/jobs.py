"""Jobs: the queue, submission, logs, and commands on the login."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from headway.api.auth.dependencies import Anyone, Member, PathNumber, State
from headway.api.http.compression import accepts_gzip
from headway.api.http.error_handlers import error_out
from headway.api.http.revalidated_stream import while_allowed
from headway.api.routers.cluster.datasets import pinned
from headway.api.routers.jobs.submissions import new_mark, offered, send
from headway.domain.cluster import Cluster
from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.domain.slurm.state import JobState
from headway.errors import Conflict, HeadwayError, NotAllowed, NotFound, Refused, Unreachable
from headway.jobs.explain.slurm_messages import NO_CONTAINER, container_word
from headway.jobs.logs.follow import Part
from headway.jobs.submission.run_request import checked_run, prepare_submit
from headway.jobs.submission.stage_in import with_stage
from headway.jobs.submission.submission_check import faults, refusal, start_of, waits
from headway.jobs.view.array_tasks import tasks_of
from headway.schemas.jobs import JobOut, JobsAsk, JobsPage
from headway.schemas.stream_frames import frame
from headway.schemas.submissions import CheckJobIn, CheckJobOut, ExecIn, ExecOut, SubmitIn, SubmitOut
from headway.services.authorization import (
    authorize_action,
    cluster_to_work_on,
    command_slot,
    log_slot,
    write_audit_line,
)
from headway.services.context import AppState
from headway.services.identity import Principal, Right
from headway.services.mappers import fault_out, job_out
from headway.services.read_model.pending_reasons import why_of
from headway.services.read_model.queue_pages import jobs_body


class BrokenOff(Exception):
    """What is sent can't be brought to its end."""


class Octets(StreamingResponse):
    """Bytes as they come. Those that end with BrokenOff have no end on the wire either: nobody takes them for all. `held` is
    let go when they have ended, also where they never began."""

    media_type = "application/octet-stream"

    def __init__(
        self,
        content: AsyncIterator[bytes],
        status_code: int = 200,
        headers: Mapping[str, str] | None = None,
        *,
        held: contextlib.ExitStack,
    ) -> None:
        super().__init__(content, status_code, headers)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        with contextlib.suppress(BrokenOff):
            await super().stream_response(send)


router = APIRouter(prefix="/clusters/{name}", tags=["jobs"])
FIRST_PIECE_S = 2.0
_EPOCH = {"SLURM_TIME_FORMAT": "%s"}  # times as unix seconds
Task = Annotated[str, Query(pattern=r"^\d{0,9}$", description="of an array: only this task")]


@router.get("/jobs", response_model=JobsPage)
async def jobs(
    name: str,
    state: State,
    who: Anyone,
    ask: Annotated[JobsAsk, Query()],
    accept_encoding: Annotated[str, Header()] = "",
) -> Response:
    """Queued and running jobs, a page at a time; with `all` those that ended lately too."""
    packed = accepts_gzip(accept_encoding)
    body = await jobs_body(state, name, who, ask, packed=packed)
    headers = {"content-encoding": "gzip", "vary": "accept-encoding"} if packed else {"vary": "accept-encoding"}
    return Response(body, media_type="application/json", headers=headers)


@router.post("/jobs", status_code=201)
async def submit(name: str, request: SubmitIn, state: State, who: Member) -> SubmitOut:
    """Runs the real sbatch on the cluster as the person's user."""
    user = who.user_to_act_as(request.user)
    cluster = await cluster_to_work_on(state, name, who)
    request = request.model_copy(update={"stage_in": await pinned(state, cluster, request.stage_in)})
    prepared = prepare_submit(request, cluster, user, new_mark(who))
    return await send(state, who, cluster, prepared, user, "submit")


@router.post("/jobs/check")
async def check(name: str, ask: CheckJobIn, state: State, who: Member) -> CheckJobOut:
    """Whether it could be submitted, and when and where it would start; nothing is."""
    request = ask.submit or ask.run
    assert request is not None
    user = who.user_to_act_as(request.user)
    cluster = await cluster_to_work_on(state, name, who)
    script, staged = "", await pinned(state, cluster, request.stage_in)
    if ask.run is not None:
        command = ask.run.model_copy(update={"stage_in": staged})
        made, found = checked_run(command, cluster, user, offered(state, cluster))
        if made is None:
            return CheckJobOut(faults=[fault_out(fault) for fault in found])
        script, submit = made.script or "", made
    else:
        assert ask.submit is not None
        submit = with_stage(ask.submit.model_copy(update={"stage_in": staged}))
    found = faults(submit, cluster, user, offered(state, cluster))
    if found:
        return CheckJobOut(faults=[fault_out(fault) for fault in found], script=script)
    if away := state.live.snapshot(name).stale:  # sbatch would try for most of a minute
        raise Unreachable(
            f"Slurm can't be asked now: {away}", hint="what is wrong in itself was looked for, and is not there"
        )
    trial = submit.model_copy(update={"args": ["--test-only", *submit.args], "chdir": "", "bundle": "", "env": _EPOCH})
    try:
        with command_slot(state, who):
            done = await state.work.submit(cluster, trial, user)
    except Refused as error:
        if words := waits(error.message, submit, cluster, state.live.snapshot(name).nodes):
            return CheckJobOut(waits=words, script=script)
        return CheckJobOut(faults=[fault_out(refusal(error.message, error.hint))], script=script)
    at, nodes, partition = start_of(done.message, state.clock())
    return CheckJobOut(starts_at=at, nodes=nodes, partition=partition, script=script)


@router.get("/jobs/{job_id}")
async def job(name: str, job_id: PathNumber, state: State, who: Anyone, task: Task = "") -> JobOut:
    """All about one job, or one task of an array: those that wait may share one record.

    Why its container did not start stands in its log, so that is for who may read the log."""
    _, cluster = await state.cluster(name)
    found = await state.task(cluster, job_id, task) if task else await state.job(cluster, job_id)
    told = job_out(found, state.clock(), await state.progress(cluster, found), why_of(state, cluster, found))
    if found.state == "FAILED" and found.exit_code == NO_CONTAINER and found.stderr.startswith("/"):
        with contextlib.suppress(HeadwayError):
            await authorize_action(state, cluster, who, found, f"read the log of job {job_id}")
            end = ExecIn(argv=["timeout", "5", "tail", "-c", "4096", "--", found.stderr], user=found.user)
            with command_slot(state, who):
                read = await state.work.run_command(cluster, end, found.user)
            said = container_word(base64.b64decode(read.stdout_b64).decode(errors="replace"))
            told = told.model_copy(update={"why": said or told.why})
    return told


@router.delete("/jobs/{job_id}", status_code=204)
async def cancel(name: str, job_id: PathNumber, state: State, who: Member, task: Task = "") -> Response:
    """Ends it. An array by its own number is cancelled whole, as scancel does."""
    _, cluster = await state.cluster(name)
    found = await job_of(state, cluster, job_id)
    word, states = meant(state, cluster, found, job_id, task)
    as_operator = await authorize_action(state, cluster, who, found, f"cancel job {word}")
    if not (WAITING | RUNNING).intersection(states):
        raise Conflict(f"job {word} has ended already: {states[0]}", hint=f"headway job {name} {word}")
    await state.work.cancel(cluster, word, who.user, as_operator=as_operator)
    state.live.poke(name, (job_id,))
    await write_audit_line(state, who, "cancel", name, job=job_id, of=found.user, **({"task": task} if task else {}))
    return Response(status_code=204)


def meant(state: AppState, cluster: Cluster, found: JobState, job_id: int, task: str) -> tuple[str, list[str]]:
    """(What Slurm is to be told, how those stand that are meant): with `task` that one of the array that the job belongs to,
    else the job, of an array by its own number every task. Raises NotFound for a task that the array has not."""
    known = state.live.snapshot(cluster.name).jobs
    if not task:
        return str(job_id), [job.state for job in known if job_id in (job.id, job.array_job_id)] or [found.state]
    array = found.array_job_id or job_id
    mine = tasks_of(known, array, task)
    if not mine and found.array_task == task:
        mine = [found]
    if not mine:
        raise NotFound(
            f"job {array} on {cluster.name} has no task {task} now", hint=f"headway job {cluster.name} {array}"
        )
    return f"{array}_{task}", [job.state for job in mine]


@router.get("/jobs/{job_id}/log", response_class=Octets)
async def log(
    name: str,
    job_id: PathNumber,
    request: Request,
    state: State,
    who: Member,
    follow: bool = False,
    err: bool = False,
    start: Annotated[int, Query(ge=0, le=2**53, description="from this byte on; not of an array's tasks together")] = 0,
    task: Task = "",
    frames: Annotated[bool, Query(description="in frames, whose last one says that this was all")] = False,
) -> Octets:
    """The job's output as it is written; `follow` goes on until the job has ended. An array asked for by its first
    number: all its tasks' lines, each with its number before it. Where the server stops or something fails before the end,
    the answer breaks off."""
    _, cluster = await state.cluster(name)
    found = await state.job(cluster, job_id)
    await authorize_action(state, cluster, who, found, f"read the log of job {job_id}")
    whole_array = found.array_job_id == job_id and not task
    with contextlib.ExitStack() as held:
        held.enter_context(log_slot(state, who))
        if whole_array:
            stream = state.work.tail_array(cluster, job_id, follow=follow, err=err)
        else:
            if task:
                found = await state.work.task(cluster, job_id, task)
            stream = state.work.tail_log(cluster, found, follow=follow, err=err, start=start)
        # The first piece is awaited here a moment, so that a missing log is an answer of its own, not a stream
        # that breaks.
        first = asyncio.ensure_future(_next(stream))
        await asyncio.wait({first}, timeout=FIRST_PIECE_S)
        if first.done():
            first.result()
        held = held.pop_all()
    headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

    async def still(who: Principal) -> None:
        await authorize_action(state, cluster, who, found, f"read the log of job {job_id}")

    pieces = _pieces(state, first, stream)
    if frames:
        framed = _framed(pieces, None if whole_array else start)
        return Octets(while_allowed(request, framed, Right.RUN_JOBS, still, over), headers=headers, held=held)
    plain = _to_the_end(while_allowed(request, _plain(pieces), Right.RUN_JOBS, still, _Last))
    return Octets(plain, headers=headers, held=held)


def _aside(words: str) -> bytes:
    """What is no line of the log: its head is long gone."""
    return f"--- {words} ---\n".encode()


class _Last(bytes):
    """Why somebody may no longer have what follows. What breaks off there is not all."""

    def __new__(cls, why: str) -> _Last:
        return super().__new__(cls, _aside(why))


async def _to_the_end(pieces: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            yield piece
            if isinstance(piece, _Last):
                raise BrokenOff


def over(why: str) -> bytes:
    """The last frame for somebody who may no longer have what follows."""
    return frame("error", error_out(NotAllowed(why)).model_dump_json().encode())


async def _plain(pieces: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """Only the bytes. An error under way is a line of its own, after which they break off."""
    try:
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                yield piece
    except HeadwayError as error:
        yield _aside(error.message)
        raise BrokenOff from error


async def _framed(pieces: AsyncGenerator[bytes, None], at: int | None) -> AsyncIterator[bytes]:
    """Frames of schemas.stream_frames; `at`: where in its file the log begins, None where it is of many files."""
    if at is not None:
        yield frame("at", b"%d" % at)
    try:
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                if not isinstance(piece, Part):
                    yield frame("said", piece)
                    continue
                if piece.at != at:
                    yield frame("at", b"%d" % piece.at)
                yield frame("out", piece)
                at = piece.at + len(piece)
        yield frame("end", b"")
    except BrokenOff:
        return
    except Exception as error:  # the answer has begun: what went wrong can only be its last frame
        yield frame("error", error_out(error).model_dump_json().encode())


async def _pieces(
    state: AppState, first: asyncio.Future[bytes | None], stream: AsyncIterator[bytes]
) -> AsyncGenerator[bytes, None]:
    """The log until its end. Raises BrokenOff when the server stops before that, and what the stream raises."""
    stopping = asyncio.ensure_future(state.live.stopping.wait())
    following = first
    try:
        while True:
            waits: set[asyncio.Future[Any]] = {following, stopping}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                raise BrokenOff
            piece = following.result()
            if piece is None:
                return
            yield piece
            following = asyncio.ensure_future(_next(stream))
    finally:
        stopping.cancel()
        following.cancel()
        await asyncio.gather(stopping, following, return_exceptions=True)
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


async def _next(stream: AsyncIterator[bytes]) -> bytes | None:
    return await anext(stream, None)


@router.post("/exec")
async def execute(name: str, request: ExecIn, state: State, who: Member) -> ExecOut:
    """One command on the login as `user`: root for admins, or yourself, where none is named."""
    user = who.command_user(request.user)
    cluster = await cluster_to_work_on(state, name, who)
    await write_audit_line(state, who, "exec", name, user=user, program=request.argv[0][:100])
    with command_slot(state, who):
        return await state.work.run_command(cluster, request, user)


async def job_of(state: AppState, cluster: Cluster, job_id: int) -> JobState:
    """As it is now, for somebody who is about to act on it."""
    known = (await state.read(cluster)).by_id.get(job_id)
    return known if known is not None else await state.work.job(cluster, job_id)
