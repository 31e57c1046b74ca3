"""Details of one job: its state, its runs, its submitted script, parts of its log."""

from __future__ import annotations

import base64
import contextlib
from dataclasses import replace
from pathlib import PurePosixPath

from headway.domain.access.credential_redaction import mask_script_text, mask_words
from headway.domain.cluster import Cluster
from headway.domain.slurm.hostlist import compress
from headway.domain.slurm.job_states import FAILED, RUNNING, WAITING
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError, NotFound
from headway.jobs.explain.job_failures import CONTAINER_FAILED_CODE, container_error, last_error
from headway.jobs.submission.user_script_lines import split_arguments
from headway.jobs.view.array_tasks import array_out
from headway.jobs.view.placement import fewest_leaves, leaves_of
from headway.schemas.jobs import (
    ArrayOut,
    JobOut,
    JobRunOut,
    JobRunsOut,
    LogFoundOut,
    LogPartOut,
    PlacementOut,
    ScriptOut,
)
from headway.schemas.nodes.incidents import IncidentOut
from headway.schemas.submission.exec_commands import ExecIn
from headway.schemas.submission.submit_request import SubmitIn
from headway.services.access.concurrency_limits import command_slot
from headway.services.access.ownership_rights import authorize_action, authorize_log, cluster_to_work_on
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.job_secrets.masked_values import log_mask
from headway.services.jobs.find_job import array_task_states, find_record
from headway.services.jobs.job_to_schema import job_out
from headway.services.jobs.training_metrics import newest_values
from headway.services.nodes.incident_to_schema import incident_out
from headway.services.queue.pending_reasons import job_history, pending_reason
from headway.slurm.commands_as_user import batch_script_argv
from headway.store import JobRecord

_LOG_TAIL_BYTES = 4096  # of a failed container job's log, searched for the reason
_ERROR_LINES = 200  # lines at the end of a failed job's log that are searched for its last error
_ERROR_AGE_S = 600.0
_MAX_INCIDENTS_READ = 10_000
_MAX_INCIDENTS_SHOWN = 20


async def get_job(state: AppState, who: Principal, name: str, job_id: int, task: str = "") -> JobOut:
    """Returns one job, or one task of an array (pending tasks may share one record in Slurm).

    The reason why a container did not start comes from the job's log, so only people who may read the log get it."""
    _, cluster = await state.clusters.get(name)
    job = await state.readings.task(cluster, job_id, task) if task else await state.readings.job(cluster, job_id)
    out = job_out(job, state.clock(), await state.readings.progress(cluster, job), pending_reason(state, cluster, job))
    out.metrics = await newest_values(state, name, job)
    if job.state == "FAILED" and job.exit_code == CONTAINER_FAILED_CODE and job.stderr.startswith("/"):
        with contextlib.suppress(HeadwayError):
            await authorize_log(state, cluster, who, job, job_id)
            argv = ["timeout", "5", "tail", "-c", str(_LOG_TAIL_BYTES), "--", job.stderr]
            with command_slot(state, who):
                done = await state.backend.commands.run_command(cluster, ExecIn(argv=argv, user=job.user), job.user)
            mask = await log_mask(state, cluster, job)
            reason = container_error(mask.mask(base64.b64decode(done.stdout_b64)).decode(errors="replace"))
            out = out.model_copy(update={"why": reason or out.why})
    with contextlib.suppress(HeadwayError):
        await authorize_log(state, cluster, who, job, job_id)
        out.error = await get_last_error(state, cluster, job)
    return out


async def get_last_error(state: AppState, cluster: Cluster, job: JobState) -> str:
    """Returns the last error in the log of a failed job, "" if there is none or the log can't be read. The caller checks who
    may read the log."""
    if job.state not in FAILED - {"CANCELLED"} or not job.start_time:
        return ""

    async def read() -> str:
        err = job.stderr != job.stdout and job.stderr.startswith("/")
        part = await state.backend.jobs.log_part(cluster, job, before=None, lines=_ERROR_LINES, err=err)
        return last_error((await log_mask(state, cluster, job)).mask_part(part).text)

    try:
        return await state.cache.get(f"{cluster.name}/error/{job.id}/{job.end_time}", _ERROR_AGE_S, read)
    except (HeadwayError, TimeoutError, OSError):
        return ""


async def get_runs(state: AppState, name: str, job_id: int) -> JobRunsOut:
    """Returns every run of the job (it may have been requeued), its network placement, and the incidents that affected
    it."""
    _, cluster = await state.clusters.get(name)
    job = await state.readings.job(cluster, job_id)
    runs = [
        run for run in await state.backend.slurm.job_runs(cluster, job_id) if run.start_time or run.state in WAITING
    ]
    if runs and runs[-1].start_time in (0, job.start_time):
        runs = runs[:-1]  # slurmctld has more data about the last run than accounting, and earlier
    others = state.live.snapshot(name).with_ended(await job_history(state, cluster))
    # A pending job's start time is only expected; accounting's REQUEUED is a run that has ended.
    every = [*runs, replace(job, start_time=0, end_time=0) if job.state in WAITING else job]
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
        least = fewest_leaves(run, state.live.snapshot(cluster.name).nodes, others, leaf_of)
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


