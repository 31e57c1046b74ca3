"""Leases of rented machines: a machine whose lease is not renewed ends itself once its jobs have ended, so that a server that
is gone leaves no machine running."""

from __future__ import annotations

import asyncio

from headway.cluster.context import ClusterContext
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineState
from headway.errors import HeadwayError
from headway.providers.base import RentingProvider
from headway.providers.cloud.user_data import LEASE_FILE

_RENEW_S = 20.0


async def renew_leases(cluster: Cluster, context: ClusterContext) -> tuple[str, ...]:
    """Renews the lease of each running machine. Returns the names of those that did not answer."""
    if not isinstance(context.provider, RentingProvider):
        return ()
    machines = [
        machine
        for machine in await context.provider.list(cluster.name)
        if machine.state is MachineState.RUNNING and cluster.provider_of(machine.name).rents_machines
    ]

    async def renew(machine: Machine) -> str:
        try:
            await context.connections.remote(machine, ["touch", LEASE_FILE], timeout_s=_RENEW_S)
        except HeadwayError:
            return machine.name
        return ""

    return tuple(filter(None, await asyncio.gather(*map(renew, machines))))
