"""What is known of a version, so that its gates can be decided: metrics, approvals, cost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from decimal import Decimal

from headway.domain.cluster import Cluster
from headway.errors import NotAllowed, Refused
from headway.jobs.promotions.gate_results import DONE, FAILED, Approval, GateJobState, GateResult, Known, gate_results
from headway.jobs.promotions.gates_file import Gates
from headway.services.access.ownership_rights import is_owner_or_admin
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.billing.ledger.ledger_refresh import ensure_ledger_fresh
from headway.services.billing.reports.report_scope import load_billed_cluster
from headway.services.billing.reports.runs import whole_run_lines
from headway.services.jobs.training_metrics import metric_files
from headway.services.models.model_versions import VersionInRegistry, finite
from headway.services.models.promotion_rights import approver_roles_now
from headway.store import JobRecord
from headway.store.jobs.promotions import PromotionRow


async def check_version(
    state: AppState,
    cluster: Cluster,
    row: PromotionRow,
    gates: Gates,
    version: VersionInRegistry,
    files: str,
    jobs: Mapping[str, GateJobState],
) -> list[GateResult]:
    """Returns the results of all gates. `files`: digest of the version's files. `jobs`: states of the gates' jobs. Raises
    Unreachable if the cost can't be read now."""
    approvals: dict[str, list[Approval]] = {}
    for one in await state.store.promotions.approvals(row.cluster, row.team, row.model, row.version):
        now = await approver_roles_now(state, cluster, one.person, row.team)
        roles = tuple(role for role in one.roles if role in now)  # a role that the person has lost does not count
        approvals.setdefault(one.name, []).append(Approval(one.person, roles, one.at, one.files))
    missing = {name: GateJobState() for name in gates.job_names() if name not in jobs}
    known = {**jobs, **missing}
    usd, ended = None, all(job.state in (DONE, FAILED) for job in known.values())
    if ended and any(gate.max_usd is not None for gate in gates.gates.values()):
        usd = await _cost(state, cluster, [version.source.job, *(job.job_id for job in known.values())])
    facts = Known(version.source.metrics, known, approvals, files, usd, row.person)
    return gate_results(gates.gates, facts)


async def _cost(state: AppState, cluster: Cluster, jobs: Iterable[int]) -> float | None:
    """Returns what these jobs have cost, None if it is not known of one that exists. Raises the errors of accounting."""
    numbers = [number for number in jobs if number]
    if not numbers:
        return None
    await ensure_ledger_fresh(state, cluster, max_age_s=0)
    billed = await load_billed_cluster(state, cluster.name)
    since = max(await state.store.operations.data_deletion_times(cluster.name), default=0)
    runs = [run for run in await state.store.usage.runs_of_jobs(cluster.name, numbers) if run.start >= since]
    lines = await whole_run_lines(state, billed, runs)
    if {line.job for line in lines} != set(numbers) or any(line.usd_whole is None for line in lines):
        return None
    return float(sum((line.usd_whole or Decimal(0) for line in lines), Decimal(0)))


async def job_metrics(state: AppState, cluster: str, job: int) -> dict[str, float | None]:
    """Returns the newest values that the server's copy has of a job's metrics; None where one is not finite."""
    known = await asyncio.to_thread(metric_files(state).read, cluster, job)
    return {metric.name: finite(metric.value) for metric in known.metrics}


async def source_record(state: AppState, cluster: str, version: VersionInRegistry) -> JobRecord | None:
    """Returns the record of the job that logged a version; None if it was not submitted through Headway."""
    if not version.source.job:
        return None
    return await state.store.jobs.get(cluster, version.source.job, version.source.user or None)


async def require_rerunnable(
    state: AppState, cluster: Cluster, who: Principal, version: VersionInRegistry
) -> JobRecord:
    """Returns the record of the version's job. Raises Refused if it can't run again, NotAllowed if another person owns it."""
    record = await source_record(state, cluster.name, version)
    if record is None:
        raise Refused(
            f"the job of {version.label} was not submitted through Headway, so it can't run again",
            hint="leave out gates with rerun",
        )
    if not is_owner_or_admin(who, record):
        raise NotAllowed(
            f"{who.person} may not run job {record.job_id} again: it belongs to {record.user}",
            hint="ask its owner or an admin to promote the model",
        )
    return record
