"""Takes a cluster down: cancels jobs so that accounting is complete, stops daemons so that no data is lost, then
deletes or releases the machines."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from pathlib import PurePosixPath

from headway.cluster import remote_steps
from headway.cluster.context import ClusterContext
from headway.cluster.owned import machine_claims
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.operation_progress import ReportProgress
from headway.errors import HeadwayError
from headway.providers.base import OwnedMachinesProvider
from headway.store import StoreUnavailable

_STOP = [
    "systemctl",
    "stop",
    "slurmctld.service",
    "slurmrestd.service",
    "slurmdbd.service",
    "mariadb.service",
]


async def take_down(
    cluster: Cluster, context: ClusterContext, report: ReportProgress, delete_data: bool
) -> tuple[str, ...]:
    """Deletes or releases all machines and returns the paths of the data that is kept. A machine that does not answer
    is deleted too."""
    began = time.monotonic()
    machines = await context.machines(cluster.name)
    head = machines.get(cluster.head)
    if head is not None and head.state is MachineState.RUNNING and not delete_data:
        await report("jobs", "cancelling jobs, closing accounting")
        await _stop_second_heads(cluster, context, machines)
        steps = [
            {"op": "end_jobs", "timeout_s": 20},
            remote_steps.run_step(_STOP, timeout_s=60, ok=(0, 1, 5)),
        ]
        try:
            await remote_steps.run_steps(context.connections, head, steps, timeout_s=120)
            await report("jobs", "cancelled; accounting closed", done=True)
        except StoreUnavailable:
            raise  # the server's database is no part of a machine
        except HeadwayError as error:
            await report("jobs", f"the head did not shut down in order: {error.message}", level="warning", done=True)

    async def delete(name: str) -> None:
        own = isinstance(context.provider, OwnedMachinesProvider) and not cluster.provider_of(name).creates_machines
        if own:
            await machine_claims.release_machine(
                context, machines[name], report, _data_folders(cluster, name) if delete_data else ()
            )
        await context.provider.delete(machines[name])
        if not own:
            await report(name, "deleted", done=True)

    for failed in await asyncio.gather(*(delete(name) for name in machines), return_exceptions=True):
        if failed is not None:  # all other machines are deleted by now
            raise failed
    kept = await context.provider.release(cluster.name, delete_data=delete_data)
    if kept:
        kept = (*kept, *_shared_data_folders(cluster))
    await report("cluster", f"{cluster.name} is down", done=True, seconds=time.monotonic() - began)
    return kept


def _shared_data_folders(cluster: Cluster) -> list[str]:
    """Returns the folders with the cluster's data on storage that does not belong to its machines."""
    folders = [str(PurePosixPath(cluster.state_folder).parent)] if cluster.storage.state else []
    if not cluster.provider.volumes_on_server:
        if any(dataset.versioned for dataset in cluster.storage.datasets):
            folders.append(cluster.dataset_store_folder)
        folders.append(cluster.environment_folder)
    return folders


def _data_folders(cluster: Cluster, name: str) -> tuple[str, ...]:
    """Returns the data folders to delete on an owned machine. Slurm's state is deleted on each head, because the head
    that stops last could have written it again."""
    if name not in cluster.heads:
        return ("/srv/headway-state",)
    state = (str(PurePosixPath(cluster.state_folder).parent),) if cluster.storage.state else ()
    return ("/srv/headway-state", str(PurePosixPath(cluster.dataset_store_folder).parent), *state)


async def _stop_second_heads(cluster: Cluster, context: ClusterContext, machines: Mapping[str, Machine]) -> None:
    """Stops the daemons of the second head, so that its controller does not take over while the first one stops."""
    for name in cluster.heads[1:]:
        if name in machines and machines[name].state is MachineState.RUNNING:
            with contextlib.suppress(HeadwayError):  # a head that does not answer is deleted all the same
                await remote_steps.run_steps(
                    context.connections, machines[name], [remote_steps.run_step(_STOP, timeout_s=60, ok=(0, 1, 5))]
                )
