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
from headway.jobs.submission.software_environment import name_environments, used_environments, with_environment
from headway.jobs.submission.stage_in import with_stage
from headway.jobs.submission.submission_check import (
    explain_unavailable,
    parse_test_only,
    sbatch_fault,
    submission_faults,
)
from headway.schemas.base import FaultOut
from headway.schemas.submission.run_request import RunIn, RunOut
from headway.schemas.submission.submission_check import CheckJobIn, CheckJobOut
from headway.schemas.submission.submit_request import SubmitIn, SubmitOut
from headway.services.access.audit import write_audit_line
from headway.services.access.concurrency_limits import command_slot
from headway.services.access.ownership_rights import cluster_to_work_on
from headway.services.access.role_rights import Principal
from headway.services.access.submit_rate import limit_submissions
from headway.services.app_state import AppState
from headway.services.job_secrets.requested import require_secrets, secret_faults
from headway.services.jobs.scripts.lint import lint_submission
from headway.services.storage.datasets import pin_versions
from headway.services.storage.declared_environments import runtime_of_command
from headway.services.storage.environments import pin_environment
from headway.store import StoreUnavailable

RECORD_RETRY_S = 1.0  # pause before the second try to record a submitted job
_EPOCH = {"SLURM_TIME_FORMAT": "%s"}  # sbatch prints times as unix seconds


async def submit_script(state: AppState, who: Principal, name: str, request: SubmitIn) -> SubmitOut:
    """Runs sbatch on the cluster as the person's user, and records the job."""
    user = who.user_to_act_as(request.user)
    cluster = await cluster_to_work_on(state, name, who)
    pinned, _ = await _pinned(state, cluster, request, user)
    request = request.model_copy(update=pinned)
    prepared = prepare_submit(request, cluster, user, new_folder_suffix(who))
    return await submit_and_record(state, who, cluster, prepared, user, "submit")


async def submit_command(state: AppState, who: Principal, name: str, request: RunIn) -> RunOut:
    """Makes a batch script from a command and submits it; with `dry_run` it only makes the script."""
    user = who.user_to_act_as(request.user)
    cluster = await cluster_to_work_on(state, name, who)
    pinned, warning = await _pinned(state, cluster, request, user)
    request = request.model_copy(update=pinned)
    prepared = prepare_run(request, cluster, user, new_folder_suffix(who), offer=node_offer(state, cluster))
    if request.dry_run:
        return run_out(prepared, name, user, warning=warning)
    done = await submit_and_record(state, who, cluster, prepared, user, "run")
    return run_out(prepared, name, user, done.job_id, done.message, warning)


async def check_submission(state: AppState, who: Principal, name: str, check_request: CheckJobIn) -> CheckJobOut:
    """Returns whether the job could be submitted, when and where it would start (sbatch --test-only), and what lint
    finds in a script. Submits nothing. Raises Unreachable while Slurm does not answer."""
    request = check_request.submit or check_request.run
    assert request is not None
    user = who.user_to_act_as(request.user)
    cluster = await cluster_to_work_on(state, name, who)
    checked = await _check(state, who, cluster, check_request, user)
    if check_request.submit is None:
        return checked
    findings = await lint_submission(state, cluster, check_request.submit, user, node_offer(state, cluster))
    return checked.model_copy(update={"findings": findings})


async def _check(
    state: AppState, who: Principal, cluster: Cluster, check_request: CheckJobIn, user: str
) -> CheckJobOut:
    request, name = check_request.submit or check_request.run, cluster.name
    assert request is not None
    pinned, warning = await _pinned(state, cluster, request, user)
    script = ""
    if check_request.run is not None:
        command = check_request.run.model_copy(update=pinned)
        made, found = preview_run(command, cluster, user, node_offer(state, cluster))
        if made is None:
            return CheckJobOut(faults=[FaultOut.model_validate(fault) for fault in found], warning=warning)
        script, submission = made.script or "", made
    else:
        assert check_request.submit is not None
        submission = with_secrets(with_environment(with_stage(check_request.submit.model_copy(update=pinned))))
    found = submission_faults(submission, cluster, user, node_offer(state, cluster))
    found += await secret_faults(state, cluster, submission, user)
    if found:
        return CheckJobOut(faults=[FaultOut.model_validate(fault) for fault in found], script=script, warning=warning)
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
            return CheckJobOut(waits=words, script=script, warning=warning)
        return CheckJobOut(faults=[FaultOut.model_validate(sbatch_fault(error.message, error.hint))], script=script)
    at, nodes, partition = parse_test_only(done.message, state.clock())
    return CheckJobOut(starts_at=at, nodes=nodes, partition=partition, script=script, warning=warning)


async def _pinned(
    state: AppState, cluster: Cluster, request: SubmitIn | RunIn, user: str
) -> tuple[dict[str, Any], str]:
    """Returns the versions of the datasets and the environment that the request names without one, and a warning, "" for
    none. A command that names neither an environment nor a container gets the default."""
    stage_in = await pin_versions(state, cluster, request.stage_in)
    if isinstance(request, RunIn):
        found = await runtime_of_command(state, cluster, request, user)
        fields = {"stage_in": stage_in, "environment": found.environment, "container": found.container}
        return fields, found.warning
    return {"stage_in": stage_in, "environment": await pin_environment(state, cluster, request.environment)}, ""


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
    limit_submissions(state.submit_buckets, who, state.clock())
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

    async def write(*, may_be_recorded: bool) -> None:
        versions = await _dataset_versions(state, cluster, prepared)
        texts = lineage.submitted_texts(prepared)
        environments = (
            used_environments(texts, await state.store.environments.versions(cluster.name))
            if name_environments(texts)
            else []
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
            unless_since=since if may_be_recorded else None,
            **links,
        )

    for last in (False, True):
        try:
            # An earlier server process, or a first try whose response came too late, may have recorded it already.
            await write(may_be_recorded=bool(who.idempotency_key) or last)
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


async def _dataset_versions(state: AppState, cluster: Cluster, prepared: PreparedJob) -> list[DatasetVersion]:
    """Returns the dataset versions that the job names."""
    if not any(dataset.versioned for dataset in cluster.storage.datasets):
        return []
    return lineage.used_versions(prepared, await state.store.datasets.versions(cluster.name))
