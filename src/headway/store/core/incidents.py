"""Signals, each once, and incidents with every state they went through."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Row, Text, cast, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from headway.domain.incident import OUT_BEFORE, Incident, IncidentState, IncidentStep, MovedJob, Signal, XidClass
from headway.errors import NotFound
from headway.store.db import schema as t
from headway.store.db.transactions import Base

_CLOSED = [state.value for state in IncidentState if state.closed]


class IncidentStore(Base):
    async def has_signal(self, cluster: str, signal: str) -> bool:
        """A line of a log is reported again after every restart of anything on its way."""
        s = t.signals
        async with self._read() as db:
            return (
                await db.execute(select(s.c.id).where(s.c.cluster == cluster, s.c.id == signal))
            ).first() is not None

    async def add_signal(self, cluster: str, signal: Signal) -> None:
        values = {name: getattr(signal, name) for name in ("id", "at", "node", "code", "gpu", "text", "job", "kind")}
        values["action"] = signal.action.value if signal.action else ""
        async with self._write() as db:
            s = t.signals
            await db.execute(delete(s).where(s.c.cluster == cluster, s.c.id == signal.id))
            await db.execute(insert(s).values(cluster=cluster, **values))

    async def signals(self, cluster: str, node: str, since: float) -> tuple[Signal, ...]:
        """What this node has said since then, the oldest first."""
        s = t.signals
        query = select(s).where(s.c.cluster == cluster, s.c.node == node, s.c.at >= since).order_by(s.c.at)
        async with self._read() as db:
            return tuple(_signal_of(row) for row in await db.execute(query))

    async def open_incident(
        self,
        cluster: str,
        node: str,
        what: str,
        action: XidClass,
        at: float,
        evidence: Mapping[str, object],
        *,
        score: int = 0,
    ) -> Incident:
        """A new one, in state `seen`. `at`: when the fault happened."""
        fields: dict[str, Any] = {
            "cluster": cluster,
            "node": node,
            "what": what,
            "action": action.value,
            "state": IncidentState.SEEN.value,
            "opened_at": self._now(),
            "last_signal_at": at,
            "drained": False,
            "fault_at": at,
            "score": score,
        }
        async with self._write() as db:
            added = await db.execute(insert(t.incidents).values(**fields))
            number = int((added.inserted_primary_key or (0,))[0])
            await self._step(db, number, IncidentState.SEEN, "headway", what, evidence)
        return await self.incident(number)

    async def move_incident(
        self,
        incident: Incident,
        state: IncidentState,
        text: str,
        *,
        actor: str = "headway",
        evidence: Mapping[str, object] | None = None,
        drained: bool | None = None,
        action: XidClass | None = None,
        last_signal_at: float | None = None,
        score: int | None = None,
    ) -> Incident:
        """Notes a step, which may be in the state that the incident is in already. ValueError for a node that would be
        returned to service although nothing says that its tests passed."""
        returns = state is IncidentState.RETURNED and incident.state is not state and incident.drained
        if returns and not (evidence or {}).get("passed"):
            raise ValueError(f"incident {incident.number}: {incident.node} would be returned untested")
        given = {
            "drained": drained, "action": action and action.value, "last_signal_at": last_signal_at, "score": score,
        }  # fmt: skip
        values: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        async with self._write() as db:
            i = t.incidents
            await db.execute(update(i).where(i.c.number == incident.number).values(state=state.value, **values))
            await self._step(db, incident.number, state, actor, text, evidence or {})
        return await self.incident(incident.number)

    async def _step(
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
                at=self._now(),
                state=state.value,
                actor=actor,
                text=text,
                evidence=dict(evidence),
            )
        )

    async def end_incidents(self, cluster: str) -> None:
        """The cluster's machines are gone, and their faults with them."""
        for incident in await self.incidents(cluster, unfinished=True, limit=10_000):
            gone = replace(incident, drained=False)  # there is no node any more that could serve untested
            await self.move_incident(gone, IncidentState.RETURNED, "the cluster was taken down")

    async def forgive(self, cluster: str, node: str) -> None:
        """What the node's incidents said against it counts no more: a person vouches for it, or it is another machine."""
        i = t.incidents
        async with self._write() as db:
            await db.execute(update(i).where(i.c.cluster == cluster, i.c.node == node).values(score=0))

    # --- jobs that were moved

    async def note_moved(self, incident: int, jobs: Iterable[int], at: float) -> None:
        """Sent back to the queue; one that was noted before stays as it is."""
        m = t.incident_jobs
        async with self._write() as db:
            known = {row.job for row in await db.execute(select(m.c.job).where(m.c.incident == incident))}
            for job in sorted(set(jobs) - known):
                await db.execute(insert(m).values(incident=incident, job=job, requeued_at=at))

    async def note_recovered(
        self, moved: MovedJob, *, running_at: float | None = None, step_at: float | None = None
    ) -> None:
        m = t.incident_jobs
        given = {"running_at": running_at, "step_at": step_at}
        values = {key: value for key, value in given.items() if value is not None}
        async with self._write() as db:
            await db.execute(update(m).where(m.c.incident == moved.incident, m.c.job == moved.job).values(**values))

    async def recovering(self, cluster: str, since: float) -> tuple[MovedJob, ...]:
        """Jobs moved since then that have not reported a step again."""
        i, m = t.incidents, t.incident_jobs
        query = (
            select(m)
            .join(i, i.c.number == m.c.incident)
            .where(i.c.cluster == cluster, m.c.requeued_at >= since, m.c.step_at.is_(None))
        )
        async with self._read() as db:
            return tuple(_moved_of(row) for row in await db.execute(query))

    async def incident(self, number: int) -> Incident:
        """With its steps. NotFound when there is none."""
        i, s = t.incidents, t.incident_steps
        async with self._read() as db:
            row = (await db.execute(select(i).where(i.c.number == number))).first()
            rows = (await db.execute(select(s).where(s.c.incident == number).order_by(s.c.seq))).all()
            m = t.incident_jobs
            moved = (await db.execute(select(m).where(m.c.incident == number).order_by(m.c.job))).all()
        if row is None:
            raise NotFound(f"there is no incident {number}", hint="headway incidents lists them")
        return _incident(row, tuple(_step_of(one) for one in rows), tuple(_moved_of(one) for one in moved))

    async def with_steps(self, incidents: Iterable[Incident]) -> tuple[Incident, ...]:
        """The same with their steps, and with the jobs they moved."""
        found = tuple(incidents)
        s, m, numbers = t.incident_steps, t.incident_jobs, [one.number for one in found]
        steps: dict[int, list[IncidentStep]] = defaultdict(list)
        moved: dict[int, list[MovedJob]] = defaultdict(list)
        async with self._read() as db:
            for row in await db.execute(select(s).where(s.c.incident.in_(numbers)).order_by(s.c.seq)):
                steps[row.incident].append(_step_of(row))
            for row in await db.execute(select(m).where(m.c.incident.in_(numbers)).order_by(m.c.job)):
                moved[row.incident].append(_moved_of(row))
        return tuple(replace(one, steps=tuple(steps[one.number]), jobs=tuple(moved[one.number])) for one in found)

    async def incidents(
        self, cluster: str, *, node: str = "", unfinished: bool = False, since: float = 0.0, limit: int = 100
    ) -> tuple[Incident, ...]:
        """The latest first, without their steps. `since`: those opened from then on, in unix seconds."""
        i = t.incidents
        query = select(i).where(i.c.cluster == cluster).order_by(i.c.number.desc()).limit(limit)
        if node:
            query = query.where(i.c.node == node)
        if since:
            query = query.where(i.c.opened_at >= since)
        if unfinished:
            query = query.where(i.c.state.not_in(_CLOSED))
        async with self._read() as db:
            return tuple(_incident(row) for row in await db.execute(query))

    async def incidents_shown(self, cluster: str, latest: int = 100, also: Iterable[int] = ()) -> tuple[Incident, ...]:
        """All that are open, however old they are, the latest of the others, and those with the numbers `also`: the latest
        first, without their steps."""
        i = t.incidents
        last = select(i.c.number).where(i.c.cluster == cluster).order_by(i.c.number.desc()).limit(latest)
        wanted = or_(i.c.state.not_in(_CLOSED), i.c.number.in_(last), i.c.number.in_(tuple(also)))
        query = select(i).where(i.c.cluster == cluster, wanted).order_by(i.c.number.desc())
        async with self._read() as db:
            return tuple(_incident(row) for row in await db.execute(query))

    async def incident_counts(self, cluster: str) -> tuple[int, int]:
        """(all, those that are open)."""
        i = t.incidents
        query = select(func.count(), func.count().filter(i.c.state.not_in(_CLOSED))).where(i.c.cluster == cluster)
        async with self._read() as db:
            every, still = (await db.execute(query)).one()
        return int(every), int(still)

    async def failures(self, cluster: str, start: float, end: float) -> int:
        """Incidents opened from `start` until `end` that took a node out, whatever became of its machine; not of nodes that
        somebody else had taken out."""
        i, s = t.incidents, t.incident_steps
        out = select(s.c.seq).where(s.c.incident == i.c.number, s.c.state == IncidentState.DRAINING.value).exists()
        before = (
            select(s.c.seq)
            .where(s.c.incident == i.c.number, cast(s.c.evidence, Text).contains(f'"{OUT_BEFORE}"'))
            .exists()
        )
        mine = (i.c.cluster == cluster, out, ~before, i.c.opened_at >= start, i.c.opened_at < end)
        async with self._read() as db:
            return int((await db.execute(select(func.count()).select_from(i).where(*mine))).scalar() or 0)

    async def incidents_that_moved(self, cluster: str, job: int) -> tuple[int, ...]:
        """Numbers of the incidents that sent a job back to the queue, the first first."""
        i, j = t.incidents, t.incident_jobs
        query = select(i.c.number).join(j, j.c.incident == i.c.number).where(i.c.cluster == cluster, j.c.job == job)
        async with self._read() as db:
            return tuple(row.number for row in await db.execute(query.order_by(i.c.number)))


def _incident(row: Row[Any], steps: tuple[IncidentStep, ...] = (), jobs: tuple[MovedJob, ...] = ()) -> Incident:
    return Incident(
        row.number,
        row.cluster,
        row.node,
        row.what,
        XidClass(row.action),
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


def _moved_of(row: Row[Any]) -> MovedJob:
    return MovedJob(row.incident, row.job, row.requeued_at, row.running_at, row.step_at)


def _signal_of(row: Row[Any]) -> Signal:
    action = XidClass(row.action) if row.action else None
    return Signal(row.id, row.at, row.node, row.code, row.gpu, row.text, row.job, row.kind, action)
