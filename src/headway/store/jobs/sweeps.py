"""Sweeps and their trials."""

from __future__ import annotations

import hashlib
import json
import secrets as random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import case, func, insert, select, update

from headway.errors import Conflict, NotFound
from headway.store.db import cluster_schema as t
from headway.store.db.rows import SweepRow, TrialRow
from headway.store.db.transactions import StorePart, insert_into

SWEEP_ID = "s-"  # begins the ids of sweeps; those of pipelines begin with p-


@dataclass(frozen=True, slots=True)
class TrialSummary:
    """All trials of a sweep together. `run_s`: seconds of all their runs."""

    ended: int = 0
    run_s: float = 0.0
    first: TrialRow | None = None
    best: TrialRow | None = None


class SweepStore(StorePart):
    """Stores sweeps."""

    async def save(
        self, cluster: str, name: str, *, person: str, user: str, document: Mapping[str, Any], key: str = ""
    ) -> SweepRow:
        """Stores a new sweep. The same sweep with the same idempotency `key` is stored once."""
        content = json.dumps([key, cluster, user, dict(document)], sort_keys=True)
        number = hashlib.sha256(content.encode()).hexdigest()[:24] if key else random.token_hex(4)
        s = t.sweeps
        row = SweepRow(
            f"{SWEEP_ID}{number}",
            cluster,
            name,
            person,
            user,
            self._database.now(),
            dict(document),
            "running",
            "",
            None,
        )
        async with self._database.write() as db:
            await db.execute(insert_into(db, s).values(**asdict(row)).on_conflict_do_nothing())
            stored = (await db.execute(select(s).where(s.c.id == row.id))).one()
        return SweepRow(**stored._mapping)

    async def get(self, cluster: str, sweep: str) -> SweepRow:
        """Returns the sweep with this id; if there is none, the latest one of this name. Raises NotFound."""
        s = t.sweeps
        mine = select(s).where(s.c.cluster == cluster, (s.c.id == sweep) | (s.c.name == sweep))
        is_id = case((s.c.id == sweep, 0), else_=1)  # people choose names, so a name never hides an id
        async with self._database.read() as db:
            row = (await db.execute(mine.order_by(is_id, s.c.at.desc()).limit(1))).first()
        if row is None:
            raise NotFound(f"{cluster} has no sweep {sweep!r}", hint="headway sweep ls")
        return SweepRow(**row._mapping)

    async def recent(self, cluster: str, *, limit: int = 50) -> tuple[SweepRow, ...]:
        """Returns the sweeps of a cluster, the latest first."""
        s = t.sweeps
        query = select(s).where(s.c.cluster == cluster).order_by(s.c.at.desc()).limit(limit)
        async with self._database.read() as db:
            return tuple(SweepRow(**row._mapping) for row in await db.execute(query))

    async def unfinished(self) -> tuple[SweepRow, ...]:
        """Returns the sweeps of all clusters whose trials have not all ended, the oldest first."""
        s = t.sweeps
        async with self._database.read() as db:
            rows = await db.execute(select(s).where(s.c.ended_at.is_(None)).order_by(s.c.at))
            return tuple(SweepRow(**row._mapping) for row in rows)

    async def conclude(self, sweep: str, state: str, why: str) -> bool:
        """Stores how a running sweep ends. Returns False if that was stored before. Its trials may run on until they are
        cancelled (`close`)."""
        s = t.sweeps
        change = update(s).where(s.c.id == sweep, s.c.state == "running").values(state=state, why=why)
        async with self._database.write() as db:
            return (await db.execute(change)).rowcount > 0

    async def close(self, sweep: str) -> None:
        """Stores that all trials of a sweep have ended, if they have."""
        s, r = t.sweeps, t.trials
        left = select(r.c.number).where(r.c.sweep == sweep, r.c.ended_at.is_(None)).exists()
        async with self._database.write() as db:
            await db.execute(
                update(s).where(s.c.id == sweep, s.c.ended_at.is_(None), ~left).values(ended_at=self._database.now())
            )

    async def trials(self, *sweeps: str) -> tuple[TrialRow, ...]:
        """Returns the trials of these sweeps, in order."""
        r = t.trials
        query = select(r).where(r.c.sweep.in_(sweeps)).order_by(r.c.sweep, r.c.number)
        async with self._database.read() as db:
            return tuple(TrialRow(**row._mapping) for row in await db.execute(query))

    async def summaries(self, maximized: Collection[str], minimized: Collection[str]) -> dict[str, TrialSummary]:
        """Returns what is known of all trials of these sweeps, by sweep; counted by the database. The metric of `maximized` is
        better if it is more. Sweeps without trials are left out."""
        r, ids = t.trials, [*maximized, *minimized]
        counts = select(
            r.c.sweep, func.count(r.c.ended_at).label("ended"), func.sum(r.c.run_s).label("run_s")
        ).where(r.c.sweep.in_(ids)).group_by(r.c.sweep)  # fmt: skip
        first = select(r).where(r.c.sweep.in_(ids), r.c.number == 1)
        # As in jobs.sweeps.trial_decisions.best_trial: those that ended well before others
        order = case((r.c.state == "done", 0), (r.c.state.in_(("running", "pending")), 1), (r.c.state == "stopped", 2))
        goodness = case((r.c.sweep.in_(maximized), -r.c.value), else_=r.c.value)
        place = func.row_number().over(partition_by=r.c.sweep, order_by=(order, goodness, r.c.number)).label("place")
        valued = select(r, place).where(r.c.sweep.in_(ids), r.c.value.is_not(None), order.is_not(None)).subquery()
        async with self._database.read() as db:
            found = {row.sweep: TrialSummary(row.ended, row.run_s) for row in await db.execute(counts)}
            for row in await db.execute(first):
                found[row.sweep] = replace(found[row.sweep], first=TrialRow(**row._mapping))
            for row in await db.execute(select(valued).where(valued.c.place == 1)):
                fields = {name: value for name, value in row._mapping.items() if name != "place"}
                found[row.sweep] = replace(found[row.sweep], best=TrialRow(**fields))
        return found

    async def stopped_trials(self, cluster: str, jobs: Collection[int]) -> dict[int, TrialRow]:
        """Returns the trials of these jobs that their sweep stopped early, by job."""
        r = t.trials
        mine = (r.c.cluster == cluster, self._database.is_one_of(r.c.job_id, jobs), r.c.state == "stopped")
        query = select(r).where(*mine).order_by(r.c.at)
        async with self._database.read() as db:
            return {row.job_id: TrialRow(**row._mapping) for row in await db.execute(query)}

    async def add_given_trials(
        self, row: SweepRow, parameters: Sequence[Mapping[str, Any]], most: int
    ) -> tuple[TrialRow, ...]:
        """Stores trials whose parameters a program has chosen, as waiting. Raises Conflict if the sweep has ended, or would have
        more than `most` trials."""
        s, r, now = t.sweeps, t.trials, self._database.now()
        async with self._database.write() as db:
            state = (await db.execute(select(s.c.state).where(s.c.id == row.id).with_for_update())).scalar()
            last = (await db.execute(select(func.max(r.c.number)).where(r.c.sweep == row.id))).scalar() or 0
            if state != "running":
                raise Conflict(f"sweep {row.name} has ended already: {state}", hint=f"headway sweep show {row.id}")
            if last + len(parameters) > most:
                raise Conflict(
                    f"sweep {row.name} may have {most:,} trials and has {last:,}", hint="raise trials: in its file"
                )
            new = tuple(
                TrialRow(row.id, row.cluster, last + number, dict(one), now, "waiting")
                for number, one in enumerate(parameters, 1)
            )
            await db.execute(insert(r), [asdict(trial) for trial in new])
        return new

    async def add_trials(self, trials: Sequence[TrialRow]) -> None:
        """Stores new trials."""
        if trials:
            async with self._database.write() as db:
                await db.execute(insert(t.trials), [asdict(trial) for trial in trials])

    async def update_trials(self, trials: Iterable[TrialRow]) -> None:
        """Stores what has changed of trials, all in one transaction."""
        r = t.trials
        async with self._database.write() as db:
            for trial in trials:
                fields = asdict(trial)
                mine = (r.c.sweep == fields.pop("sweep"), r.c.number == fields.pop("number"))
                await db.execute(update(r).where(*mine).values(**fields))
