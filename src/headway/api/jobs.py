"""Jobs: the queue, submission, logs, and commands on the login."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from headway.api.access import Anyone, Member, Principal, State, audit, must_not_have_left, workplace
from headway.api.runs import new_mark, send
from headway.api.shapes import job_out
from headway.api.state import AppState
from headway.domain.cluster import Cluster
from headway.domain.jobstate import RUNNING, WAITING
from headway.domain.live import JobState
from headway.errors import Conflict, HeadwayError, NotAllowed, Refused, Unreachable
from headway.jobs.run import prepare_submit
from headway.jobs.words import NO_CONTAINER, container_word
from headway.wire.schemas import ExecIn, ExecOut, JobOut, SubmitIn, SubmitOut

router = APIRouter(prefix="/clusters/{name}", tags=["jobs"])
FIRST_PIECE_S = 2.0
MOST_AT_ONCE = 16  # commands that one person, other than an admin, may have running at once


@router.get("/jobs")
async def jobs(
    name: str,
    state: State,
    who: Anyone,  # noqa: ARG001
    every: Annotated[bool, Query(alias="all")] = False,
    user: str = "",
    word: Annotated[str, Query(alias="state", description="a Slurm job state, or its beginning")] = "",
) -> list[JobOut]:
    """Queued and running jobs; with `all` those that ended lately too."""
    _, cluster = await state.cluster(name)
    snapshot = await state.read(cluster)
    found = {job.id: job for job in snapshot.jobs}
    if every or word:
        found = {job.id: job for job in await state.work.history(cluster)} | found
    elif snapshot.stale and snapshot.as_of is None:
        raise Unreachable(f"the queue of {name} can't be read: {snapshot.stale}", hint=f"headway status {name}")
    now = state.clock()
    return [
        job_out(job, now, snapshot.progress.get(job.id))
        for job in sorted(found.values(), key=lambda job: job.id)
        if _wanted(job, every=every, user=user, word=word)
    ]


def _wanted(job: JobState, *, every: bool, user: str, word: str) -> bool:
    if user and job.user != user:
        return False
    if word:
        return job.state.upper().startswith(word.upper())
    return every or job.state in WAITING | RUNNING


@router.post("/jobs", status_code=201)
async def submit(name: str, request: SubmitIn, state: State, who: Member) -> SubmitOut:
    """Runs the real sbatch on the cluster as the person's user."""
    user = who.acting(request.user)
    cluster = await workplace(state, name, who)
    prepared = prepare_submit(request, cluster, user, new_mark())
    with place(state, who):
        return await send(state, who, cluster, prepared, user, "submit")


@router.get("/jobs/{job_id}")
async def job(name: str, job_id: int, state: State, who: Anyone) -> JobOut:
    """All about one job. Why its container did not start stands in its log, so that is for who may read the log."""
    _, cluster = await state.cluster(name)
    found = await _job(state, cluster, job_id)
    told = job_out(found, state.clock(), state.live.snapshot(name).progress.get(job_id))
    if found.state == "FAILED" and found.exit_code == NO_CONTAINER and found.stderr.startswith("/"):
        with contextlib.suppress(HeadwayError):
            who.need("member", "read a log")
            await _may(state, cluster, who, found, "read the log of")
            end = ExecIn(argv=["timeout", "5", "tail", "-c", "4096", "--", found.stderr], user=found.user)
            read = await state.work.run_command(cluster, end, found.user)
            said = container_word(base64.b64decode(read.stdout_b64).decode(errors="replace"))
            told = told.model_copy(update={"why": said or told.why})
    return told


