"""What is done with one job, and what is asked about it: requeue, hold, release, its runs, parts of its log."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from headway.api.auth.dependencies import Anyone, Member, PathNumber, State
from headway.api.routers.jobs.jobs import Task, job_of, meant
from headway.api.routers.jobs.submissions import record_of
from headway.domain.cluster import Cluster
from headway.domain.slurm.hostlist import compress
from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.domain.slurm.state import JobState
from headway.errors import Conflict, NotFound
from headway.jobs.submission.secret_masking import masked_text, masked_words
from headway.jobs.view.placement import fewest, leaves_of
from headway.schemas.incidents import IncidentOut
from headway.schemas.jobs import JobRunOut, JobRunsOut, LogFoundOut, LogPartOut, PlacementOut, ScriptOut
from headway.schemas.submissions import ExecIn, SubmitIn
from headway.services.authorization import authorize_action, cluster_to_work_on, command_slot, write_audit_line
from headway.services.context import AppState
from headway.services.identity import Principal
from headway.services.mappers import incident_out
from headway.services.read_model.pending_reasons import history_of
from headway.store import JobRecord

router = APIRouter(prefix="/clusters/{name}/jobs/{job_id}", tags=["jobs"])
MOST_LINES = 5000
_MAY_STAND = {"requeue": RUNNING, "hold": WAITING, "release": WAITING}
_WHY_NOT = {"requeue": "only one that runs can go back to the queue", "hold": "only one that waits can be held",
            "release": "only one that waits can be released"}  # fmt: skip
_DEEP = 10_000  # incidents that are looked at
_MOST_INCIDENTS = 20


@router.post("/requeue", status_code=204)
async def requeue(name: str, job_id: PathNumber, state: State, who: Member, task: Task = "") -> Response:
    """Sends a running job back to the queue."""
    return await _control(name, job_id, "requeue", state, who, task)


@router.post("/hold", status_code=204)
async def hold(name: str, job_id: PathNumber, state: State, who: Member, task: Task = "") -> Response:
    """Keeps a waiting job from starting. Held for somebody else, only a lead or an admin releases it."""
    return await _control(name, job_id, "hold", state, who, task)


@router.post("/release", status_code=204)
async def release(name: str, job_id: PathNumber, state: State, who: Member, task: Task = "") -> Response:
    return await _control(name, job_id, "release", state, who, task)


async def _control(name: str, job_id: int, verb: str, state: AppState, who: Principal, task: str) -> Response:
    _, cluster = await state.cluster(name)
    found = await job_of(state, cluster, job_id)
    word, states = meant(state, cluster, found, job_id, task)
    as_operator = await authorize_action(state, cluster, who, found, f"{verb} job {word}")
    if not _MAY_STAND[verb].intersection(states):
        raise Conflict(f"job {word} is {states[0]}: {_WHY_NOT[verb]}", hint=f"headway job {name} {word}")
    await state.work.control(cluster, word, verb, who.user, as_operator=as_operator)
    state.live.poke(name, (job_id,))
    await write_audit_line(state, who, verb, name, job=job_id, of=found.user, **({"task": task} if task else {}))
    return Response(status_code=204)


@router.get("/runs")
async def runs(name: str, job_id: PathNumber, state: State, who: Anyone) -> JobRunsOut:  # noqa: ARG001
    """Every run of the job, with how well it lay on the network, and the incidents that touched it."""
    _, cluster = await state.cluster(name)
    found = await state.job(cluster, job_id)
    known = [run for run in await state.work.runs(cluster, job_id) if run.start_time or run.state in WAITING]
    if known and known[-1].start_time in (0, found.start_time):
        known = known[:-1]  # the controller says more of the last one, and sooner
    others = state.live.snapshot(name).with_ended(await history_of(state, cluster))
    # When one that waits is expected to start is no start; accounting's REQUEUED is a run that ended.
    every = [*known, replace(found, start_time=0, end_time=0) if found.state in WAITING else found]
    return JobRunsOut(
        runs=[_run_out(run, state, cluster, others) for run in every],
        incidents=await _incidents(state, name, job_id, every),
    )


def _run_out(run: JobState, state: AppState, cluster: Cluster, others: tuple[JobState, ...]) -> JobRunOut:
    started = bool(run.start_time and run.nodes)
    placement = None
    if started and cluster.slots:
        leaf_of = {slot.name: slot.leaf for slot in cluster.slots}
        by_leaf = leaves_of(run.nodes, leaf_of)
        least = fewest(run, state.live.snapshot(cluster.name).nodes, others, leaf_of)
        placement = PlacementOut(leaves=len(by_leaf), fewest=min(least, len(by_leaf)) or len(by_leaf), by_leaf=by_leaf)
    return JobRunOut(
        state=run.state,
        submit_time=run.submit_time,
        start_time=run.start_time if started else 0,
        end_time=run.end_time if run.state not in RUNNING else 0,
        nodelist=compress(run.nodes),
        exit_code=run.exit_code,
        placement=placement,
    )


async def _incidents(state: AppState, name: str, job_id: int, every: list[JobState]) -> list[IncidentOut]:
    """Those that moved it, and those of its nodes while it ran there."""
    numbers = set(await state.store.incidents_that_moved(name, job_id))
    began = min((run.start_time for run in every if run.start_time), default=0)
    for one in await state.store.incidents(name, since=began, limit=_DEEP) if began else ():
        at = one.fault_at or one.opened_at
        for run in every:
            end = run.end_time if run.end_time and run.state not in RUNNING else state.clock()
            if one.node in run.nodes and run.start_time and run.start_time <= at <= end + 1:
                numbers.add(one.number)
    return [incident_out(await state.store.incident(number)) for number in sorted(numbers)[-_MOST_INCIDENTS:]]


@router.get("/log/part")
async def log_part(
    name: str,
    job_id: PathNumber,
    state: State,
    who: Member,
    before: Annotated[int | None, Query(ge=0, le=2**53)] = None,
    lines: Annotated[int, Query(ge=1, le=MOST_LINES)] = 500,
    err: bool = False,
    task: Task = "",
) -> LogPartOut:
    """The last lines of the log, or those before a place in it."""
    cluster, found = await _readable(name, job_id, state, who, task)
    with command_slot(state, who):
        return await state.work.log_part(cluster, found, before=before, lines=lines, err=err)


@router.get("/log/search")
async def log_search(
    name: str,
    job_id: PathNumber,
    state: State,
    who: Member,
    q: Annotated[str, Query(max_length=200)] = "",
    err: bool = False,
    task: Task = "",
) -> LogFoundOut:
    """Lines of the log that hold a text, whatever its case. The search is done on the cluster."""
    cluster, found = await _readable(name, job_id, state, who, task)
    if not q:
        return LogFoundOut(found=[])
    with command_slot(state, who):
        return await state.work.log_search(cluster, found, q, err=err)


async def _readable(name: str, job_id: int, state: AppState, who: Principal, task: str) -> tuple[Cluster, JobState]:
    _, cluster = await state.cluster(name)
    found = await state.job(cluster, job_id)
    await authorize_action(state, cluster, who, found, f"read the log of job {job_id}")
    if not task:
        return cluster, found
    with command_slot(state, who):
        return cluster, await state.work.task(cluster, job_id, task)


@router.get("/script")
async def script(name: str, job_id: PathNumber, state: State, who: Member) -> ScriptOut:
    """What was submitted: as Headway kept it, else as accounting did. Values of secrets are masked."""
    cluster = await cluster_to_work_on(state, name, who)
    found = await state.job(cluster, job_id)
    await authorize_action(state, cluster, who, found, f"read the script of job {job_id}")
    sent, _ = await what_was_sent(state, cluster, found, who)
    return without_secrets(sent)


def without_secrets(sent: ScriptOut) -> ScriptOut:
    told = {"script_args": masked_words(sent.script_args), "sbatch_args": masked_words(sent.sbatch_args)}
    return sent.model_copy(update={"text": masked_text(sent.text), **told})


async def what_was_sent(
    state: AppState, cluster: Cluster, found: JobState, who: Principal
) -> tuple[ScriptOut, JobRecord | None]:
    """(As its owner wrote it, the record it is from). For who may read it."""
    number = found.array_job_id or found.id
    record = await record_of(state, cluster, found)
    if record is not None:
        sent = SubmitIn.model_validate(record.request)
        told = ScriptOut(
            name=sent.script_name,
            text=sent.script or "",
            script_args=sent.script_args,
            sbatch_args=sent.args,
            chdir="" if record.kind == "run" or sent.bundle else sent.chdir,
            kind=record.kind,
        )
        return told, record
    ask = ExecIn(argv=["sacct", "--noheader", "--batch-script", "-j", str(number)], user=found.user)
    with command_slot(state, who):
        ran = await state.work.run_command(cluster, ask, found.user)
    text = base64.b64decode(ran.stdout_b64).decode(errors="replace")
    at = text.find("#!")
    if ran.code or at < 0:
        raise NotFound(f"no script is kept of job {found.id}", hint="salloc and srun have none")
    return ScriptOut(name=PurePosixPath(found.command).name or "script.sbatch", text=text[at:], kind="sbatch"), None
