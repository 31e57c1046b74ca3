"""Writes the secrets of jobs to the heads of a cluster."""

from __future__ import annotations

import asyncio

from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineState
from headway.errors import HeadwayError
from headway.server.cluster_backend.connections import ConnectionPool

ANSWER_S = 20.0


class JobSecretsBackend:
    """Implements services.cluster_backend.ClusterJobSecrets."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def install_job_secrets(self, cluster: Cluster, content: bytes) -> tuple[str, ...]:
        from headway.transport.remote_program import program_source

        opened = await self._pool.opened(cluster)
        machines = {machine.name: machine for machine in await opened.machines(cluster.name)}
        argv = ["python3", "-I", "-S", "-c", program_source("install_job_secrets")]

        async def reaches(machine: Machine | None) -> bool:
            if machine is None or machine.state is not MachineState.RUNNING:
                return False
            try:
                await opened.context.connections.remote(machine, argv, timeout_s=ANSWER_S, input=content)
            except HeadwayError:
                return False
            return True

        done = await asyncio.gather(*(reaches(machines.get(name)) for name in cluster.heads))
        return tuple(name for name, ok in zip(cluster.heads, done, strict=True) if not ok)
