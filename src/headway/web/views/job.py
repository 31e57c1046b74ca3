"""View models of the job's page: values without the current time. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.jobs.explain.pending import PendingReason
from headway.jobs.explain.phrases import Phrase
from headway.jobs.explain.reason_sentences import job_reason as ended_why
from headway.schemas.base import API_PREFIX
from headway.schemas.incidents import IncidentOut
from headway.schemas.jobs import ArrayOut, JobRunOut, JobRunsOut, PlacementOut, ProgressOut
from headway.web.views.wording import count, job_word, slurm_time

_GPUS = ("gpu_utilisation", "gpu_memory", "gpu_power", "gpu_temperature")
ACTIONS = {"requeue": RUNNING, "hold": WAITING, "release": WAITING, "cancel": RUNNING | WAITING}


@dataclass(frozen=True, slots=True)
class Head:
    """The top of the page: the job's name, its state and the actions on it."""

    id: int
    cluster: str
    label: str
    task: str  # the array task that the actions are for; "" for a job that is no task, and for a record of many tasks
    whole: int  # the array whose tasks the actions are for, all of them; 0 otherwise
    name: str
    kind: str
    word: str
    why: str
    needs: Phrase
    starts_at: int
    planned: str
    restarts: int
    actions: tuple[str, ...]  # the actions of ACTIONS that the state allows and this person may take
    clone: bool


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
class Step:
    """An entry of the timeline."""

    at: float  # unix seconds; 0: not yet
    kind: str  # ok | warn | bad | now
    title: str
    text: str = ""
    href: str = ""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The timeline of the job."""

    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Tasks:
    """The task counts of an array."""

    cluster: str
    array: int
    out: ArrayOut


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPU charts of a job that has started. `marks`: moments to mark in the charts."""

    address: str
    simulated: bool
    marks: tuple[tuple[int, str], ...]


def head(cluster: str, job: JobState, why: PendingReason | None, *, mine: bool, clone: bool) -> Head:
    """Returns the top of the page. `mine`: the person may act on the job; `clone`: the person may submit a copy."""
    kind, word = job_word(job.state, job.reason)
    actions = [action for action, states in ACTIONS.items() if mine and job.state in states]
    is_held = word == "held"
    actions = [action for action in actions if action != ("hold" if is_held else "release")]
    return Head(
        id=job.id,
        cluster=cluster,
        label=job.label,
        task=job.array_task if job.array_task.isdigit() else "",
        whole=0 if job.array_task.isdigit() else job.array_job_id,
        name=job.name or "(no name)",
        kind=kind,
        word=word,
        why=why.reason if why else ended_why(job),
        needs=why.needs if why else (),
        starts_at=why.starts_at if why else 0,
        planned=", ".join(why.nodes) if why and why.starts_at else "",
        restarts=job.restarts,
        actions=tuple(actions),
        clone=clone,
    )


def facts(job: JobState, progress: ProgressOut | None, runs: JobRunsOut, *, simulated: bool) -> Facts:
    """Returns the figures and details of the job."""
    waiting, running = job.state in WAITING, job.state in RUNNING
    time = Figure("Waiting", since=job.submit_time) if waiting else Figure("Running", since=job.start_time)
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
    course = progress.course if progress else None
    if course:
        lost = f"{course.lost_s:.0f} s repeated, {course.down_s:.0f} s between runs"
        figures.append(Figure("ETTR", f"{course.ettr * 100:.1f} %", lost))
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
    leaves = ", ".join(f"{leaf} {number}" for leaf, number in sorted(placement.by_leaf.items()))
    text = f"under {count(placement.leaves, 'leaf', 'leaves')} ({leaves})"
    if placement.leaves <= placement.fewest:
        return f"{text}, the fewest possible"
    return f"{text}; {placement.fewest} would suffice"


def timeline(cluster: str, job: JobState, runs: JobRunsOut) -> Timeline:
    """Returns the submission, each run's start and end, and the incidents between them, in order of time."""
    first = min((run.submit_time for run in runs.runs if run.submit_time), default=job.submit_time)
    steps = [Step(first, "ok", "Submitted", f"by {job.user} to {job.partition}")]
    for number, run in enumerate(runs.runs):
        steps += _run(run, number, job, last=number == len(runs.runs) - 1)
    steps += [_incident(cluster, incident) for incident in runs.incidents]
    return Timeline(tuple(sorted(steps, key=lambda step: step.at or float("inf"))))


def _run(run: JobRunOut, number: int, job: JobState, *, last: bool) -> list[Step]:
    steps = []
    if run.start_time:
        again = f", run {number + 1}" if number else ""
        where = placed(run.placement) if run.placement else ""
        steps.append(Step(run.start_time, "ok", f"Started{again}", f"on {run.nodelist}{f', {where}' if where else ''}"))
    kind, word = job_word(run.state, "")
    if last and job.state in WAITING:
        steps.append(Step(0, "now", "Waits to start again" if number or job.restarts else "Waits"))
    elif last and job.state in RUNNING:
        steps.append(Step(0, "now", job_word(job.state, job.reason)[1].capitalize()))
    elif run.end_time:
        code = f"exit code {run.exit_code}" if run.exit_code else ""
        back = run.state == "REQUEUED" or not last
        title = "Went back to the queue" if back else word.capitalize()
        sign = "warn" if back else "ok" if kind == "done" else "bad"
        steps.append(Step(run.end_time, sign, title, word if back and run.state != "REQUEUED" else code))
    return steps


def _incident(cluster: str, incident: IncidentOut) -> Step:
    return Step(
        incident.fault_at or incident.opened_at,
        "bad",
        f"Incident {incident.number} on {incident.node}",
        f"{incident.what}: {incident.state}",
        f"/clusters/{cluster}/incidents/{incident.number}",
    )


def gpus(cluster: str, job: JobState, runs: JobRunsOut, *, simulated: bool) -> Gpus | None:
    """Returns the GPU charts; None before the job has started or if it has no GPUs."""
    if not job.gpus or not job.start_time or job.state in WAITING:
        return None
    address = f"{API_PREFIX}/clusters/{quote(cluster)}/metrics?job={job.id}&" + "&".join(
        f"series={gpu}" for gpu in _GPUS
    )
    again = [
        (run.start_time, f"run {number}") for number, run in enumerate(runs.runs, 1) if run.start_time and number > 1
    ]
    return Gpus(address, simulated, tuple(again))
