"""Starts, describes, stops and retries batches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from pydantic import ValidationError

from headway.billing.money import cents, usd
from headway.domain.access.credential_redaction import mask_environment
from headway.domain.cluster import Cluster
from headway.domain.dataset import FOLDER
from headway.errors import Conflict, Refused
from headway.jobs.batches.batch_run import batch_run, masked_command, state_folder, worker_path
from headway.jobs.submission.prepare_job import prepare_run
from headway.schemas.submission.batches import BatchIn, BatchOut, BatchProgress
from headway.schemas.submission.run_request import RunIn, ScriptLine
from headway.schemas.submission.submission_check import CheckJobIn, CheckJobOut
from headway.services.access.audit import write_audit_line
from headway.services.access.ownership_rights import (
    authorize_action,
    authorize_as_owner,
    cluster_to_work_on,
    may_act_on,
)
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.batches.stored_batch import StoredBatch
from headway.services.billing.cost_estimate import estimate_cost
from headway.services.job_secrets.requested import require_secrets
from headway.services.jobs.submission import new_folder_suffix, node_offer
from headway.services.storage.datasets import pin_versions, require_own_dataset
from headway.services.storage.declared_environments import runtime_of_command
from headway.store import BatchRow

_LIKE_AN_ID = re.compile(r"b-[0-9a-f]+")  # see store.jobs.batches


async def start_batch(state: AppState, who: Principal, name: str, request: BatchIn) -> BatchOut:
    """Checks and stores a batch; its rounds submit the job. With `dry_run` nothing is stored. Raises Refused with all faults of
    the job, NotFound for an unknown dataset, NotAllowed if the output is another person's dataset."""
    user = who.user_to_act_as(request.user)
    cluster = await cluster_to_work_on(state, name, who)
    if _LIKE_AN_ID.fullmatch(request.output):
        raise Refused(f"{request.output} looks like the id of a batch", hint="give the output another name")
    await require_own_dataset(state, cluster, request.output, who.person)
    _require_no_secrets(request)
    sent = request.model_dump(mode="json")
    rows, request = await _pinned_input(state, cluster, request)
    found = await runtime_of_command(state, cluster, request.job, user)
    job = request.job.model_copy(update={"environment": found.environment, "container": found.container})
    request = request.model_copy(update={"job": job})
    mark, worker = new_folder_suffix(who), worker_path(cluster, user)
    folder = state_folder(cluster, user, request.output, mark)
    run = batch_run(request, rows=rows, folder=folder, worker=worker)
    prepared = prepare_run(run, cluster, user, "check", offer=node_offer(state, cluster))
    await require_secrets(state, cluster, prepared.request, user)
    rate = await _usd_per_hour(state, who, cluster, run, user)
    stored = StoredBatch(request, mark, rows, folder, worker, rate)
    if request.dry_run:
        planned = BatchRow("", name, request.output, who.person, user, state.clock(), stored.document(), "planned")
        script = prepared.script.lines if prepared.script else ()
        lines = [ScriptLine(text=line.text, origin=line.origin) for line in script]
        return batch_out(planned).model_copy(update={"script": lines, "warning": found.warning})
    row = await state.store.batches.save(
        name,
        request.output,
        person=who.person,
        user=user,
        document=stored.document(),
        key=who.idempotency_key,
        sent=sent,
    )
    await write_audit_line(state, who, "batch", name, batch=row.id, user=user, output=request.output)
    state.batches_due.set()
    return batch_out(row).model_copy(update={"warning": found.warning})


def _require_no_secrets(request: BatchIn) -> None:
    """Raises Refused for a variable that looks like a secret: a batch is stored, and secret values are not."""
    masked = mask_environment(request.job.env)
    name = next((name for name, value in request.job.env.items() if masked[name] != value), "")
    if name:
        raise Refused(
            f"env.{name} looks like a secret", hint=f"headway secret set {name.lower()}, and --secret {name.lower()}"
        )


async def _pinned_input(state: AppState, cluster: Cluster, request: BatchIn) -> tuple[str, BatchIn]:
    """Returns the path of the input, and the request with the version of its dataset. Raises NotFound."""
    if request.input.startswith("/"):
        return request.input, request
    (label,) = await pin_versions(state, cluster, [request.input])
    name, _, number = label.partition("@")
    return f"{FOLDER}/{name}/{number}", request.model_copy(update={"input": label})


