"""Notebooks: JupyterLab as a job of the person, opened through the server on a web origin of its own."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets as random
from dataclasses import replace
from typing import TYPE_CHECKING

from headway.domain.cluster import Cluster
from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import Conflict, HeadwayError, NotAllowed, NotFound, Refused, Unanswered
from headway.jobs import notebook_job
from headway.jobs.explain.reason_lines import explain_reason
from headway.schemas.submission.notebooks import NotebookIn, NotebookLinkOut, NotebookOut
from headway.services.access.audit import write_audit_line
from headway.services.access.concurrency_limits import command_slot
from headway.services.access.ownership_rights import cluster_to_work_on, require_still_listed
from headway.services.access.role_rights import Principal, Right, principal_for
from headway.services.access.submit_rate import limit_submissions
from headway.services.app_state import AppState
from headway.services.jobs.actions import act_on_job
from headway.services.jobs.find_job import read_job_now
from headway.services.jobs.notebooks.notebook_access import NotebookRun
from headway.services.jobs.submission import node_offer, record_submission
from headway.store import NotebookRow, StoreUnavailable

if TYPE_CHECKING:
    from headway.jobs.remote.tunnel import Tunnel

PROBE_TIMEOUT_S = 2.0  # seconds for Jupyter's socket to answer
RESEND_WINDOW_S = 86400.0  # seconds; a request whose submission was interrupted may be sent again within this time
KEEP_ENDED_S = 300.0  # seconds that an ended notebook stays in the list, because its log says why it ended


async def list_notebooks(state: AppState, who: Principal, name: str) -> list[NotebookOut]:
    """Returns the person's own notebooks, and for admins all of them."""
    _, cluster = await state.clusters.get(name)
    visible = [
        row for row in await state.store.notebooks.of_cluster(name) if row.person == who.person or who.may(Right.ADMIN)
    ]
    rows = [row for row in visible if row.job_id]
    for row in visible:
        if not row.job_id and state.clock() - row.at > RESEND_WINDOW_S:
            await state.store.notebooks.delete(row.id)
    if not rows:
        return []
    snapshot = await state.readings.snapshot(cluster)
    jobs = snapshot.by_id
    if snapshot.as_of is None or snapshot.stale:
        return [_out(row, cluster, who, _own_job(row, jobs.get(row.job_id)), now=state.clock()) for row in rows]
    current = [await _current(state, cluster, who, row, _own_job(row, jobs.get(row.job_id))) for row in rows]
    return [out for out in current if out is not None]


async def start_notebook(state: AppState, who: Principal, name: str, request: NotebookIn) -> NotebookOut:
    """Submits a notebook's job as the person's user. Raises Refused on a server without an address for notebooks."""
    if not state.settings.notebooks:
        raise Refused(
            "this server has no port for notebooks",
            hint="start the server with headway server start, which opens a port for notebooks",
        )
    cluster = await cluster_to_work_on(state, name, who)
    offer, notebook_id = node_offer(state, cluster), _notebook_id(who)
    prepared, folder = notebook_job.prepare_notebook(
        request, cluster, offer, who.user, notebook_id, secret := random.token_urlsafe(32)
    )
    limit_submissions(state.submit_buckets, who, state.clock())
    made = NotebookRow(
        notebook_id, name, 0, who.person, who.user, folder, secret, request.idle_minutes * 60, state.clock()
    )
    row = await state.store.notebooks.save(made)
    # The row is from an earlier try of this request, and its job may already use that try's secret
    if row.secret != secret:
        prepared, _ = notebook_job.prepare_notebook(request, cluster, offer, who.user, notebook_id, row.secret)
    try:
        with command_slot(state, who):
            done = await state.backend.jobs.submit(
                cluster, prepared.request, who.user, prepared.stage, tag=who.idempotency_key
            )
    except Unanswered:
        raise
    except HeadwayError:
        if row.secret == secret:  # otherwise the earlier try may have a job, which needs its row
            await _forget_row(state, row)
        raise
    row = replace(row, job_id=done.job_id, at=state.clock())
    try:
        await state.store.notebooks.set_job(row.id, row.job_id, row.at)
        await record_submission(state, who, cluster, prepared, who.user, done, "notebook")
    except HeadwayError:
        if not who.idempotency_key:  # otherwise a resent request finds it again
            with contextlib.suppress(HeadwayError):
                await state.backend.jobs.cancel(cluster, str(done.job_id), who.user, as_operator=False)
            await _forget_row(state, row)
        raise
    return _out(row, cluster, who, None, now=row.at)


