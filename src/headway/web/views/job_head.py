"""The top of the job's page: name, state, why it waits or ended, and the actions on it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headway.domain.slurm.nodes_and_jobs import JobState
from headway.jobs.explain.pending_explanation import PendingReason
from headway.jobs.explain.phrases import Phrase
from headway.jobs.explain.reason_lines import job_reason as ended_why
from headway.schemas.jobs import ArrayOut
from headway.services.jobs.actions import POSSIBLE_IN
from headway.web.views.queue.queue_rows import array_word
from headway.web.views.state_wording import job_word


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
    actions: tuple[str, ...]  # the actions of POSSIBLE_IN that the state allows and this person may take
    clone: bool
    terminal: bool = False  # the person may open a terminal in the job
    error: str = ""  # the last error in its log


def array_head(
    cluster: str, job: JobState, counts: ArrayOut, why: PendingReason | None, *, mine: bool, clone: bool
) -> Head:
    """Returns the top of an array's page. `job`: the record that has the array's number. An array is held and requeued
    task by task; here only all tasks can be cancelled."""
    kind, word = array_word(counts)
    made = head(cluster, job, why if not counts.running else None, mine=mine, clone=clone)
    waits = counts.pending > 0 and not counts.running
    actions = tuple(action for action in made.actions if action in ("hold", "release")) if counts.pending else ()
    return replace(
        made,
        id=job.array_job_id,
        label=str(job.array_job_id),
        task="",
        whole=job.array_job_id,
        kind=kind,
        word=word,
        why=made.why if waits else "",
        needs=made.needs if waits else (),
        starts_at=made.starts_at if waits else 0,
        restarts=0,
        actions=(*actions, "cancel") if mine and (counts.running or counts.pending) else (),
    )


def head(
    cluster: str,
    job: JobState,
    why: PendingReason | None,
    *,
    mine: bool,
    clone: bool,
    as_owner: bool = False,
    error: str = "",
) -> Head:
    """Returns the top of the page. `mine`: the person may act on the job; `clone`: the person may submit a copy; `as_owner`: the
    person may run something as its user. `error`: the last error in its log."""
    kind, word = job_word(job.state, job.reason)
    actions: list[str] = [action for action, states in POSSIBLE_IN.items() if mine and job.state in states]
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
        terminal=as_owner and job.state == "RUNNING",
        error=error,
    )
