"""The page of an array: its state, and its tasks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headway.domain.slurm.hostlist import compress
from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.schemas.jobs import ArrayOut
from headway.web.views.state_wording import job_word

KINDS = ("", "failed", "running", "pending", "done", "cancelled")
ROWS = 100


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of an array's tasks by state, and the kind that is listed."""

    array: int
    out: ArrayOut
    show: str

    @property
    def kinds(self) -> tuple[tuple[str, str, int], ...]:
        """Returns (kind, title, number of tasks) of the kinds that can be listed."""
        n = self.out
        numbers = (n.total, n.failed, n.running, n.pending, n.done, n.cancelled)
        return tuple(
            (kind, kind.capitalize() or "All", number)
            for kind, number in zip(KINDS, numbers, strict=True)
            if number or kind in ("", self.show)
        )


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task of an array. Times are unix seconds; `seconds`: how long it ran, None while it runs or waits."""

    task: int
    kind: str
    word: str
    nodes: str = ""
    start: int = 0
    seconds: int | None = None
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class TaskRows:
    """One page of an array's tasks."""

    cluster: str
    array: int
    rows: tuple[TaskRow, ...]
    text: str
    before: str  # the address of the previous page; "" on the first one
    after: str


def task_rows(
    cluster: str, array: int, states: Mapping[str, str], known: Iterable[JobState], *, show: str, cursor: int
) -> TaskRows:
    """Returns the tasks of the kind `show` ("" = all) by number, from the `cursor`-th on. `states`: the state of each task;
    `known`: the tasks that Slurm or accounting has details of."""
    jobs = {job.array_task: job for job in known if job.array_job_id == array}
    chosen = sorted(int(task) for task, state in states.items() if show in ("", _kind(state)))
    cursor = min(cursor, max(0, len(chosen) - 1) // ROWS * ROWS)
    rows = tuple(_row(task, states[str(task)], jobs.get(str(task))) for task in chosen[cursor : cursor + ROWS])
    text = (
        f"{cursor + 1:,} to {cursor + len(rows):,} of {len(chosen):,}" if len(rows) < len(chosen) else f"{len(rows):,}"
    )

    def page(first: int) -> str:
        return f"?show={show}&cursor={first}"

    return TaskRows(
        cluster,
        array,
        rows,
        f"{text} tasks" if len(chosen) != 1 else "1 task",
        page(max(0, cursor - ROWS)) if cursor else "",
        page(cursor + ROWS) if cursor + ROWS < len(chosen) else "",
    )


def _kind(state: str) -> str:
    if state in RUNNING or state in WAITING:
        return "running" if state in RUNNING else "pending"
    return {"COMPLETED": "done", "CANCELLED": "cancelled"}.get(state, "failed")


def _row(task: int, state: str, job: JobState | None) -> TaskRow:
    kind, word = job_word(state, job.reason if job else "")
    if job is None or state in WAITING:
        return TaskRow(task, kind, word)
    ran = max(0, job.end_time - job.start_time) if job.start_time and state not in RUNNING else None
    return TaskRow(task, kind, word, compress(job.nodes), job.start_time, ran, job.exit_code)