@router.delete("/jobs/{job_id}", status_code=204)
async def cancel(name: str, job_id: int, state: State, who: Member) -> Response:
    _, cluster = await state.cluster(name)
    found = await _job(state, cluster, job_id)
    await _may(state, cluster, who, found, "cancel")
    tasks = (job for job in state.live.snapshot(name).jobs if job_id in (job.id, job.array_job_id))
    if found.state not in WAITING | RUNNING and not any(job.state in WAITING | RUNNING for job in tasks):
        raise Conflict(f"job {job_id} has ended already: {found.state}", hint=f"headway job {name} {job_id}")
    await state.work.cancel(cluster, job_id, who.user, as_operator=found.user != who.user)
    await audit(state, who, "cancel", name, job=job_id, of=found.user)
    return Response(status_code=204)


@router.get("/jobs/{job_id}/log")
async def log(
    name: str,
    job_id: int,
    state: State,
    who: Member,
    follow: bool = False,
    err: bool = False,
    task: Annotated[str, Query(pattern=r"^\d{0,9}$", description="of an array: only this task")] = "",
) -> StreamingResponse:
    """The job's output as it is written; `follow` goes on until the job has ended. An array asked for by its first
    number: all its tasks' lines, each with its number before it."""
    _, cluster = await state.cluster(name)
    found = await _job(state, cluster, job_id)
    await _may(state, cluster, who, found, "read the log of")
    if found.array_job_id == job_id and not task:
        stream = state.work.tail_array(cluster, job_id, follow=follow, err=err)
    else:
        if task:
            found = await state.work.task(cluster, job_id, task)
        stream = state.work.tail_log(cluster, found, follow=follow, err=err)
    # The first piece is awaited here a moment, so that a missing log is an answer of its own, not a stream
    # that breaks.
    first = asyncio.ensure_future(_next(stream))
    await asyncio.wait({first}, timeout=FIRST_PIECE_S)
    if first.done():
        first.result()
    headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
    return StreamingResponse(_pieces(state, first, stream), media_type="application/octet-stream", headers=headers)


async def _pieces(
    state: AppState, first: asyncio.Future[bytes | None], stream: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    """The log until its end, or until the server stops. An error under way is a line of its own: the head is long
    gone."""
    stopping = asyncio.ensure_future(state.live.stopping.wait())
    following = first
    try:
        while True:
            waits: set[asyncio.Future[Any]] = {following, stopping}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                return
            piece = following.result()
            if piece is None:
                return
            yield piece
            following = asyncio.ensure_future(_next(stream))
    except HeadwayError as error:
        yield f"--- {error.message} ---\n".encode()
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
    """One command on the login as `user`; root is for admins."""
    user = who.acting(request.user)
    cluster = await workplace(state, name, who)
    await audit(state, who, "exec", name, user=user, program=request.argv[0][:100])
    with place(state, who):
        return await state.work.run_command(cluster, request, user)


@contextlib.contextmanager
def place(state: AppState, who: Principal) -> Iterator[None]:
    """A command on a cluster holds one of its few connections for as long as it runs: no member may hold them all."""
    if state.commands[who.person] >= MOST_AT_ONCE and not who.has("admin"):
        raise Refused(f"{MOST_AT_ONCE} commands of {who.person} are running already", hint="wait until one has ended")
    state.commands[who.person] += 1
    try:
        yield
    finally:
        state.commands[who.person] -= 1


async def _job(state: AppState, cluster: Cluster, job_id: int) -> JobState:
    """From the snapshot, else asked for by its number: it may be seconds old, or long ended."""
    snapshot = await state.read(cluster)
    for known in snapshot.jobs:
        if known.id == job_id:
            return known
    return await state.work.job(cluster, job_id)


async def _may(state: AppState, cluster: Cluster, who: Principal, job: JobState, what: str) -> None:
    """Somebody else's job is for admins, and so are the jobs of people who left the cluster."""
    if who.has("admin"):
        return
    if job.user != who.user:
        raise NotAllowed(
            f"{who.person} may not {what} job {job.id}: it belongs to {job.user}", hint="its owner may, and an admin"
        )
    await must_not_have_left(state, cluster, who)
