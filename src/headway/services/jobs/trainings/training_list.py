"""The table of trainings: a page of it, groups, and the whole as CSV."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from headway.domain.cluster import Cluster
from headway.errors import NotFound, Refused
from headway.schemas.billing.usage import RunLine
from headway.schemas.csv_cells import csv_line, safe_cell
from headway.schemas.trainings import (
    TrainingCostOut,
    TrainingGroupOut,
    TrainingGroupsOut,
    TrainingNoteIn,
    TrainingOriginOut,
    TrainingOut,
    TrainingsOut,
    TrainingValuesOut,
)
from headway.services.access.audit import write_audit_line
from headway.services.access.ownership_rights import authorize_action, cluster_to_work_on, may_act_on
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.billing.reports.report_scope import load_billed_cluster, visible_teams
from headway.services.billing.reports.runs import whole_run_lines
from headway.services.cursors import decode_cursor, encode_cursor
from headway.store import JobRecord, TrialRow
from headway.store.jobs.trainings import MetricKey, TrainingQuery, TrainingRow

GROUPS = ("user", "team", "name", "state", "tag", "commit")
MAX_GROUPED = 10_000  # trainings of one answer in groups
_PAGE = 200  # rows of one piece of CSV
_MAX_TAGS = 100  # of a training
_MAX_NAMES = 200  # metrics that a page names


@dataclass(frozen=True)
class _Owned:
    user: str
    account: str


async def list_trainings(
    state: AppState, who: Principal, name: str, query: TrainingQuery, *, cursor: str = "", limit: int = 100
) -> TrainingsOut:
    """Returns a page of the table. Raises Refused for a cursor that does not exist."""
    _, cluster = await state.clusters.get(name)
    (offset,) = decode_cursor(cursor, int) if cursor else (0,)
    rows = await state.store.trainings.search(name, query, offset=max(0, offset), limit=limit)
    total = await state.store.trainings.count(name, query)
    names = dict.fromkeys(metric for row in rows for metric in row.metrics)
    return TrainingsOut(
        cluster=name,
        total=total,
        trainings=await _describe(state, who, cluster, rows),
        names=list(names)[:_MAX_NAMES],
        next=encode_cursor((offset + len(rows),)) if offset + len(rows) < total and rows else "",
    )


async def group_trainings(
    state: AppState, who: Principal, name: str, query: TrainingQuery, by: str, key: str
) -> TrainingGroupsOut:
    """Returns the trainings that match in groups with the same value of `by` (GROUPS), with the range of the metric `key`. Raises
    Refused."""
    if by not in GROUPS:
        raise Refused(f"trainings can't be grouped by {by[:40]!r}", hint=f"use {', '.join(GROUPS)}")
    _, cluster = await state.clusters.get(name)
    rows = await state.store.trainings.search(name, query, limit=MAX_GROUPED)
    groups: dict[str, list[tuple[TrainingRow, TrainingOut]]] = {}
    for begin in range(0, len(rows), _PAGE):
        some = rows[begin : begin + _PAGE]
        for row, out in zip(some, await _describe(state, who, cluster, some), strict=True):
            for value in _group_values(out, by):
                groups.setdefault(value, []).append((row, out))
    found = [_group(value, members, key) for value, members in groups.items()]
    return TrainingGroupsOut(
        cluster=name, by=by, metric=key, groups=sorted(found, key=lambda group: (-group.trainings, group.value))
    )


def _group_values(training: TrainingOut, by: str) -> Sequence[str]:
    if by == "tag":
        return training.tags or [""]
    if by == "commit":
        return [training.origin.commit if training.origin else ""]
    return [str(getattr(training, by))]


def _group(value: str, members: Sequence[tuple[TrainingRow, TrainingOut]], metric: str) -> TrainingGroupOut:
    costs = [out.cost for _, out in members if out.cost]
    found = TrainingGroupOut(value=value, trainings=len(members))
    if costs:
        found.gpu_hours = round(sum(cost.gpu_hours for cost in costs), 4)
        found.usd = sum((cost.usd for cost in costs), Decimal(0))
    newest, lows, highs = (
        [(number, row.job_id) for row, _ in members if (number := MetricKey(metric, kind).of(row)) is not None]
        for kind in ("last", "lowest", "highest")
    )
    if newest:
        found.mean = sum(number for number, _ in newest) / len(newest)
    if lows and highs:
        (found.lowest, found.lowest_job), (found.highest, found.highest_job) = min(lows), max(highs)
    return found


async def open_trainings_csv(
    state: AppState, who: Principal, name: str, query: TrainingQuery, keys: Sequence[MetricKey]
) -> AsyncIterator[str]:
    """Returns the matching trainings as CSV, with a column for each of these values of metrics."""
    _, cluster = await state.clusters.get(name)
    head = (
        "job", "name", "user", "team", "state", "submitted_at", "reported_at", "restarts", "incidents", "runs", "gpu_hours",
        "usd", "energy_kwh", "commit", "container", "environments", "datasets", "tags", "note",
        *(f"{key.metric}:{key.value}" for key in keys),
    )  # fmt: skip

    async def pieces() -> AsyncIterator[str]:
        yield csv_line(head)
        offset = 0
        while rows := await state.store.trainings.search(name, query, offset=offset, limit=_PAGE):
            outs = await _describe(state, who, cluster, rows)
            yield "".join(_csv_row(row, out, keys) for row, out in zip(rows, outs, strict=True))
            offset += len(rows)

    return pieces()


def _csv_row(row: TrainingRow, out: TrainingOut, keys: Iterable[MetricKey]) -> str:
    cost, origin = out.cost, out.origin or TrainingOriginOut()
    used = (cost.runs, cost.gpu_hours, cost.usd, cost.energy_kwh) if cost else ("",) * 4
    commit = f"{origin.commit}{'+' if origin.dirty else ''}"
    cells = (
        out.label, out.name, out.user, out.team, out.state, f"{out.submitted_at:.0f}", f"{out.reported_at:.0f}", out.restarts,
        out.incidents, *used, commit, origin.container, " ".join(origin.environments), " ".join(origin.datasets),
        " ".join(out.tags), out.note, *("" if (value := key.of(row)) is None else value for key in keys),
    )  # fmt: skip
    return csv_line(map(safe_cell, cells))


async def annotate_training(
    state: AppState, who: Principal, name: str, job_id: int, request: TrainingNoteIn
) -> TrainingOut:
    """Changes the note and the tags of a training: its owner, a lead of its team and an admin may. Raises NotFound, Refused."""
    cluster = await cluster_to_work_on(state, name, who)
    row = await state.store.trainings.get(name, job_id)
    if row is None:
        raise NotFound(
            f"job {job_id} on {name} has reported no metrics yet",
            hint="a training reports them with headway_train.report",
        )
    await authorize_action(state, cluster, who, _Owned(row.user, row.team), f"change the note of job {job_id}")
    tags = {*row.tags, *request.add_tags} - set(request.remove_tags)
    if len(tags) > _MAX_TAGS:
        raise Refused(f"job {job_id} would have {len(tags)} tags", hint=f"a training has at most {_MAX_TAGS}")
    added = [tag for tag in request.add_tags if tag in tags]
    await state.store.trainings.annotate(name, job_id, request.note, added, request.remove_tags)
    detail = {"job": job_id, "note": request.note, "add_tags": added, "remove_tags": request.remove_tags}
    await write_audit_line(
        state, who, "note", name, **{key: value for key, value in detail.items() if value not in (None, [])}
    )
    changed = await state.store.trainings.get(name, job_id)
    return (await _describe(state, who, cluster, [changed or row]))[0]


async def _describe(
    state: AppState, who: Principal, cluster: Cluster, rows: Sequence[TrainingRow]
) -> list[TrainingOut]:
    """Returns the trainings with what accounting, incidents and records know of them, as far as the person may see it."""
    numbers = [row.job_id for row in rows]
    lines = await _runs(state, who, cluster.name, numbers)
    incidents = await state.store.incidents.requeue_counts(cluster.name, numbers)
    records = await state.store.jobs.latest(cluster.name, numbers)
    stopped = await state.store.sweeps.stopped_trials(cluster.name, numbers)
    live = state.live.snapshot(cluster.name).by_id
    found = []
    for row in rows:
        job, record = live.get(row.job_id), records.get((row.job_id, row.user))
        visible = record is not None and may_act_on(cluster, who, _Owned(row.user, row.team))
        runs = lines.get(row.job_id, [])
        found.append(
            TrainingOut(
                job=row.job_id,
                label=row.label,
                name=row.name,
                user=row.user,
                team=row.team,
                state=job.state if job else row.state,
                stopped_by=_stopped_by(record, stopped.get(row.job_id)),
                submitted_at=row.submitted_at,
                reported_at=row.reported_at,
                restarts=max(job.restarts if job else 0, len({line.start for line in runs}) - 1),
                incidents=incidents.get(row.job_id, 0),
                note=row.note,
                tags=list(row.tags),
                metrics=values_out(row.metrics),
                cost=_cost(runs) if runs else None,
                origin=_origin(record) if record is not None and visible else None,
            )
        )
    return found


def _stopped_by(record: JobRecord | None, trial: TrialRow | None) -> str:
    """Returns why the job's sweep stopped it early; "" if it did not. Another job may have had the trial's number."""
    if record is None or trial is None or (record.pipeline, record.step) != (trial.sweep, str(trial.number)):
        return ""
    return f"sweep {trial.sweep}, trial {trial.number}: {trial.why}"


def values_out(
    metrics: Mapping[str, tuple[int, float | None, float | None, float | None]],
) -> dict[str, TrainingValuesOut]:
    """Returns stored values of metrics as the API shows them."""
    return {
        name: TrainingValuesOut(step=step, last=last, lowest=lowest, highest=highest)
        for name, (step, last, lowest, highest) in metrics.items()
    }


async def _runs(state: AppState, who: Principal, name: str, numbers: Sequence[int]) -> dict[int, list[RunLine]]:
    """Returns the runs of these jobs whose team's usage the person may see. Jobs of a former cluster of this name had the same
    numbers; they ended before its data was deleted."""
    billed = await load_billed_cluster(state, name)
    teams, since = visible_teams(billed, who), max(await state.store.operations.data_deletion_times(name), default=0)
    rows = [
        run
        for run in await state.store.usage.runs_of_jobs(name, numbers)
        if run.start >= since and (teams is None or run.team in teams)
    ]
    found: dict[int, list[RunLine]] = {}
    for line in await whole_run_lines(state, billed, rows):
        found.setdefault(line.job, []).append(line)
    return found


def _cost(runs: Sequence[RunLine]) -> TrainingCostOut:
    return TrainingCostOut(
        runs=len({run.start for run in runs}),
        gpu_hours=round(sum(run.gpus * run.elapsed_s for run in runs) / 3600, 4),
        usd=sum((run.usd_whole or Decimal(0) for run in runs), Decimal(0)),
        energy_kwh=round(sum(run.energy_kwh for run in runs), 4),
        energy_estimated=any(run.energy_estimated for run in runs),
    )


def _origin(record: JobRecord) -> TrainingOriginOut:
    git = record.request.get("git") or {}
    versions = {
        kind: [f"{one['name']}@{one['version']}" for one in record.facts.get(kind, [])]
        for kind in ("datasets", "environments")
    }
    return TrainingOriginOut(
        commit=str(git.get("commit") or ""),
        dirty=bool(git.get("dirty")),
        container=str(record.facts.get("container_image") or ""),
        **versions,
    )
