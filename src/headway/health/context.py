"""What the steps of an incident work with: one cluster, its machines, its controller, its store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from headway.cluster.active_head import require_active_head
from headway.cluster.context import ClusterContext
from headway.domain.cluster import Cluster
from headway.domain.incident import Incident, IncidentState
from headway.domain.machine import Machine, MachineState
from headway.errors import HeadwayError, Unreachable
from headway.slurm import job_commands, node_commands, node_jobs
from headway.store import StoreAway

# Nodes at once whose volumes are tried: a file server that is away is away for all of them, and others are asked things too.
MOUNTS_AT_ONCE = 8


def fault_text(error: HeadwayError) -> str:
    """What is wrong with a machine, by what a step on it met: everything here that judges a machine by an error asks this.
    Raises the error again where the server's database is what is away."""
    if isinstance(error, StoreAway):
        raise error
    return error.message.splitlines()[0]


@dataclass
class HealthContext:
    cluster: Cluster
    env: ClusterContext
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    mount_limit: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOUNTS_AT_ONCE))

    async def machines(self) -> dict[str, Machine]:
        """All that exist, running or not."""
        return {machine.name: machine for machine in await self.env.provider.list(self.cluster.name)}

    async def running_machine(self, name: str) -> Machine:
        """One that runs. Raises Unreachable."""
        found = (await self.machines()).get(name)
        if found is None or found.state is not MachineState.RUNNING:
            raise Unreachable(f"{name} does not run", hint=f"headway status {self.cluster.name}")
        return found

    async def head(self) -> Machine:
        """The one to speak to. Raises Unreachable."""
        return await require_active_head(self.cluster, self.env, await self.machines())

    async def node_state(self, node: str) -> tuple[frozenset[str], str]:
        """(states, reason) as the controller has them this moment."""
        return await node_commands.read_node_state(self.env.connections, await self.head(), node)

    async def jobs_on(self, node: str, *, ending: bool = True) -> set[int]:
        """`ending`: also those that are completing."""
        return set(await node_jobs.jobs_on_node(self.env.connections, await self.head(), node, ending=ending))

    async def idle_nodes(self) -> tuple[str, ...]:
        """Nodes in service that run nothing."""
        return await node_commands.idle_nodes(self.env.connections, await self.head())

    async def job_state(self, job: int) -> str:
        """Its state as the controller has it this moment; "" when it has forgotten the job."""
        return await job_commands.read_job_state(self.env.connections, await self.head(), job)

    async def add_step(self, incident: Incident, state: IncidentState, text: str, **more: Any) -> Incident:
        """The incident after a step; see store.incidents.add_step."""
        return await self.env.store.incidents.add_step(incident, state, text, **more)
