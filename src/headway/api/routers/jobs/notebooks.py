"""Notebooks: JupyterLab as a job of the person's. The server leads their browser to it, on an origin of its own."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets as random
from dataclasses import replace
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response

from headway.api.auth.dependencies import Anyone, Member, State
from headway.api.http.pagination import ANY, Page, States, Words, fits
from headway.api.routers.jobs import jobs
from headway.api.routers.jobs.submissions import keep, offered
from headway.domain.cluster import Cluster
from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.domain.slurm.state import JobState
from headway.errors import Conflict, HeadwayError, NotAllowed, NotFound, Refused, Unanswered
from headway.jobs import notebooks as jupyter
from headway.jobs.explain.slurm_messages import waiting
from headway.schemas.submissions import NotebookIn, NotebookLinkOut, NotebookOut
from headway.services.authorization import cluster_to_work_on, command_slot, require_still_listed, write_audit_line
from headway.services.context import AppState
from headway.services.identity import Principal, Right, principal_for
from headway.services.notebook_sessions import Run
from headway.store import NotebookRow, StoreAway

if TYPE_CHECKING:
    from headway.jobs.remote.tunnel import Tunnel

router = APIRouter(prefix="/clusters/{name}/notebooks", tags=["notebooks"])
PROBE_S = 2.0
SENT_AGAIN_S = 86400.0  # a request whose submission was cut off may come again so long
KEPT_S = 300.0  # an ended one is still listed, for its log says why


@router.get("")
async def notebooks(
    name: str,
    state: State,
    who: Anyone,
    page: Page,
    person: Words = ANY,
    status: States = ANY,
) -> list[NotebookOut]:
    """One's own; for admins everybody's. The latest first."""
    found = [
        one for one in await notebooks_of(name, state, who) if fits(one.person, person) and fits(one.state, status)
    ]
    return page.cut(found, lambda one: (one.created_at, one.id), newest=True)


async def notebooks_of(name: str, state: AppState, who: Principal) -> list[NotebookOut]:
    """Those that this person may see."""
    _, cluster = await state.cluster(name)
    every = [row for row in await state.store.notebooks(name) if row.person == who.person or who.may(Right.ADMIN)]
    rows = [row for row in every if row.job_id]
    for row in every:
        if not row.job_id and state.clock() - row.at > SENT_AGAIN_S:
            await state.store.forget_notebook(row.id)
    if not rows:
        return []
    snapshot = await state.seen(cluster)
    known = snapshot.by_id
    if snapshot.as_of is None or snapshot.stale:
        return [_out(row, cluster, who, _own(row, known.get(row.job_id)), now=state.clock()) for row in rows]
    return [out for row in rows if (out := await _looked(state, cluster, who, row, _own(row, known.get(row.job_id))))]


@router.post("", status_code=201)
async def start(name: str, ask: NotebookIn, state: State, who: Member) -> NotebookOut:
    """Submits it as the person's user."""
    if not state.settings.notebooks:
        raise Refused("this server shows no notebooks", hint="headway server start gives them a port of their own")
    cluster = await cluster_to_work_on(state, name, who)
    offer, number = offered(state, cluster), _number(who)
    prepared, folder = jupyter.prepare(ask, cluster, offer, who.user, number, secret := random.token_urlsafe(32))
    made = NotebookRow(number, name, 0, who.person, who.user, folder, secret, ask.idle_minutes * 60, state.clock())
    row = await state.store.save_notebook(made)
    if row.secret != secret:  # the request came before: its job, which the head may know, has the secret of then
        prepared, _ = jupyter.prepare(ask, cluster, offer, who.user, number, row.secret)
    try:
        with command_slot(state, who):
            done = await state.work.submit(cluster, prepared.request, who.user, prepared.stage, tag=who.idempotency_key)
    except Unanswered:
        raise
    except HeadwayError:
        if row.secret == secret:  # else the request before may have a job, which needs its row
            await _drop(state, row)
        raise
    row = replace(row, job_id=done.job_id, at=state.clock())
    try:
        await state.store.notebook_job(row.id, row.job_id, row.at)
        await keep(state, who, cluster, prepared, who.user, done, "notebook")
    except HeadwayError:
        if not who.idempotency_key:  # else the same request finds it again
            with contextlib.suppress(HeadwayError):
                await state.work.cancel(cluster, str(done.job_id), who.user, as_operator=False)
            await _drop(state, row)
        raise
    return _out(row, cluster, who, None, now=row.at)