async def _incidents(state: AppState, name: str, job_id: int, runs: list[JobState]) -> list[IncidentOut]:
    """Returns the incidents that requeued the job, and those of its nodes while it ran there; the latest at the end."""
    numbers = set(await state.store.incidents.that_requeued(name, job_id))
    began = min((run.start_time for run in runs if run.start_time), default=0)
    for incident in await state.store.incidents.search(name, since=began, limit=_MAX_INCIDENTS_READ) if began else ():
        at = incident.fault_at or incident.opened_at
        for run in runs:
            end = run.end_time if run.end_time and run.state not in RUNNING else state.clock()
            if incident.node in run.nodes and run.start_time and run.start_time <= at <= end + 1:
                numbers.add(incident.number)
    latest = sorted(numbers)[-_MAX_INCIDENTS_SHOWN:]
    return [incident_out(await state.store.incidents.get(number)) for number in latest]


async def get_array_tasks(state: AppState, who: Principal, name: str, job_id: int) -> ArrayOut:
    """Returns the number of an array's tasks by state; total 0 for a job that is not an array."""
    _, cluster = await state.clusters.get(name)
    return array_out(await array_task_states(state, who, cluster, job_id))


async def read_log_part(
    state: AppState, who: Principal, name: str, job_id: int, *, task: str, before: int | None, lines: int, err: bool
) -> LogPartOut:
    """Returns the last `lines` of the log, or those before the byte offset `before`."""
    cluster, job = await _job_with_readable_log(state, who, name, job_id, task)
    with command_slot(state, who):
        part = await state.backend.jobs.log_part(cluster, job, before=before, lines=lines, err=err)
    return (await log_mask(state, cluster, job)).mask_part(part)


async def search_log(
    state: AppState, who: Principal, name: str, job_id: int, text: str, *, task: str, err: bool
) -> LogFoundOut:
    """Returns log lines that contain the text, ignoring case. The search runs on the cluster."""
    cluster, job = await _job_with_readable_log(state, who, name, job_id, task)
    if not text:
        return LogFoundOut(found=[])
    with command_slot(state, who):
        found = await state.backend.jobs.search_log(cluster, job, text, err=err)
    return (await log_mask(state, cluster, job)).mask_found(found, text)


async def _job_with_readable_log(
    state: AppState, who: Principal, name: str, job_id: int, task: str
) -> tuple[Cluster, JobState]:
    """Returns the cluster and the job, or the task of its array. Raises NotAllowed for a person who may not read its
    log."""
    _, cluster = await state.clusters.get(name)
    job = await state.readings.job(cluster, job_id)
    await authorize_log(state, cluster, who, job, job_id)
    if not task:
        return cluster, job
    with command_slot(state, who):
        return cluster, await state.backend.slurm.task(cluster, job_id, task)


async def get_script(state: AppState, who: Principal, name: str, job_id: int) -> ScriptOut:
    """Returns the submitted script, from Headway's record or otherwise from Slurm's accounting. Secrets are masked."""
    cluster = await cluster_to_work_on(state, name, who)
    job = await state.readings.job(cluster, job_id)
    await authorize_action(state, cluster, who, job, f"read the script of job {job_id}")
    script, _ = await read_script(state, who, cluster, job)
    return mask_script(script)


def mask_script(script: ScriptOut) -> ScriptOut:
    """Returns the script without the values of secrets in its text and arguments."""
    masked = {"script_args": mask_words(script.script_args), "sbatch_args": mask_words(script.sbatch_args)}
    return script.model_copy(update={"text": mask_script_text(script.text), **masked})


async def read_script(
    state: AppState, who: Principal, cluster: Cluster, job: JobState
) -> tuple[ScriptOut, JobRecord | None]:
    """Returns (the script with its secrets, the record that it comes from or None). The caller checks who may read it.
    Raises NotFound."""
    record = await find_record(state, cluster, job)
    if record is not None:
        sent = SubmitIn.model_validate(record.request)
        script = ScriptOut(
            name=sent.script_name,
            text=sent.script or "",
            script_args=sent.script_args,
            sbatch_args=sent.args,
            chdir="" if record.kind == "run" or sent.bundle else sent.chdir,
            kind=record.kind,
        )
        return script, record
    argv = batch_script_argv(job.array_job_id or job.id)
    with command_slot(state, who):
        done = await state.backend.commands.run_command(cluster, ExecIn(argv=argv, user=job.user), job.user)
    text = base64.b64decode(done.stdout_b64).decode(errors="replace")
    start = text.find("#!")
    if done.code or start < 0:
        raise NotFound(f"job {job.id} has no stored script", hint="jobs of salloc and srun have no script")
    name = PurePosixPath(job.command).name or "script.sbatch"
    body, arguments = split_arguments(text[start:])
    return ScriptOut(name=name, text=body, script_args=arguments, kind="sbatch"), None
