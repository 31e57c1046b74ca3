"""View models of the queue's page: the table, the line below it and the column chooser. The columns are declared in
`queue_columns`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from headway.domain.slurm.job_states import JOB_KINDS, RUNNING, WAITING, kind_of
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.jobs.explain.pending_explanation import PendingReason
from headway.jobs.explain.phrases import Phrase
from headway.schemas.jobs import ArrayOut
from headway.services.queue.queue_fields import QueueField
from headway.services.queue.search import QueuePage
from headway.web.views.queue.queue_address import QueueAddress
from headway.web.views.queue.queue_columns import COLUMNS, DEFAULT_COLUMNS, QueueColumn
from headway.web.views.state_wording import job_word, slurm_time

MAX_TASKS = 20  # tasks shown below the row of an array


@dataclass(frozen=True, slots=True)
class QueueCell:
    """One column's value. `since`: the time counts up from that moment; `until`: it counts down to it; `at`: a
    moment; otherwise `text`."""

    key: str
    title: str
    text: str = ""
    at: int = 0
    since: int = 0
    until: int = 0
    right: bool = False


@dataclass(frozen=True, slots=True)
class ArrayTasks:
    """The matching tasks of an array that the list has, and the number of all its tasks by state."""

    counts: ArrayOut
    tasks: tuple[JobState, ...]


@dataclass(frozen=True, slots=True)
class ArrayPart:
    """What the row of an array shows: the number of its tasks by state, and the link that shows or hides tasks. `tasks`:
    rows of the shown ones; `more`: how many others the list has."""

    counts: ArrayOut
    href: str
    open: bool
    tasks: tuple[QueueRow, ...] = ()
    more: int = 0


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One job in the table, or an array."""

    id: int
    page: str  # the last part of the address of its page
    label: str
    name: str
    user: str
    kind: str
    word: str
    cells: tuple[QueueCell, ...]
    why: str = ""
    needs: Phrase = ()
    starts_at: int = 0
    planned: str = ""
    array: ArrayPart | None = None
    pick: str = ""  # the job that its box selects; "" without a box
    pick_words: str = ""


@dataclass(frozen=True, slots=True)
class Rows:
    """The table's body. `columns` is its width; `filtered` and `read` explain why it may be empty."""

    rows: tuple[QueueRow, ...]
    columns: int
    filtered: bool
    cluster: str
    read: bool = True  # whether the queue has been read yet


@dataclass(frozen=True, slots=True)
class Foot:
    """The line below the table."""

    text: str
    further: str  # address of the next page; "" on the last one
    first: str  # address of the first page; "" on it
    gap: str = ""  # why ended jobs are missing


def rows(
    cluster: str,
    listed: QueuePage,
    query: QueueAddress,
    why: Callable[[JobState], PendingReason | None],
    now: float,
    *,
    arrays: Mapping[int, ArrayTasks] = MappingProxyType({}),
    read: bool = True,
) -> Rows:
    """Returns the table's body. `arrays`: for each array that has one row, its tasks."""

    def one(job: JobState) -> QueueRow:
        return row(job, query.columns, why(job), now)

    made = tuple(
        _array_row(job, arrays[job.array_job_id], query, one, now) if job.array_job_id in arrays else one(job)
        for job in listed.jobs
    )
    return Rows(made, len(query.columns), query.filtered, cluster, read)


def row(job: JobState, columns: Iterable[QueueColumn], why: PendingReason | None, now: float) -> QueueRow:
    """Returns one job's row."""
    kind, word = job_word(job.state, job.reason)
    planned = (
        ", ".join(why.nodes[:3]) + (f" and {len(why.nodes) - 3} more" if len(why.nodes) > 3 else "") if why else ""
    )
    return QueueRow(
        id=job.id,
        page=job_page(job),
        label=job.label,
        name=job.name,
        user=job.user,
        kind=kind,
        word=word,
        cells=tuple(_cell(job, column, now) for column in columns),
        why=why.reason if why else "",
        needs=why.needs if why else (),
        starts_at=why.starts_at if why else 0,
        planned=planned if why and why.starts_at else "",
        pick=_pick(job, kind),
        pick_words=f"{job.label} {job.name} of {job.user}, {word}",
    )


def job_page(job: JobState) -> str:
    """Returns the last part of the address of a job's page: "104", "18_3" for a task, "18" for tasks that share a
    record."""
    return job.label if job.array_task.isdigit() else str(job.array_job_id or job.id)


