"""Converts a job to the schemas of the API, and to JSON for lists. Pure."""

from __future__ import annotations

from headway.domain.slurm.hostlist import compress
from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.jobs.explain.pending_explanation import PendingReason
from headway.jobs.explain.phrases import format_phrase
from headway.jobs.explain.reason_lines import job_reason
from headway.jobs.view.ettr import EffectiveTime
from headway.schemas.jobs import EffectiveTimeOut, JobOut, ProgressOut

_MORE = tuple(JobOut.model_fields)[tuple(JobOut.model_fields).index("priority") :]  # with the same names as in JobState


def job_out(
    job: JobState, now: float, progress: ProgressOut | None = None, waits: PendingReason | None = None
) -> JobOut:
    """Returns the job as the API shows it. `now` (unix seconds) ends the elapsed time of running jobs; `waits` is why
    it is pending."""
    end = job.end_time if 0 < job.end_time <= now and job.state not in RUNNING else int(now)
    started = job.start_time and job.state not in WAITING
    return JobOut(
        id=job.id,
        name=job.name,
        user=job.user,
        account=job.account,
        partition=job.partition,
        state=job.state,
        reason=job.reason,
        nodes=list(job.nodes),
        nodelist=compress(job.nodes),
        node_count=job.node_count,
        gpus=job.gpus,
        submit_time=job.submit_time,
        start_time=job.start_time,
        end_time=job.end_time,
        time_limit_s=job.time_limit_s,
        elapsed_s=max(0, end - job.start_time) if started else 0,
        restarts=job.restarts,
        stdout=job.stdout,
        stderr=job.stderr,
        command=job.command,
        workdir=job.workdir,
        qos=job.qos,
        exit_code=job.exit_code,
        array_job_id=job.array_job_id,
        array_task=job.array_task,
        progress=progress,
        why=job_reason(job),
        needs=format_phrase(waits.needs, now) if waits else "",
        expected_nodes=compress(waits.nodes) if waits else "",
        **{name: getattr(job, name) for name in _MORE},
    )


def job_row(job: JobState) -> bytes:
    """Returns the job as JSON for lists, without the values that change all the time: `elapsed_s` of running jobs, and
    progress."""
    out = job_out(job, float(job.end_time))
    silent = {name for name in _MORE if not getattr(out, name)}
    if job.state in RUNNING:
        silent.add("elapsed_s")
    return out.model_dump_json(exclude=silent | {"progress", "tasks", "needs", "expected_nodes", "metrics"}).encode()


def row_now(job: JobState, row: bytes, now: float, progress: ProgressOut | None) -> bytes:
    """Returns the row with the present `elapsed_s` and progress."""
    if job.state not in RUNNING:
        return row
    prefix = b'{"elapsed_s":%d,' % max(0, int(now) - job.start_time if job.start_time else 0)
    if progress is not None:
        prefix += b'"progress":' + progress.model_dump_json().encode() + b","
    return prefix + row[1:]


def effective_time_out(time: EffectiveTime) -> EffectiveTimeOut | None:
    """Returns None for a training that was never restarted: all of its time counted."""
    if not time.restarts or time.ettr is None:
        return None
    return EffectiveTimeOut(
        restarts=time.restarts,
        lost_s=round(time.lost_s, 1),
        down_s=round(time.down_s, 1),
        ettr=round(time.ettr, 3),
    )