def _notebook_id(who: Principal) -> str:
    """Returns a new notebook's id; the same for the same idempotency key."""
    if not who.idempotency_key:
        return random.token_hex(8)
    return hashlib.sha256(f"notebook\n{who.idempotency_key}".encode()).hexdigest()[:16]


async def _forget_row(state: AppState, row: NotebookRow) -> None:
    """Deletes the row of a notebook without a job. If that fails, the row stays hidden and is deleted later."""
    with contextlib.suppress(StoreUnavailable):
        await state.store.notebooks.delete(row.id)


async def get_notebook(state: AppState, who: Principal, name: str, notebook_id: str) -> NotebookOut:
    """Returns a notebook. Raises NotFound, also for another person's notebook."""
    row = await _find_row(state, who, name, notebook_id)
    _, cluster = await state.clusters.get(name)
    current = await _current(state, cluster, who, row, await _find_job(state, cluster, row))
    return current or _out(row, cluster, who, None, now=state.clock(), ended=True)


async def make_link(state: AppState, who: Principal, name: str, notebook_id: str) -> NotebookLinkOut:
    """Returns an address that opens the notebook in one browser, once. Only for the notebook's own person. Raises
    NotAllowed, Conflict."""
    row = await _find_row(state, who, name, notebook_id)
    if row.person != who.person:
        raise NotAllowed(f"{who.person} may not open a notebook of {row.person}", hint="ask its owner")
    _, cluster = await state.clusters.get(name)
    await require_still_listed(state, cluster, who)
    job = await _find_job(state, cluster, row)
    if job is None or job.state not in RUNNING:
        raise Conflict("the notebook is not running" + (f": {_why(job)}" if job else ""), hint=f"headway queue {name}")
    await write_audit_line(state, who, "notebook.open", name, notebook=row.id, job=row.job_id)
    code, expires = state.notebooks.create_code(row.id, who.person, state.clock())
    return NotebookLinkOut(url=f"{notebook_origin(state, row.id)}/open?code={code}", expires_at=expires)


async def stop_notebook(state: AppState, who: Principal, name: str, notebook_id: str) -> None:
    """Cancels the notebook's job. Saved files are kept."""
    row = await _find_row(state, who, name, notebook_id)
    _, cluster = await state.clusters.get(name)
    try:
        if await _find_job(state, cluster, row) is not None:
            await act_on_job(state, who, name, row.job_id, "cancel")
    except (Conflict, NotFound):
        pass  # it has already ended
    await state.notebooks.forget_notebook(row.id)
    await state.store.notebooks.delete(row.id)


# --- used by the proxy through which browsers reach notebooks


def notebook_origin(state: AppState, notebook_id: str) -> str:
    """Returns the web origin on which the notebook is shown; each has its own if the server's setting contains a `*`."""
    return state.settings.notebooks.replace("*", f"n-{notebook_id}")


async def owner_may_still_open(state: AppState, row: NotebookRow) -> bool:
    """Returns whether the notebook's person may still work on its cluster, as the same Linux user."""
    person = await state.store.people.get(row.person)
    if person is None or person.disabled:
        return False
    who = principal_for(person)
    try:
        _, cluster = await state.clusters.get(row.cluster)
        await require_still_listed(state, cluster, who)
        return who.user_to_act_as("") == row.user
    except HeadwayError:
        return False


