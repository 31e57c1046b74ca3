"""Pipelines that start by themselves."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import ColumnElement, delete, select, update

from headway.errors import Conflict, NotFound
from headway.store.db import model_schema as t
from headway.store.db.transactions import StorePart, insert_into


@dataclass(frozen=True, slots=True)
class PipelineScheduleRow:
    """A scheduled pipeline. `document`: as of a pipeline. `next_at`: when it starts, None without times. `dataset`: the one whose
    new versions start it, "" for none; `seen`: number of the version that it has started for."""

    id: str
    cluster: str
    name: str
    person: str
    user: str
    at: float
    document: Mapping[str, Any]
    next_at: float | None = None
    dataset: str = ""
    seen: int = 0
    last: str = ""  # id of the pipeline that it has started last
    why: str = ""


def schedule_id(cluster: str, user: str, name: str) -> str:
    """Returns the id of the schedule of a user's pipeline with this name: there is one."""
    return f"c-{hashlib.sha256(f'{cluster}/{user}/{name}'.encode()).hexdigest()[:8]}"


class PipelineScheduleStore(StorePart):
    """Stores scheduled pipelines."""

    async def put(self, row: PipelineScheduleRow) -> None:
        """Stores a schedule, in place of an earlier one of the same id. The last pipeline stays."""
        s, values = t.pipeline_schedules, asdict(row)
        async with self._database.write() as db:
            one = insert_into(db, s).values(**values)
            change = {name: one.excluded[name] for name in values if name not in ("id", "last")}
            await db.execute(one.on_conflict_do_update(index_elements=["id"], set_=change))

    async def get(self, cluster: str, schedule: str, *, user: str = "") -> PipelineScheduleRow:
        """Returns a schedule by its id, or by its name: that of `user`, else the only one. Raises NotFound, and Conflict if
        several other users have one of this name."""
        s = t.pipeline_schedules.c
        found = await self._rows(s.cluster == cluster, (s.id == schedule) | (s.name == schedule))
        if not found:
            raise NotFound(f"{cluster} has no scheduled pipeline {schedule!r}", hint="headway pipeline schedules")
        own = [row for row in found if row.id == schedule] or [row for row in found if row.user == user] or found
        if len(own) > 1:
            ids = ", ".join(f"{row.id} (of {row.user})" for row in own)
            raise Conflict(f"several users have scheduled a pipeline {schedule}", hint=f"give one of {ids}")
        return own[0]

    async def of_cluster(self, cluster: str) -> tuple[PipelineScheduleRow, ...]:
        """Returns the schedules of a cluster, the oldest first."""
        return await self._rows(t.pipeline_schedules.c.cluster == cluster)

    async def all(self) -> tuple[PipelineScheduleRow, ...]:
        """Returns the schedules of all clusters, the oldest first."""
        return await self._rows()

    async def change(self, row: PipelineScheduleRow, **values: Any) -> bool:
        """Changes fields of a schedule. Returns False if it was deleted or replaced since the row was read."""
        s = t.pipeline_schedules
        async with self._database.write() as db:
            same = update(s).where(s.c.id == row.id, s.c.at == row.at)
            return (await db.execute(same.values(**values))).rowcount > 0

    async def set_last(self, schedule: str, pipeline: str) -> None:
        """Stores the id of the pipeline that was started last."""
        s = t.pipeline_schedules
        async with self._database.write() as db:
            await db.execute(update(s).where(s.c.id == schedule).values(last=pipeline))

    async def delete(self, schedule: str) -> None:
        """Deletes a schedule."""
        s = t.pipeline_schedules
        async with self._database.write() as db:
            await db.execute(delete(s).where(s.c.id == schedule))

    async def _rows(self, *conditions: ColumnElement[bool]) -> tuple[PipelineScheduleRow, ...]:
        s = t.pipeline_schedules
        async with self._database.read() as db:
            rows = await db.execute(select(s).where(*conditions).order_by(s.c.at, s.c.id))
            return tuple(PipelineScheduleRow(**row._mapping) for row in rows)