def _number(who: Principal) -> str:
    """A new notebook's; the same again for the same request."""
    return (
        hashlib.sha256(f"notebook\n{who.idempotency_key}".encode()).hexdigest()[:16]
        if who.idempotency_key
        else random.token_hex(8)
    )


async def _drop(state: AppState, row: NotebookRow) -> None:
    """Of one that has no job. A row that stays is shown to nobody, and goes later."""
    with contextlib.suppress(StoreAway):
        await state.store.forget_notebook(row.id)


@router.get("/{notebook_id}")
async def notebook(name: str, notebook_id: str, state: State, who: Member) -> NotebookOut:
    row = await _row(state, who, name, notebook_id)
    _, cluster = await state.cluster(name)
    return await _looked(state, cluster, who, row, await _job(state, cluster, row)) or _out(
        row, cluster, who, None, now=state.clock(), ended=True
    )


@router.post("/{notebook_id}/link", status_code=201)
async def link(name: str, notebook_id: str, state: State, who: Member) -> NotebookLinkOut:
    """An address that leads one browser in, once. Only for the notebook's own person."""
    row = await _row(state, who, name, notebook_id)
    if row.person != who.person:
        raise NotAllowed(f"{who.person} may not open a notebook of {row.person}", hint="its owner may")
    _, cluster = await state.cluster(name)
    await require_still_listed(state, cluster, who)
    job = await _job(state, cluster, row)
    if job is None or job.state not in RUNNING:
        raise Conflict("the notebook does not run" + (f": {_why(job)}" if job else ""), hint=f"headway queue {name}")
    await write_audit_line(state, who, "notebook.open", name, notebook=row.id, job=row.job_id)
    code, expires = state.notebooks.code(row.id, who.person, state.clock())
    return NotebookLinkOut(url=f"{origin(state, row.id)}/open?code={code}", expires_at=expires)


@router.delete("/{notebook_id}", status_code=204)
async def stop(name: str, notebook_id: str, state: State, who: Member) -> Response:
    """Cancels its job. What it has saved stays."""
    row = await _row(state, who, name, notebook_id)
    _, cluster = await state.cluster(name)
    try:
        if await _job(state, cluster, row) is not None:
            await jobs.cancel(name, row.job_id, state, who)
    except (Conflict, NotFound):
        pass  # it has ended by itself
    await state.notebooks.forget(row.id)
    await state.store.forget_notebook(row.id)
    return Response(status_code=204)


# --- for the door that browsers come in by


def origin(state: AppState, notebook_id: str) -> str:
    """Where its page is: an origin that no other notebook has, where names allow it."""
    return state.settings.notebooks.replace("*", f"n-{notebook_id}")


async def still_may(state: AppState, row: NotebookRow) -> bool:
    """Whether the notebook's person may still work on its cluster."""
    person = await state.store.person(row.person)
    if person is None:
        return False
    who = principal_for(person)
    try:
        _, cluster = await state.cluster(row.cluster)
        await require_still_listed(state, cluster, who)
        return who.user_to_act_as("") == row.user
    except HeadwayError:
        return False


async def tunnel(state: AppState, row: NotebookRow) -> Tunnel:
    """What leads to its Jupyter; made anew where its job went to another node. Raises Conflict while it does not run."""
    async with state.notebooks.lock(row.id):
        run, known = state.notebooks.tunnels.get(row.id, (None, None))
        if known is not None:
            seen = state.live.snapshot(row.cluster).by_id.get(row.job_id)
            if known.alive and (seen is None or run_of(seen) == run):
                return known
            await state.notebooks.drop(row.id)  # requeued: the node it was on may be up, and lead nowhere
        _, cluster = await state.cluster(row.cluster)
        job = await _job(state, cluster, row)
        if job is None or job.state not in RUNNING or not job.nodes:
            raise Conflict(f"the notebook does not run{f': {_why(job)}' if job else ''}")
        made = await state.work.tunnel(cluster, job.nodes[0], row.user, jupyter.socket(row.folder))
        state.notebooks.tunnels[row.id] = run_of(job), made
        return made


