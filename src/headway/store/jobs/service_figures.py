"""Figures of services by minute, and what was last read of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from sqlalchemy import delete, select

from headway.domain.serving.service_figures import ReplicaCounters, ServiceFigures
from headway.store.db import service_schema as t
from headway.store.db.transactions import StorePart, insert_into

KEPT_MINUTES = 7 * 24 * 60  # a week, as schemas.serving.service_metrics.MOST_MINUTES


@dataclass(frozen=True, slots=True)
class LastReading:
    """What was last read of a cluster's services: the mark of the last request, and the counters of replicas, by
    SERVICE/NUMBER."""

    after: str = ""
    counters: Mapping[str, ReplicaCounters] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServiceMinute:
    """What was counted of a version of a service in a minute (minutes since 1970)."""

    minute: int
    version: int
    figures: ServiceFigures


class ServiceFiguresStore(StorePart):
    """Stores figures of services."""

    async def last_reading(self, cluster: str) -> LastReading:
        """Returns what was last read."""
        r = t.service_readings
        async with self._database.read() as db:
            row = (await db.execute(select(r).where(r.c.cluster == cluster))).first()
        if row is None:
            return LastReading()
        return LastReading(row.after, {name: ReplicaCounters(**one) for name, one in row.counters.items()})

    async def add(
        self, cluster: str, minute: int, reading: LastReading, figures: Mapping[tuple[str, int], ServiceFigures]
    ) -> None:
        """Adds figures, by (service, version), to those of a minute, together with the reading that they come from: a server
        that is killed counts nothing twice."""
        m, r = t.service_minutes, t.service_readings
        async with self._database.write() as db:
            for (service, version), more in figures.items():
                mine = (m.c.service == service, m.c.minute == minute, m.c.version == version)
                known = (await db.execute(select(m.c.figures).where(*mine))).scalar()
                total = (ServiceFigures.of(known) + more if known else more).document()
                one = insert_into(db, m).values(
                    service=service, minute=minute, version=version, cluster=cluster, figures=total
                )
                keys = ["service", "minute", "version"]
                await db.execute(one.on_conflict_do_update(index_elements=keys, set_={"figures": one.excluded.figures}))
            values = {
                "after": reading.after,
                "counters": {name: asdict(one) for name, one in reading.counters.items()},
            }
            last = insert_into(db, r).values(cluster=cluster, **values)
            change = {name: last.excluded[name] for name in values}
            await db.execute(last.on_conflict_do_update(index_elements=["cluster"], set_=change))

    async def delete_old(self) -> None:
        """Deletes the figures of all services that are older than a week."""
        m = t.service_minutes
        async with self._database.write() as db:
            await db.execute(delete(m).where(m.c.minute < int(self._database.now() // 60) - KEPT_MINUTES))

    async def since(self, service: str, minute: int) -> tuple[ServiceMinute, ...]:
        """Returns the figures of a service from this minute on, the oldest first."""
        m = t.service_minutes
        query = select(m.c.minute, m.c.version, m.c.figures).where(m.c.service == service, m.c.minute >= minute)
        async with self._database.read() as db:
            rows = await db.execute(query.order_by(m.c.minute, m.c.version))
            return tuple(ServiceMinute(row.minute, row.version, ServiceFigures.of(row.figures)) for row in rows)
