"""Updates the ledger (the stored runs, node states and measurements) before a report is made."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.errors import HeadwayError, Refused
from headway.schemas.billing.usage import CollectedOut
from headway.services.access.audit import write_audit_line
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.billing.billing_round import run_billing_round
from headway.services.billing.reports.report_scope import BilledCluster, ReportScope, load_billed_cluster, visible_teams

MAX_AGE_S = 10.0  # a ledger younger than this is not read again


async def ensure_ledger_fresh(state: AppState, cluster: Cluster, max_age_s: float = MAX_AGE_S) -> None:
    """Runs a billing round unless one ended within `max_age_s`. Concurrent callers share one round, also
    across servers on one database. Raises the errors of reading accounting."""

    async def run_alone() -> None:
        async with state.store.server_locks.lock(f"ledger/{cluster.name}"):
            await run_billing_round(state, cluster)

    await state.cache.get(f"{cluster.name}/ledger", max_age_s, run_alone)


async def refresh_ledger(state: AppState, billed: BilledCluster) -> str:
    """Updates the ledger if the cluster answers. Returns why it could not, "" if it did."""
    if billed.cluster is None:
        return ""
    if stale := state.live.snapshot(billed.name).stale:
        return stale
    try:
        await ensure_ledger_fresh(state, billed.cluster)
    except HeadwayError as error:
        return error.first_line
    except (TimeoutError, OSError) as error:
        return str(error) or type(error).__name__
    return ""


async def rebuild_ledger(state: AppState, who: Principal, billed: BilledCluster) -> CollectedOut:
    """Drops the stored runs and reads accounting again from its beginning. Raises Refused for a cluster that is down."""
    if billed.cluster is None:
        raise Refused(f"{billed.name} is down: its accounting can't be read", hint="run headway apply")
    await state.store.runs.collect_again(billed.name)
    await ensure_ledger_fresh(state, billed.cluster, max_age_s=0)
    await write_audit_line(state, who, "ledger.rebuild", billed.name)
    return CollectedOut(collected_to=(await state.store.ledger_progress.get(billed.name)).collected_to)


async def load_report_scope(state: AppState, name: str, who: Principal, period: str) -> ReportScope:
    """Updates the ledger and returns the scope of a monthly report for this person. Raises NotFound, NotAllowed,
    Refused."""
    billed = await load_billed_cluster(state, name)
    scope = ReportScope(billed, billed.month(period), visible_teams(billed, who))
    await refresh_ledger(state, billed)
    return scope