def run_of(job: JobState) -> Run:
    return (job.nodes[0] if job.nodes else "", job.start_time or 0.0)


async def _answers(state: AppState, row: NotebookRow, job: JobState) -> bool:
    if state.notebooks.ready.get(row.id) == run_of(job):
        return True
    try:
        async with asyncio.timeout(PROBE_S):
            wire = await (await tunnel(state, row)).connect()
            await wire.close()
    except (HeadwayError, TimeoutError, OSError):
        return False
    state.notebooks.ready[row.id] = run_of(job)
    return True


async def _looked(
    state: AppState, cluster: Cluster, who: Principal, row: NotebookRow, job: JobState | None
) -> NotebookOut | None:
    """As it stands now; None for one that ended a while ago, which is forgotten."""
    now = state.clock()
    if job is None and now - row.at < KEPT_S:  # the queue was read before it was there, or it ended at once
        job = await _job(state, cluster, row)
    if job is None or job.state not in RUNNING | WAITING:
        await state.notebooks.forget(row.id)
        if job is None or (job.end_time or now) < now - KEPT_S:
            await state.store.forget_notebook(row.id)
            return None
        return _out(row, cluster, who, job, now=now)
    ready = job.state == "RUNNING" and await _answers(state, row, job)
    return _out(row, cluster, who, job, ready=ready, now=now)


def _out(
    row: NotebookRow,
    cluster: Cluster,
    who: Principal,
    job: JobState | None,
    *,
    now: float,
    ready: bool = False,
    ended: bool = False,
) -> NotebookOut:
    found = NotebookOut(
        id=row.id,
        cluster=row.cluster,
        job_id=row.job_id,
        person=row.person,
        user=row.user,
        state="ended" if ended else "waiting",
        idle_minutes=row.idle_s // 60,
        created_at=row.at,
        simulated_gpus=cluster.simulated_gpus,
        log=f"{row.folder}/log",
        mine=row.person == who.person,
    )
    if job is None:
        return found
    running = job.state in RUNNING
    left = None
    if running and job.start_time and job.time_limit_s:
        left = max(0, int(job.start_time + job.time_limit_s - now))
    return found.model_copy(
        update={
            "state": ("running" if ready else "starting")
            if running
            else "waiting"
            if job.state in WAITING
            else "ended",
            "why": "" if running else _why(job),
            "gpus": job.gpus,
            "node": job.nodes[0] if job.nodes else "",
            "partition": job.partition,
            "started_at": job.start_time if running else None,
            "time_left_s": left,
        }
    )


def _why(job: JobState) -> str:
    """Why it waits, or how it ended."""
    if job.state in WAITING:
        return waiting(job.reason) or "about to start"
    words = {
        "COMPLETED": "it ended by itself, or was idle",
        "CANCELLED": "it was stopped",
        "TIMEOUT": "its time was over",
    }
    return words.get(job.state, job.state.lower().replace("_", " "))


async def _job(state: AppState, cluster: Cluster, row: NotebookRow) -> JobState | None:
    if not row.job_id:
        return None
    try:
        return _own(row, await jobs.job_of(state, cluster, row.job_id))
    except NotFound:
        return None


def _own(row: NotebookRow, job: JobState | None) -> JobState | None:
    """None for a job of somebody else: its number is what sbatch said, which may be the person's own program."""
    return job if job is not None and job.user == row.user else None


async def _row(state: AppState, who: Principal, name: str, notebook_id: str) -> NotebookRow:
    """NotFound for somebody else's as for none: its id is nobody else's business."""
    row = await state.store.notebook(notebook_id)
    if row.cluster != name or (row.person != who.person and not who.may(Right.ADMIN)):
        raise NotFound("there is no such notebook", hint=f"headway notebook {name} starts one")
    return row
