"""Jobs that reported metrics, with the newest and extreme values of each metric, notes and tags."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, delete, func, insert, or_, select, update

from headway.domain.slurm.job_states import ENDED
from headway.store.db import cluster_schema as t
from headway.store.db.transactions import StorePart, insert_into

VALUES = ("last", "lowest", "highest")  # of a metric; positions 1 to 3 of a stored metric
FORGOTTEN = "UNKNOWN"  # state of a job that Slurm does not know any more
OPERATORS = ("<=", ">=", "<", ">", "=")
_REPORTED = ("label", "name", "user", "team", "state", "submitted_at", "reported_at", "metrics")
_BATCH = 500


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """A job that reported metrics. `metrics`: name -> (step, newest, lowest, highest); None where a value is not finite."""

    cluster: str
    job_id: int
    label: str
    name: str
    user: str
    team: str
    state: str
    submitted_at: float
    reported_at: float
    metrics: Mapping[str, tuple[int, float | None, float | None, float | None]]
    note: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricKey:
    """A value of a metric: the newest, lowest or highest one (VALUES)."""

    metric: str
    value: str = "last"

    def of(self, row: TrainingRow) -> float | None:
        """Returns the value for a training; None if it did not report it, or it is not finite."""
        kept = row.metrics.get(self.metric)
        return None if kept is None else kept[1 + VALUES.index(self.value)]

    def column(self) -> ColumnElement[float]:
        """Returns the value in SQL."""
        place = (self.metric, 1 + VALUES.index(self.value))
        found: ColumnElement[float] = t.trainings.c.metrics[place].as_float()
        return found


@dataclass(frozen=True, slots=True)
class MetricCondition:
    """A condition such as `loss < 2`. `operator` is one of OPERATORS."""

    key: MetricKey
    operator: str
    number: float


@dataclass(frozen=True, slots=True)
class TrainingQuery:
    """Filters and order of a list of trainings. An empty filter accepts everything. `sort`: None for the latest first."""

    users: frozenset[str] = frozenset()
    teams: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()  # a training must have all of them
    text: str = ""  # in the name, note or job number
    conditions: tuple[MetricCondition, ...] = ()
    sort: MetricKey | None = None
    descending: bool = False


class TrainingStore(StorePart):
    """Stores trainings."""

    async def save(self, rows: Iterable[TrainingRow]) -> None:
        """Stores what jobs have reported. Notes and tags stay."""
        values = [
            {name: getattr(row, name) for name in ("cluster", "job_id", *_REPORTED)} | {"metrics": dict(row.metrics)}
            for row in rows
        ]
        if not values:
            return
        async with self._database.write() as db:
            one = insert_into(db, t.trainings)
            change = {name: one.excluded[name] for name in _REPORTED}
            await db.execute(one.on_conflict_do_update(index_elements=["cluster", "job_id"], set_=change), values)

    async def forget(self, cluster: str, job_id: int) -> None:
        """Deletes a training with its note and tags: another job has its number now."""
        async with self._database.write() as db:
            for table in (t.trainings, t.training_tags):
                await db.execute(delete(table).where(table.c.cluster == cluster, table.c.job_id == job_id))

    async def annotate(
        self, cluster: str, job_id: int, note: str | None, tags: Collection[str] = (), removed: Collection[str] = ()
    ) -> None:
        """Replaces the note (None: keeps it), adds `tags` and removes `removed`."""
        w, g = t.trainings, t.training_tags
        async with self._database.write() as db:
            if note is not None:
                mine = (w.c.cluster == cluster, w.c.job_id == job_id)
                await db.execute(update(w).where(*mine).values(note=note))
            await db.execute(
                delete(g).where(g.c.cluster == cluster, g.c.job_id == job_id, g.c.tag.in_({*tags, *removed}))
            )
            if tags:
                rows = [{"cluster": cluster, "job_id": job_id, "tag": tag} for tag in sorted(set(tags))]
                await db.execute(insert(g), rows)

    async def get(self, cluster: str, job_id: int) -> TrainingRow | None:
        """Returns a training, or None if the job has reported no metrics."""
        found = await self._rows(cluster, select(t.trainings).where(t.trainings.c.job_id == job_id))
        return found[0] if found else None

    async def count(self, cluster: str, query: TrainingQuery) -> int:
        """Returns how many trainings match."""
        async with self._database.read() as db:
            number = select(func.count()).select_from(t.trainings).where(*_matching(cluster, query))
            return int((await db.execute(number)).scalar_one())

    async def search(
        self, cluster: str, query: TrainingQuery, *, offset: int = 0, limit: int = 100
    ) -> list[TrainingRow]:
        """Returns matching trainings in the order of the query; those without the sorted value come last."""
        w = t.trainings
        order: list[ColumnElement[Any]] = []
        if query.sort is not None:
            value = query.sort.column()
            order = [value.is_(None), value.desc() if query.descending else value]
        found = select(w).where(*_matching(cluster, query)).order_by(*order, w.c.job_id.desc())
        return await self._rows(cluster, found.offset(offset).limit(limit))

    async def unfinished(self, cluster: str, limit: int) -> dict[int, str]:
        """Returns the jobs that had not ended when they were last seen, with their states, the lowest number first."""
        w, over = t.trainings, (*sorted(ENDED), FORGOTTEN)
        query = select(w.c.job_id, w.c.state).where(w.c.cluster == cluster, w.c.state.not_in(over)).order_by(w.c.job_id)
        async with self._database.read() as db:
            return {int(number): str(state) for number, state in await db.execute(query.limit(limit))}

    async def tags(self, cluster: str) -> list[str]:
        """Returns all tags of a cluster, sorted."""
        g = t.training_tags
        async with self._database.read() as db:
            query = select(g.c.tag).distinct().where(g.c.cluster == cluster).order_by(g.c.tag)
            return [str(tag) for (tag,) in await db.execute(query.limit(1000))]

    async def _rows(self, cluster: str, query: Select[Any]) -> list[TrainingRow]:
        g = t.training_tags
        async with self._database.read() as db:
            rows = (await db.execute(query.where(t.trainings.c.cluster == cluster))).all()
            tags: dict[int, list[str]] = {}
            for begin in range(0, len(rows), _BATCH):
                numbers = [row.job_id for row in rows[begin : begin + _BATCH]]
                mine = select(g.c.job_id, g.c.tag).where(
                    g.c.cluster == cluster, self._database.is_one_of(g.c.job_id, numbers)
                )
                for number, tag in await db.execute(mine.order_by(g.c.tag)):
                    tags.setdefault(number, []).append(tag)
        return [_training(row, tags.get(row.job_id, ())) for row in rows]


def _training(row: Row[Any], tags: Iterable[str]) -> TrainingRow:
    fields = dict(row._mapping)
    metrics = {name: tuple(values) for name, values in fields.pop("metrics").items()}
    return TrainingRow(**fields, metrics=metrics, tags=tuple(tags))


def _matching(cluster: str, query: TrainingQuery) -> list[ColumnElement[bool]]:
    w, g = t.trainings, t.training_tags
    found: list[ColumnElement[bool]] = [w.c.cluster == cluster]
    for column, allowed in ((w.c.user, query.users), (w.c.team, query.teams), (w.c.state, query.states)):
        if allowed:
            found.append(column.in_(sorted(allowed)))
    for tag in sorted(query.tags):
        tagged = select(g.c.job_id).where(g.c.cluster == cluster, g.c.tag == tag)
        found.append(w.c.job_id.in_(tagged))
    if query.text:
        texts = (w.c.name, w.c.note, w.c.label)
        found.append(or_(*(column.icontains(query.text, autoescape=True) for column in texts)))
    for condition in query.conditions:
        value = condition.key.column()
        found.append(value.op(condition.operator)(condition.number))
    return found