async def open_tunnel(state: AppState, row: NotebookRow) -> Tunnel:
    """Returns the SSH tunnel to the notebook's Jupyter; a new one if the job moved to another node. Raises Conflict if
    the job is not running."""
    async with state.notebooks.lock(row.id):
        run, known = state.notebooks.tunnels.get(row.id, (None, None))
        if known is not None:
            job_seen = state.live.snapshot(row.cluster).by_id.get(row.job_id)
            if known.alive and (job_seen is None or run_of(job_seen) == run):
                return known
            await state.notebooks.close_tunnel(row.id)  # requeued: the node that it was on may still be up
        _, cluster = await state.clusters.get(row.cluster)
        job = await _find_job(state, cluster, row)
        if job is None or job.state not in RUNNING or not job.nodes:
            raise Conflict(f"the notebook is not running{f': {_why(job)}' if job else ''}")
        made = await state.backend.commands.open_tunnel(
            cluster, job.nodes[0], row.user, notebook_job.notebook_socket(row.folder)
        )
        state.notebooks.tunnels[row.id] = run_of(job), made
        return made


def run_of(job: JobState) -> NotebookRun:
    """Returns the job's present run: its first node and start time."""
    return (job.nodes[0] if job.nodes else "", job.start_time or 0.0)


async def _is_ready(state: AppState, row: NotebookRow, job: JobState) -> bool:
    """Returns whether the notebook's Jupyter answers. A positive result is stored for the run."""
    if state.notebooks.ready.get(row.id) == run_of(job):
        return True
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            wire = await (await open_tunnel(state, row)).connect()
            await wire.close()
    except (HeadwayError, TimeoutError, OSError):
        return False
    state.notebooks.ready[row.id] = run_of(job)
    return True


async def _current(
    state: AppState, cluster: Cluster, who: Principal, row: NotebookRow, job: JobState | None
) -> NotebookOut | None:
    """Returns the notebook's present state; None for one that ended more than KEEP_ENDED_S ago, whose row is deleted."""
    now = state.clock()
    if job is None and now - row.at < KEEP_ENDED_S:  # the last reading of the queue may be older than the job
        job = await _find_job(state, cluster, row)
    if job is None or job.state not in RUNNING | WAITING:
        await state.notebooks.forget_notebook(row.id)
        if job is None or (job.end_time or now) < now - KEEP_ENDED_S:
            await state.store.notebooks.delete(row.id)
            return None
        return _out(row, cluster, who, job, now=now)
    ready = job.state == "RUNNING" and await _is_ready(state, row, job)
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
    """Returns why the job is pending, or how it ended."""
    if job.state in WAITING:
        return explain_reason(job.reason) or "about to start"
    words = {
        "COMPLETED": "it ended or was idle",
        "CANCELLED": "it was stopped",
        "TIMEOUT": "it reached its time limit",
    }
    return words.get(job.state, job.state.lower().replace("_", " "))


async def _find_job(state: AppState, cluster: Cluster, row: NotebookRow) -> JobState | None:
    if not row.job_id:
        return None
    try:
        return _own_job(row, await read_job_now(state, cluster, row.job_id))
    except NotFound:
        return None


def _own_job(row: NotebookRow, job: JobState | None) -> JobState | None:
    """Returns the job if it belongs to the row's user, otherwise None: the number comes from sbatch's output, which the
    user can forge."""
    return job if job is not None and job.user == row.user else None


async def _find_row(state: AppState, who: Principal, name: str, notebook_id: str) -> NotebookRow:
    """Returns the notebook's row. Raises NotFound, also for another person's notebook, so that ids cannot be guessed."""
    row = await state.store.notebooks.get(notebook_id)
    if row.cluster != name or (row.person != who.person and not who.may(Right.ADMIN)):
        raise NotFound("the notebook does not exist", hint=f"start one with headway notebook {name}")
    return row
