"""The figures and details of the job's page, and the counts of an array. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.jobs.explain.efficiency import Finding
from headway.schemas.jobs import ArrayOut, JobRunsOut, PlacementOut, ProgressOut
from headway.web.views.state_wording import count, slurm_time


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the job. `since`: the time counts up from that moment."""

    title: str
    text: str = ""
    sub: str = ""
    since: int = 0
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """The figures and details of the job."""

    figures: tuple[Figure, ...]
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Tasks:
    """The task counts of an array."""

    cluster: str
    array: int
    out: ArrayOut


@dataclass(frozen=True, slots=True)
class Efficiency:
    """How well the job used its resources."""

    headline: str
    findings: tuple[Finding, ...]


def facts(job: JobState, progress: ProgressOut | None, runs: JobRunsOut, *, simulated: bool) -> Facts:
    """Returns the figures and details of the job."""
    waiting, running = job.state in WAITING, job.state in RUNNING
    time = Figure("Pending", since=job.submit_time) if waiting else Figure("Running", since=job.start_time)
    if not waiting and not running:
        time = Figure("Ran", slurm_time(max(0, job.end_time - job.start_time)) if job.start_time else "none")
    limit = f"of {slurm_time(job.time_limit_s)}" if job.time_limit_s else "no limit"
    figures = [
        Figure(time.title, time.text, limit, time.since),
        Figure("Nodes", str(job.node_count or len(job.nodes)), f"partition {job.partition}"),
        Figure(
            "GPUs",
            str(job.gpus or "none"),
            count(job.cpus, "CPU") if job.cpus else "",
            simulated=simulated and job.gpus > 0,
        ),
    ]
    if progress and progress.reported:
        rate = f", {progress.tokens_per_s:,.0f} tokens/s" if progress.tokens_per_s is not None else ""
        figures.append(Figure("Loss", progress.loss_word(3) or "none reported", f"step {progress.step:,}{rate}"))
    effective = progress.effective_time if progress else None
    if effective:
        lost = f"{effective.lost_s:.0f} s repeated, {effective.down_s:.0f} s between runs"
        figures.append(Figure("ETTR", f"{effective.ettr * 100:.1f} %", lost))
    rows = [
        ("Warning", progress.warning if progress else ""),
        ("Reports", ", ".join(f"{name} {value:.6g}" for name, value in progress.more.items()) if progress else ""),
        ("User", f"{job.user}, team {job.account}" if job.account else job.user),
        ("QOS", job.qos),
        ("Priority", f"{job.priority:,}" if waiting and job.priority else ""),
        ("Nodes", ", ".join(job.nodes[:16]) + (f" and {len(job.nodes) - 16} more" if len(job.nodes) > 16 else "")),
        ("Placement", _placement(runs)),
        ("Dependency", job.dependency),
        ("Reservation", job.reservation),
        ("Constraint", job.features),
        ("Exit code", str(job.exit_code) if job.exit_code else ""),
        ("Array", f"task {job.array_task} of {job.array_job_id}" if job.array_job_id else ""),
        ("Folder", job.workdir),
        ("Output", job.stdout),
        ("Errors", job.stderr if job.stderr != job.stdout else ""),
        ("Comment", job.comment),
    ]
    return Facts(tuple(figures), tuple((name, text) for name, text in rows if text))


def _placement(runs: JobRunsOut) -> str:
    last = next((run.placement for run in reversed(runs.runs) if run.placement), None)
    return placed(last) if last else ""


def placed(placement: PlacementOut) -> str:
    """Returns a placement in words."""
    text = count(placement.leaves, "leaf switch", "leaf switches")
    if placement.leaves <= placement.fewest:
        return f"{text} (optimal)"
    leaves = ", ".join(f"{number} on {leaf}" for leaf, number in sorted(placement.by_leaf.items()))
    return f"{text} (optimal: {placement.fewest}): {leaves}"