def _pick(job: JobState, kind: str) -> str:
    """Returns the job that the box of a row selects. Ended jobs have no box, nor has a record that stands for several tasks:
    Slurm acts on its number for the whole array."""
    several = bool(job.array_task) and not job.array_task.isdigit()
    return "" if several or kind not in ("running", "waiting") else job_page(job)


def _array_row(
    first: JobState, found: ArrayTasks, query: QueueAddress, one: Callable[[JobState], QueueRow], now: float
) -> QueueRow:
    """Returns the row of an array. `first`: the first of its tasks in the list's order."""
    array = first.array_job_id
    running = [job for job in found.tasks if job.state in RUNNING]
    nodes = tuple(dict.fromkeys(node for job in running for node in job.nodes))
    whole = replace(
        first,
        array_task="",
        array_job_id=0,
        id=array,
        nodes=nodes,
        node_count=len(nodes) if running else first.node_count,
        gpus=sum(job.gpus for job in running) if running else first.gpus,
    )
    made = one(first)
    kind, word = array_word(found.counts)
    shown: tuple[JobState, ...] = ()
    if array in query.open:
        order = sorted(found.tasks, key=_task_order)
        shown = tuple(order[:MAX_TASKS])
    part = ArrayPart(
        found.counts, query.toggle(array), array in query.open, tuple(map(one, shown)), len(found.tasks) - len(shown)
    )
    cells = tuple(_cell(whole, column, now) for column in query.columns)
    counts = [
        f"{n:,} {state}" for n, state in ((found.counts.running, "running"), (found.counts.pending, "pending")) if n
    ]
    return replace(
        made,
        id=array,
        page=str(array),
        label=str(array),
        kind=kind,
        word=word,
        cells=cells,
        array=part,
        pick=str(array) if counts else "",
        pick_words=f"{first.name} of {first.user}, all tasks of array {array} ({', '.join(counts)})",
    )


def _task_order(job: JobState) -> tuple[int, bool, int]:
    """Returns the sort key of a task below its array: running, pending, then ended tasks, failed ones first."""
    return JOB_KINDS.index(kind_of(job.state)), job_word(job.state, job.reason)[0] != "failed", job.id


def array_word(counts: ArrayOut) -> tuple[str, str]:
    """Returns (kind, word) of an array's state, as `job_word` does for a job."""
    if counts.running:
        return "running", "running"
    if counts.pending:
        return "waiting", "pending"
    if counts.failed:
        return "failed", f"{counts.failed:,} failed"
    return ("cancelled", "cancelled") if counts.cancelled else ("done", "finished")


def _cell(job: JobState, column: QueueColumn, now: float) -> QueueCell:
    field = column.field
    value = field.of(job, now)
    cell = QueueCell(column.key, column.title, right=field.kind in ("number", "span", "mib"))
    if column.key == "timeused" and job.state in RUNNING:
        return replace(cell, since=job.start_time)
    if column.key == "pendingtime" and job.state in WAITING:
        return replace(cell, since=job.submit_time)
    if column.key == "timeleft" and value:
        return replace(cell, until=job.start_time + (job.time_limit_s or 0))
    if field.kind == "moment":
        return replace(cell, at=int(value))
    return replace(cell, text=_text(field, value))


def _text(field: QueueField, value: str | int) -> str:
    if field.kind == "text":
        return str(value)
    if not value:
        return "" if field.kind != "number" else ("0" if field.key in ("exit_code", "priority") else "")
    if field.kind == "span":
        return slurm_time(int(value))
    if field.kind == "mib":
        return f"{int(value) / 1024:.4g} GiB" if int(value) >= 1024 else f"{value} MiB"
    return f"{value:,}" if field.key not in ("jobid", "arrayjobid", "userid", "groupid", "associd") else str(value)


def foot(listed: QueuePage, query: QueueAddress, gap: str = "") -> Foot:
    """Returns the line below the table."""
    last = listed.before + len(listed.jobs)
    text = f"{listed.before + 1:,} to {last:,} of {listed.total:,}" if listed.jobs else "none"
    if len(listed.jobs) == listed.total:
        text = f"{listed.total:,} job{'' if listed.total == 1 else 's'}"
    further = query.to(cursor=listed.next) if listed.next else ""
    return Foot(text, further, query.to() if query.cursor else "", gap)


@dataclass(frozen=True, slots=True)
class ColumnSection:
    """A section of the column chooser."""

    title: str
    columns: tuple[QueueColumn, ...]


# The chooser: every column squeue has, the usual ones first.
GROUPS = (
    ColumnSection("Usual", tuple(COLUMNS[key] for key in DEFAULT_COLUMNS)),
    ColumnSection("More", tuple(column for column in COLUMNS.values() if column.key not in DEFAULT_COLUMNS)),
)
