"""Looks at what clusters rent: records since when it costs money and the prices that clouds ask, renews the leases of their
machines, and ends what belongs to none of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from headway.domain.cluster import Cluster
from headway.domain.incident import FaultAction, IncidentState
from headway.domain.machines.rented import RentedThing
from headway.errors import HeadwayError
from headway.server.workers.each_cluster import check_each_cluster
from headway.services.app_state import AppState
from headway.store import ClusterRow

LOOK_S = 60.0
PRICES_S = 600.0  # seconds between looks at the prices of the cloud's offers
RENEW_S = 300.0  # seconds between renewals of the leases
UNCLAIMED = "it is rented, and belongs to no machine of the cluster"


class RentedMachinesCheck:
    """Looks at each cluster with rented machines every LOOK_S seconds. What is unclaimed in two looks in a row is an
    incident, and is ended."""

    def __init__(self, state: AppState, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._state = state
        self._pause = pause
        self._seen: dict[str, frozenset[str]] = {}  # cluster -> ids of what was unclaimed in the last look
        self._priced_at: dict[str, float] = {}  # cluster -> when the prices of its offers were last recorded
        self._renewed_at: dict[str, float] = {}  # cluster -> when its leases were last renewed

    async def run(self) -> None:
        """Looks at all clusters every LOOK_S seconds, until cancelled."""
        while True:
            await self.check_all()
            await self._pause(LOOK_S)

    async def check_all(self) -> None:
        """Looks at all clusters, one after the other."""
        await check_each_cluster(self._state, "look at rented machines", self._check)

    async def _check(self, row: ClusterRow) -> None:
        cluster = await self._state.clusters.resolved(row)
        if not cluster.rents_machines:
            return
        rentals, now = self._state.backend.rentals, self._state.clock()
        await self._state.store.rentals.record(row.name, await rentals.rentals(cluster), int(now))
        things = await rentals.unclaimed_things(cluster)
        before = self._seen.get(row.name, frozenset())
        self._seen[row.name] = frozenset(thing.id for thing in things)
        again = [thing for thing in things if thing.id in before]
        if again:
            await self._end(cluster, again)
        if not 0 <= now - self._renewed_at.get(row.name, 0.0) < RENEW_S:
            self._renewed_at[row.name] = now
            await rentals.renew_leases(cluster)
        if not 0 <= now - self._priced_at.get(row.name, 0.0) < PRICES_S:
            self._priced_at[row.name] = now
            await self._state.store.rentals.record_prices(await rentals.offers(cluster), int(now))

    async def _end(self, cluster: Cluster, things: Sequence[RentedThing]) -> None:
        """Opens an incident for each thing and ends it. The incident of one that can't be ended stays open."""
        store, name = self._state.store.incidents, cluster.name
        unfinished = [one for one in await store.search(name, unfinished=True) if one.what == UNCLAIMED]
        open_now = {str(one.found("id")): one for one in await store.with_steps(unfinished)}
        for thing in things:
            text = f"{thing.kind} {thing.id} ({thing.description}, {thing.zone}, {thing.state})"
            incident = open_now.get(thing.id)
            if incident is None:
                node = thing.machine if thing.machine in cluster.machine_names else cluster.head
                evidence = {"id": thing.id, "kind": thing.kind, "description": thing.description}
                now = self._state.clock()
                incident = await store.open(name, node, UNCLAIMED, FaultAction.MAKE, now, evidence)
            try:
                await self._state.backend.rentals.end_things(cluster, [thing])
            except HeadwayError as error:
                words = f"{text} can't be ended: {error.first_line}"
                await store.add_step(incident, IncidentState.REPAIRING, words)
                continue
            await store.add_step(
                incident, IncidentState.RETURNED, f"{text} is ended: no try to rent a machine claims it"
            )
            self._state.live.add_recent_event(
                name, f"{text} was rented and belonged to no machine: it is ended", level="warning"
            )
