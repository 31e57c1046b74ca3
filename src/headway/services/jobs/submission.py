"""Submission of jobs: a script or a command, checked, sent to sbatch, and recorded with its origin."""

from __future__ import annotations

import asyncio
import secrets as random
import time
from typing import Any

from headway.domain.cluster import Cluster
from headway.domain.dataset import DatasetVersion
from headway.errors import Refused, Unanswered, Unreachable
from headway.jobs.submission import lineage
from headway.jobs.submission.job_secrets import requested_secrets, with_secrets
from headway.jobs.submission.node_capacity import NodeCapacity, largest_node
from headway.jobs.submission.prepare_job import PreparedJob, prepare_run, prepare_submit, preview_run, run_out
from headway.jobs.submission.software_environment import used_environments, with_environment
from headway.jobs.submission.stage_in import with_stage
from headway.jobs.submission.submission_check import (
    explain_unavailable,
    parse_test_only,
    sbatch_fault,
    submission_faults,
)
from headway.schemas.base import FaultOut
from headway.schemas.submission.batch_script_request import SubmitIn, SubmitOut
from headway.schemas.submission.run_flags import RunIn, RunOut
from headway.schemas.submission.submission_check import CheckJobIn, CheckJobOut
from headway.services.access.audit import write_audit_line
from headway.services.access.concurrency_limits import command_slot
from headway.services.access.ownership_rights import cluster_to_work_on
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.job_secrets.requested import require_secrets, secret_faults
from headway.services.storage.datasets import pin_versions
from headway.services.storage.declared_environments import runtime_of_command
from headway.services.storage.environments import pin_environment
from headway.store import StoreUnavailable

RECORD_RETRY_S = 1.0  # pause before the second try to record a submitted job
_EPOCH = {"SLURM_TIME_FORMAT": "%s"}  # sbatch prints times as unix seconds


async def submit(state: AppState, who: Principal, name: str, request: SubmitIn) -> SubmitOut:
    """Runs sbatch on the cluster as the person's user, and records the job."""
    user = who.user_to_act_as(request.user)
    cluster = await cluster_to_work_on(state, name, who)
    request = request.model_copy(update=await _pinned(state, cluster, request, user))
    prepared = prepare_submit(request, cluster, user, new_folder_suffix(who))
    return await submit_and_record(state, who, cluster, prepared, user, "submit")


async def run(state: AppState, who: Principal, name: str, request: RunIn) -> RunOut:
    """Makes a batch script from a command and submits it; with `dry_run` it only makes the script."""
    user = who.user_to_act_as(request.user)
    cluster = await cluster_to_work_on(state, name, who)
    request = request.model_copy(update=await _pinned(state, cluster, request, user))
    prepared = prepare_run(request, cluster, user, new_folder_suffix(who), offer=node_offer(state, cluster))
    if request.dry_run:
        return run_out(prepared, name, user)
    done = await submit_and_record(state, who, cluster, prepared, user, "run")
    return run_out(prepared, name, user, done.job_id, done.message)


async def check(state: AppState, who: Principal, name: str, check_request: CheckJobIn) -> CheckJobOut:
    """Returns whether the job could be submitted, and when and where it would start (sbatch --test-only). Submits
    nothing. Raises Unreachable while Slurm does not answer."""
    request = check_request.submit or check_request.run
    assert request is not None
    user = who.user_to_act_as(request.user)
    cluster = await cluster_to_work_on(state, name, who)
    script, pinned = "", await _pinned(state, cluster, request, user)
    if check_request.run is not None:
        command = check_request.run.model_copy(update=pinned)
        made, found = preview_run(command, cluster, user, node_offer(state, cluster))
        if made is None:
            return CheckJobOut(faults=[FaultOut.model_validate(fault) for fault in found])
        script, submission = made.script or "", made
    else:
        assert check_request.submit is not None
        submission = with_secrets(with_environment(with_stage(check_request.submit.model_copy(update=pinned))))
    found = submission_faults(submission, cluster, user, node_offer(state, cluster))
    found += await secret_faults(state, cluster, submission, user)
    if found:
        return CheckJobOut(faults=[FaultOut.model_validate(fault) for fault in found], script=script)
    if stale := state.live.snapshot(name).stale:  # sbatch would try for most of a minute
        raise Unreachable(
            f"Slurm does not answer: {stale}", hint="Headway's own checks passed; sbatch --test-only was not run"
        )
    test_only = {"args": ["--test-only", *submission.args], "chdir": "", "bundle": "", "env": _EPOCH}
    try:
        with command_slot(state, who):
            done = await state.backend.jobs.submit(cluster, submission.model_copy(update=test_only), user)
    except Refused as error:
        if words := explain_unavailable(error.message, submission, cluster, state.live.snapshot(name).nodes):
            return CheckJobOut(waits=words, script=script)
        return CheckJobOut(faults=[FaultOut.model_validate(sbatch_fault(error.message, error.hint))], script=script)
    at, nodes, partition = parse_test_only(done.message, state.clock())
    return CheckJobOut(starts_at=at, nodes=nodes, partition=partition, script=script)


