"""Incidents, the states they went through, and the jobs they requeued."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Row, Text, cast, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from headway.domain.incident import OUT_BEFORE, FaultAction, Incident, IncidentState, IncidentStep, RequeuedJob
from headway.errors import NotFound
from headway.store.db import cluster_schema as t
from headway.store.db.transactions import StorePart

_CLOSED = [state.value for state in IncidentState if state.closed]


class IncidentStore(StorePart):
    """Stores incidents, their steps and their requeued jobs."""

    async def open(
        self,
        cluster: str,
        node: str,
        what: str,
        action: FaultAction,
        at: float,
        evidence: Mapping[str, object],
        *,
        score: int = 0,
    ) -> Incident:
        """Creates an incident in state `seen`. `at`: when the fault happened, unix seconds."""
        fields: dict[str, Any] = {
            "cluster": cluster,
            "node": node,
            "what": what,
            "action": action.value,
            "state": IncidentState.SEEN.value,
            "opened_at": self._database.now(),
            "last_signal_at": at,
            "drained": False,
            "fault_at": at,
            "score": score,
        }
        async with self._database.write() as db:
            added = await db.execute(insert(t.incidents).values(**fields))
            number = int((added.inserted_primary_key or (0,))[0])
            await self._insert_step(db, number, IncidentState.SEEN, "headway", what, evidence)
        return await self.get(number)

    async def add_step(
        self,
        incident: Incident,
        state: IncidentState,
        text: str,
        *,
        actor: str = "headway",
        evidence: Mapping[str, object] | None = None,
        drained: bool | None = None,
        action: FaultAction | None = None,
        last_symptom_at: float | None = None,
        score: int | None = None,
    ) -> Incident:
        """Adds a step, which may have the same state as the incident already has. Raises ValueError if the step
        returns a drained node to service and the evidence does not say that its tests passed."""
        returns = state is IncidentState.RETURNED and incident.state is not state and incident.drained
        if returns and not (evidence or {}).get("passed"):
            raise ValueError(f"incident {incident.number}: {incident.node} would be returned untested")
        given = {
            "drained": drained, "action": action and action.value, "last_signal_at": last_symptom_at, "score": score,
        }  # fmt: skip
        values: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        async with self._database.write() as db:
            i = t.incidents
            await db.execute(update(i).where(i.c.number == incident.number).values(state=state.value, **values))
            await self._insert_step(db, incident.number, state, actor, text, evidence or {})
        return await self.get(incident.number)

    async def _insert_step(
        self,
        db: AsyncConnection,
        number: int,
        state: IncidentState,
        actor: str,
        text: str,
        evidence: Mapping[str, object],
    ) -> None:
        s = t.incident_steps
        last = (await db.execute(select(func.max(s.c.seq)).where(s.c.incident == number))).scalar() or 0
        await db.execute(
            insert(s).values(
                incident=number,
                seq=last + 1,
                at=self._database.now(),
                state=state.value,
                actor=actor,
                text=text,
                evidence=dict(evidence),
            )
        )

    async def close_all(self, cluster: str) -> None:
        """Closes all open incidents of a cluster that was taken down, since its machines no longer exist."""
        for incident in await self.search(cluster, unfinished=True, limit=10_000):
            gone = replace(incident, drained=False)  # the node no longer exists, so it cannot be returned untested
            await self.add_step(gone, IncidentState.RETURNED, "the cluster was taken down")

    async def reset_score(self, cluster: str, node: str) -> None:
        """Resets the score of the node's incidents: an administrator vouched for the node, or the slot has another
        machine."""
        i = t.incidents
        async with self._database.write() as db:
            await db.execute(update(i).where(i.c.cluster == cluster, i.c.node == node).values(score=0))

    async def record_requeued_jobs(self, incident: int, jobs: Iterable[int], at: float) -> None:
        """Records jobs that were requeued. Jobs that are already recorded do not change."""
        m = t.incident_jobs
        async with self._database.write() as db:
            known = {row.job for row in await db.execute(select(m.c.job).where(m.c.incident == incident))}
            for job in sorted(set(jobs) - known):
                await db.execute(insert(m).values(incident=incident, job=job, requeued_at=at))

    async def record_job_recovery(
        self, moved: RequeuedJob, *, running_at: float | None = None, step_at: float | None = None
    ) -> None:
        """Records when a requeued job was running again, and when it reported a step again."""
        m = t.incident_jobs
        given = {"running_at": running_at, "step_at": step_at}
        values = {key: value for key, value in given.items() if value is not None}
        async with self._database.write() as db:
            await db.execute(update(m).where(m.c.incident == moved.incident, m.c.job == moved.job).values(**values))

    async def jobs_recovering(self, cluster: str, since: float) -> tuple[RequeuedJob, ...]:
        """Returns jobs that were requeued since then and have not reported a step yet."""
        i, m = t.incidents, t.incident_jobs
        query = (
            select(m)
            .join(i, i.c.number == m.c.incident)
            .where(i.c.cluster == cluster, m.c.requeued_at >= since, m.c.step_at.is_(None))
        )
        async with self._database.read() as db:
            return tuple(_moved_of(row) for row in await db.execute(query))

    async def get(self, number: int) -> Incident:
        """Returns an incident with its steps and jobs. Raises NotFound if it does not exist."""
        i, s = t.incidents, t.incident_steps
        async with self._database.read() as db:
            row = (await db.execute(select(i).where(i.c.number == number))).first()
            rows = (await db.execute(select(s).where(s.c.incident == number).order_by(s.c.seq))).all()
            m = t.incident_jobs
            moved = (await db.execute(select(m).where(m.c.incident == number).order_by(m.c.job))).all()
        if row is None:
            raise NotFound(f"incident {number} does not exist", hint="headway incidents lists them")
        return _incident(row, tuple(_step_of(step) for step in rows), tuple(_moved_of(job) for job in moved))

    async def with_steps(self, incidents: Iterable[Incident]) -> tuple[Incident, ...]:
        """Returns the same incidents with their steps and the jobs they requeued."""
        found = tuple(incidents)
        s, m, numbers = t.incident_steps, t.incident_jobs, [incident.number for incident in found]
        steps: dict[int, list[IncidentStep]] = defaultdict(list)
        moved: dict[int, list[RequeuedJob]] = defaultdict(list)
        async with self._database.read() as db:
            for row in await db.execute(
                select(s).where(self._database.is_one_of(s.c.incident, numbers)).order_by(s.c.seq)
            ):
                steps[row.incident].append(_step_of(row))
            for row in await db.execute(
                select(m).where(self._database.is_one_of(m.c.incident, numbers)).order_by(m.c.job)
            ):
                moved[row.incident].append(_moved_of(row))
        return tuple(
            replace(incident, steps=tuple(steps[incident.number]), jobs=tuple(moved[incident.number]))
            for incident in found
        )

    async def search(
        self,
        cluster: str,
        *,
        node: str = "",
        unfinished: bool = False,
        since: float = 0.0,
        until: float = 0.0,
        limit: int = 100,
    ) -> tuple[Incident, ...]:
        """Returns incidents, the latest first, without their steps. `since`: only those opened at or after this time;
        `until`: only those whose fault happened at or before this time. In unix seconds; 0: no limit."""
        i = t.incidents
        query = select(i).where(i.c.cluster == cluster).order_by(i.c.number.desc()).limit(limit)
        if node:
            query = query.where(i.c.node == node)
        if since:
            query = query.where(i.c.opened_at >= since)
        if until:
            query = query.where(func.coalesce(i.c.fault_at, i.c.opened_at) <= until)
        if unfinished:
            query = query.where(i.c.state.not_in(_CLOSED))
        async with self._database.read() as db:
            return tuple(_incident(row) for row in await db.execute(query))

    async def open_and_recent(self, cluster: str, latest: int = 100, also: Iterable[int] = ()) -> tuple[Incident, ...]:
        """Returns all open incidents, the `latest` newest ones, and those with the numbers in `also`; the latest
        first, without their steps."""
        i = t.incidents
        last = select(i.c.number).where(i.c.cluster == cluster).order_by(i.c.number.desc()).limit(latest)
        these = self._database.is_one_of(i.c.number, tuple(also))
        condition = or_(i.c.state.not_in(_CLOSED), i.c.number.in_(last), these)
        query = select(i).where(i.c.cluster == cluster, condition).order_by(i.c.number.desc())
        async with self._database.read() as db:
            return tuple(_incident(row) for row in await db.execute(query))

    async def counts(self, cluster: str) -> tuple[int, int]:
        """Returns (number of incidents, number of open incidents)."""
        i = t.incidents
        query = select(func.count(), func.count().filter(i.c.state.not_in(_CLOSED))).where(i.c.cluster == cluster)
        async with self._database.read() as db:
            every, still = (await db.execute(query)).one()
        return int(every), int(still)

    async def count_failures(self, cluster: str, start: float, end: float) -> int:
        """Counts the incidents opened from `start` until `end` that drained a node, whatever happened to its machine
        later. Nodes that were already out of service for another reason do not count."""
        i, s = t.incidents, t.incident_steps
        out = select(s.c.seq).where(s.c.incident == i.c.number, s.c.state == IncidentState.DRAINING.value).exists()
        before = (
            select(s.c.seq)
            .where(s.c.incident == i.c.number, cast(s.c.evidence, Text).contains(f'"{OUT_BEFORE}"'))
            .exists()
        )
        mine = (i.c.cluster == cluster, out, ~before, i.c.opened_at >= start, i.c.opened_at < end)
        async with self._database.read() as db:
            return int((await db.execute(select(func.count()).select_from(i).where(*mine))).scalar() or 0)

    async def that_requeued(self, cluster: str, job: int) -> tuple[int, ...]:
        """Returns the numbers of the incidents that requeued a job, in ascending order."""
        i, j = t.incidents, t.incident_jobs
        query = select(i.c.number).join(j, j.c.incident == i.c.number).where(i.c.cluster == cluster, j.c.job == job)
        async with self._database.read() as db:
            return tuple(row.number for row in await db.execute(query.order_by(i.c.number)))

    async def requeue_counts(self, cluster: str, jobs: Collection[int]) -> dict[int, int]:
        """Returns how many incidents requeued each of these jobs; without jobs that none requeued."""
        i, j = t.incidents, t.incident_jobs
        count = func.count(func.distinct(j.c.incident))
        query = select(j.c.job, count).join(i, j.c.incident == i.c.number).group_by(j.c.job)
        async with self._database.read() as db:
            found = await db.execute(query.where(i.c.cluster == cluster, self._database.is_one_of(j.c.job, jobs)))
            return {int(job): int(number) for job, number in found}


def _incident(row: Row[Any], steps: tuple[IncidentStep, ...] = (), jobs: tuple[RequeuedJob, ...] = ()) -> Incident:
    return Incident(
        row.number,
        row.cluster,
        row.node,
        row.what,
        FaultAction(row.action),
        IncidentState(row.state),
        row.opened_at,
        row.last_signal_at,
        row.drained,
        row.fault_at,
        row.score,
        steps,
        jobs,
    )


def _step_of(row: Row[Any]) -> IncidentStep:
    return IncidentStep(row.at, IncidentState(row.state), row.actor, row.text, row.evidence)


def _moved_of(row: Row[Any]) -> RequeuedJob:
    return RequeuedJob(row.incident, row.job, row.requeued_at, row.running_at, row.step_at)
