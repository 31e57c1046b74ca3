"""HealthContext: one cluster with its machines, controller and store, as detection, incidents and rollouts need it."""

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
from headway.domain.machines.machine import Machine, MachineState
from headway.errors import HeadwayError, Unreachable
from headway.slurm import job_commands, node_commands, node_jobs
from headway.store import StoreUnavailable

# The number of nodes whose volumes are mounted or checked at the same time. When a file server is down, all nodes are
# affected, and their checks must not use up the SSH connections that other checks need.
MOUNTS_AT_ONCE = 8


def fault_text(error: HeadwayError) -> str:
    """Returns the first line of an error, to report as the fault of a machine. Raises a StoreUnavailable again, because
    an unavailable server database is no fault of a machine."""
    if isinstance(error, StoreUnavailable):
        raise error
    return error.first_line


@dataclass
class HealthContext:
    """One cluster's machines, controller and store, with the clock and sleep function that tests replace."""

    cluster: Cluster
    cluster_context: ClusterContext
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    mount_limit: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOUNTS_AT_ONCE))

    async def machines(self) -> dict[str, Machine]:
        """Returns all machines that exist, running or not, by name."""
        return await self.cluster_context.machines(self.cluster.name)

    async def running_machine(self, name: str) -> Machine:
        """Returns a running machine. Raises Unreachable."""
        found = (await self.machines()).get(name)
        if found is None or found.state is not MachineState.RUNNING:
            raise Unreachable(f"{name} is not running", hint=f"headway status {self.cluster.name}")
        return found

    async def head(self) -> Machine:
        """Returns the active head. Raises Unreachable."""
        return await require_active_head(self.cluster, self.cluster_context, await self.machines())

    async def node_state(self, node: str) -> tuple[frozenset[str], str]:
        """Returns (states, reason) of a node as the controller reports them now."""
        return await node_commands.read_node_state(self.cluster_context.connections, await self.head(), node)

    async def jobs_on(self, node: str, *, ending: bool = True) -> set[int]:
        """Returns the ids of the node's jobs; with `ending` also those that are completing."""
        return set(
            await node_jobs.jobs_on_node(self.cluster_context.connections, await self.head(), node, ending=ending)
        )

    async def idle_nodes(self) -> tuple[str, ...]:
        """Returns the nodes in service that run no job."""
        return await node_commands.idle_nodes(self.cluster_context.connections, await self.head())

    async def job_state(self, job: int) -> str:
        """Returns the job's state as the controller reports it now; "" when the controller no longer knows the job."""
        return await job_commands.read_job_state(self.cluster_context.connections, await self.head(), job)

    async def add_step(self, incident: Incident, state: IncidentState, text: str, **more: Any) -> Incident:
        """Records a step of an incident and returns the incident after it; see the store's `incidents.add_step`."""
        return await self.cluster_context.store.incidents.add_step(incident, state, text, **more)