async def _pinned(state: AppState, cluster: Cluster, request: SubmitIn | RunIn, user: str) -> dict[str, Any]:
    """Returns the versions of the datasets and the environment that the request names without one. A command that names
    neither an environment nor a container gets the default."""
    pinned: dict[str, Any] = {"stage_in": await pin_versions(state, cluster, request.stage_in)}
    if isinstance(request, RunIn):
        pinned["environment"], pinned["container"] = await runtime_of_command(state, cluster, request, user)
    else:
        pinned["environment"] = await pin_environment(state, cluster, request.environment)
    return pinned


def new_folder_suffix(who: Principal) -> str:
    """Returns a suffix that makes a job folder's name unique and sortable by time. It is the same for the same
    idempotency key."""
    at, tail = (
        (who.first_sent_at, who.idempotency_key[:4]) if who.idempotency_key else (time.time(), random.token_hex(2))
    )
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(at))}-{tail}"


def node_offer(state: AppState, cluster: Cluster) -> NodeCapacity:
    """Returns the capacity of the cluster's nodes according to the last reading; computed once per reading."""
    snapshot = state.live.snapshot(cluster.name)
    known: tuple[Cluster, NodeCapacity] | None = snapshot.derived.get("offer")
    if known is None or known[0] is not cluster:
        known = snapshot.derived["offer"] = cluster, largest_node(cluster, snapshot.nodes)
    return known[1]


async def submit_and_record(
    state: AppState, who: Principal, cluster: Cluster, prepared: PreparedJob, user: str, kind: str, **links: Any
) -> SubmitOut:
    """Runs sbatch and records the job. `links` may have `parent`, the job that this one repeats."""
    await require_secrets(state, cluster, prepared.request, user)
    with command_slot(state, who):
        answer = await state.backend.jobs.submit(
            cluster, prepared.request, user, prepared.stage, tag=who.idempotency_key
        )
    await record_submission(state, who, cluster, prepared, user, answer, kind, **links)
    return answer


async def record_submission(
    state: AppState,
    who: Principal,
    cluster: Cluster,
    prepared: PreparedJob,
    user: str,
    answer: SubmitOut,
    kind: str,
    **links: Any,
) -> None:
    """Stores the origin of a job that sbatch has just accepted. `links` may have parent, pipeline and step.

    Raises Unanswered if it cannot be stored: the job exists, so the request must not be sent again."""
    since = who.first_sent_at if who.idempotency_key else state.clock()

    async def write() -> None:
        versions = await _dataset_versions(state, cluster, prepared)
        environments = used_environments(
            lineage.submitted_texts(prepared), await state.store.environments.versions(cluster.name)
        )
        summary = {"job": answer.job_id, "user": user, "script": prepared.request.script_name}
        if secrets := requested_secrets(prepared.request):
            summary["secrets"] = secrets
        if not answer.job_id:
            return await write_audit_line(state, who, kind, cluster.name, **summary)
        return await state.store.jobs.record(
            cluster.name,
            answer.job_id,
            person=who.person,
            user=user,
            kind=kind,
            request=lineage.stored_request(prepared),
            facts=lineage.lineage_facts(prepared, cluster, versions, environments),
            datasets=[(version.name, version.number) for version in versions],
            environments=[(version.name, version.number) for version in environments],
            audit=summary,
            address=who.address,
            **links,
        )

    for last in (False, True):
        try:
            # An earlier server process, or a first try whose response came too late, may have recorded it already.
            may_be_recorded = who.idempotency_key or last
            if not (may_be_recorded and await _is_recorded(state, cluster, answer.job_id, who, user, since)):
                await write()
            break
        except StoreUnavailable as away:
            if last:
                job = f"job {answer.job_id}" if answer.job_id else "the job"
                raise Unanswered(
                    f"{job} was submitted to {cluster.name}, but its lineage could not be recorded: {away.message}",
                    hint=f"do not submit it again: headway queue {cluster.name} lists it",
                ) from away
            await asyncio.sleep(RECORD_RETRY_S)
    state.live.request_refresh(cluster.name, (answer.job_id,) if answer.job_id else ())


async def _is_recorded(state: AppState, cluster: Cluster, job_id: int, who: Principal, user: str, since: float) -> bool:
    """Returns whether a job of that number was recorded for this person since then. (Slurm's numbers can start again at
    1.)"""
    record = await state.store.jobs.get(cluster.name, job_id, user)
    return record is not None and record.person == who.person and record.at >= since


async def _dataset_versions(state: AppState, cluster: Cluster, prepared: PreparedJob) -> list[DatasetVersion]:
    """Returns the dataset versions that the job names."""
    if not any(dataset.versioned for dataset in cluster.storage.datasets):
        return []
    return lineage.used_versions(prepared, await state.store.datasets.versions(cluster.name))
