"""Asks the cloud what a plan would rent, and at what price."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from headway.changes.checks.rented_machines import WantedMachines, later_notes, rental_notes
from headway.cluster.context import ClusterContext
from headway.domain.changeset import ChangeSet
from headway.domain.cluster import Cluster
from headway.errors import HeadwayError
from headway.providers.base import RentingProvider


async def with_rental_notes(
    cluster: Cluster, context: ClusterContext, changes: ChangeSet, names: Sequence[str]
) -> ChangeSet:
    """Returns the ChangeSet with notes about the machines that are missing of these names, and about those that groups with
    idle would rent when jobs wait. A cloud that does not answer is a note too."""
    provider = context.provider
    if not isinstance(provider, RentingProvider):
        return changes
    try:
        names = [name for name in names if cluster.provider_of(name).rents_machines]
        there = await provider.rented(cluster)
        missing = [name for name in names if name not in there]
        if not missing and changes.empty:
            return changes
        wanted = await _ask(cluster, provider, missing)
        later = await _ask_later(cluster, provider, names)
        rented = await provider.launch_prices(cluster.name)
        notes = (*rental_notes(cluster, wanted, rented), *later_notes(cluster, later))
    except HeadwayError as error:
        notes = (f"the cloud does not say what can be had: {error.message}; {error.hint}",)
    return replace(changes, notes=(*changes.notes, *notes))


async def _ask(cluster: Cluster, provider: RentingProvider, missing: Sequence[str]) -> list[WantedMachines]:
    by_role: dict[str, list[str]] = {}
    for name in missing:
        by_role.setdefault(cluster.role_of(name), []).append(name)

    async def one(names: list[str]) -> WantedMachines:
        offers = await provider.offers(cluster, names[0])
        return WantedMachines(tuple(names), offers, await provider.quota(offers[0]))

    return list(await asyncio.gather(*(one(names) for names in by_role.values())))


async def _ask_later(cluster: Cluster, provider: RentingProvider, names: Sequence[str]) -> list[WantedMachines]:
    """Returns what groups with idle may rent when jobs wait, besides these names."""
    found = []
    for group in cluster.groups:
        slots = tuple(name for name in group.slots if name not in names)
        if group.idle_s is not None and slots and cluster.provider_of(slots[0]).rents_machines:
            found.append(WantedMachines(slots, await provider.offers(cluster, slots[0]), None))
    return found
