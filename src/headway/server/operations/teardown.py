"""The handler of down operations, which delete a cluster with or without its data."""

from __future__ import annotations

import asyncio

import structlog

from headway.billing.prices.price_history import prices_of_removed_groups
from headway.domain.cluster import Cluster
from headway.domain.operation_kinds import DownParams
from headway.errors import HeadwayError
from headway.server.operations.operation_run import OperationRun
from headway.services.app_state import AppState
from headway.services.billing.ledger.collector import read_accounting
from headway.services.jobs.training_metrics import metric_files

LAST_ACCOUNTS_S = 20.0

log = structlog.get_logger("headway.operations")


async def take_down(run: OperationRun) -> tuple[str, ...]:
    """Takes a cluster down. Returns what was kept, and where."""
    state, name, report = run.state, run.operation.cluster, run.report
    delete_data = DownParams.from_json(run.operation.params).delete_data
    row = await state.store.clusters.get(name)
    if row is None:
        await _stop_billing(state, name)
        await report("cluster", f"{name} is down already", done=True)
        return ()
    await state.store.clusters.save(name, state="changing")
    state.live.notify_row_changed(name)
    cluster = await state.clusters.resolved(row)
    await _read_last_accounting(state, cluster)
    kept = await state.backend.lifecycle.take_down(cluster, report, delete_data)
    if cluster.rents_machines:
        await _record_last_rentals(state, cluster)
    await _stop_billing(state, name)
    await state.store.incidents.close_all(name)
    await state.store.clusters.delete(name, delete_data=delete_data)
    if delete_data:
        await asyncio.to_thread(metric_files(state).forget, name)
    await state.forget(name)
    return kept


async def _record_last_rentals(state: AppState, cluster: Cluster) -> None:
    """Records when the last instances ended, which the cloud says for a while. Errors are only logged."""
    try:
        await state.store.rentals.record(cluster.name, await state.backend.rentals.rentals(cluster), int(state.clock()))
    except HeadwayError as error:
        log.warning("the end of rented machines could not be read", cluster=cluster.name, error=error.first_line)


async def _stop_billing(state: AppState, name: str) -> None:
    """Ends the cluster's machines, runs and prices now. An end time that accounting reports later replaces that of a run."""
    store, now = state.store, state.clock()
    await store.machine_lifetimes.end_all(name, int(now))
    await store.runs.end(name, await store.runs.still_running(name), int(now))
    await store.prices.record(name, prices_of_removed_groups(await store.prices.of_cluster(name), (), now))


async def _read_last_accounting(state: AppState, cluster: Cluster) -> None:
    """Reads accounting a last time, because it may be deleted with the machines. Errors are only logged."""
    try:
        async with asyncio.timeout(LAST_ACCOUNTS_S):
            await read_accounting(state, cluster, int(state.clock()))
    except (HeadwayError, TimeoutError, OSError) as error:
        log.warning(
            "the last usage of the cluster could not be read",
            cluster=cluster.name,
            error=str(error) or type(error).__name__,
        )