async def _usd_per_hour(state: AppState, who: Principal, cluster: Cluster, run: RunIn, user: str) -> float | None:
    """Returns what a worker costs; None without a price."""
    one = run.model_copy(update={"user": user}, deep=True)
    one.sbatch.pop()  # the array
    offer = node_offer(state, cluster)
    estimate = await estimate_cost(state, who, cluster, CheckJobIn(run=one), CheckJobOut(), offer)
    return None if estimate.usd_per_hour is None else float(estimate.usd_per_hour)


def list_batches(rows: Sequence[BatchRow]) -> list[BatchOut]:
    """Returns stored batches without their workers."""
    return [batch_out(row).model_copy(update={"worker_runs": [], "some_errors": []}) for row in rows]


async def get_batch(state: AppState, who: Principal, name: str, batch: str) -> BatchOut:
    """Returns the batch with this id, or the latest with this name. Raises NotFound."""
    _, cluster = await state.clusters.get(name)
    row = await state.store.batches.get(name, batch)
    found = batch_out(row)
    mine = row.user == who.user or may_act_on(cluster, who, row)
    return found if mine else found.model_copy(update={"some_errors": []})


async def stop_batch(state: AppState, who: Principal, name: str, batch: str) -> BatchOut:
    """Ends a batch; the next round cancels its job. What is computed remains, for a retry. Raises Conflict if it has ended or its
    version is being added."""
    cluster = await cluster_to_work_on(state, name, who)
    row = await state.store.batches.get(name, batch)
    await authorize_action(state, cluster, who, row, f"stop batch {row.name}")
    stops = row.state in ("submitting", "running")
    change = {"state": "stopped", "why": f"{who.person} stopped it"}
    if not stops or not await state.store.batches.change(row.id, of_state=row.state, **change):
        raise Conflict(f"batch {row.name} can't be stopped: {row.state}", hint=f"headway batch show {row.id}")
    await write_audit_line(state, who, "batch-stop", name, batch=row.id, of=row.user)
    state.batches_due.set()
    return await get_batch(state, who, name, row.id)


async def retry_batch(state: AppState, who: Principal, name: str, batch: str) -> BatchOut:
    """Continues a batch that has failed or was stopped: shards that are committed stay. Raises Conflict for another one."""
    cluster = await cluster_to_work_on(state, name, who)
    row = await state.store.batches.get(name, batch)
    await authorize_as_owner(state, cluster, who, row, f"retry batch {row.name}")
    change = {
        "state": "submitting",
        "why": "",
        "submission": row.submission + 1,
        "submitted_at": state.clock(),
        "job_id": 0,
        "operation": "",
        "ended_at": None,
    }
    ended = row.state in ("failed", "stopped") and row.ended_at is not None
    if not ended or not await state.store.batches.change(row.id, of_state=row.state, **change):
        raise Conflict(f"batch {row.name} can't be retried: {row.state}", hint=f"headway batch show {row.id}")
    await write_audit_line(state, who, "batch-retry", name, batch=row.id, of=row.user)
    state.batches_due.set()
    return await get_batch(state, who, name, row.id)


def _progress(row: BatchRow) -> BatchProgress:
    """Returns the stored progress; none if it is not valid, so that one batch never hides the others of a list."""
    try:
        return BatchProgress.model_validate(row.progress)
    except ValidationError:
        return BatchProgress()


def batch_out(row: BatchRow) -> BatchOut:
    """Returns the answer about a batch."""
    stored, progress = StoredBatch.of(row), _progress(row)
    request, rate = stored.request, stored.usd_per_hour
    cost = None if rate is None else usd(cents(Fraction(progress.seconds / 3600 * rate)))
    return BatchOut(
        id=row.id,
        cluster=row.cluster,
        name=row.name,
        person=row.person,
        user=row.user,
        created_at=row.at,
        ended_at=row.ended_at,
        state=row.state,
        why=row.why,
        input=request.input,
        model=request.model,
        program=request.program,
        server=masked_command(request.server),
        job_id=row.job_id,
        workers=request.workers,
        rows=progress.rows,
        done_rows=progress.done_rows,
        errors=progress.errors,
        shards=progress.shards,
        done_shards=progress.done_shards,
        seconds=round(progress.seconds, 1),
        usd=cost,
        worker_runs=progress.workers,
        some_errors=progress.some_errors,
        folder=stored.folder,
        dataset=row.dataset,
    )
