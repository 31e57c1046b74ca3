"""Pipelines: each step is a job with Slurm dependencies, so a pipeline continues without this server."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from headway.domain.access import credential_redaction
from headway.domain.cluster import Cluster
from headway.domain.environment import parse_label
from headway.domain.slurm.job_states import ENDED, FAILED
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError, NotFound, Refused
from headway.jobs.pipelines.pipeline_file import Pipeline, read_pipeline, stored_pipeline
from headway.jobs.pipelines.pipeline_steps import latest_jobs, pipeline_out, shown_state, step_run, steps_to_retry
from headway.jobs.pipelines.step_plan import plan_text
from headway.jobs.submission.job_folders import user_folders
from headway.jobs.submission.prepare_job import prepare_run
from headway.schemas.submission.job_field_types import GitIn
from headway.schemas.submission.pipelines import PipelineIn, PipelineOut, PipelineRetryIn
from headway.services.access.audit import write_audit_line
from headway.services.access.concurrency_limits import command_slot
from headway.services.access.ownership_rights import authorize_as_owner, cluster_to_work_on
from headway.services.access.role_rights import Principal
from headway.services.access.submit_rate import limit_submissions
from headway.services.app_state import AppState
from headway.services.job_secrets.requested import require_secrets
from headway.services.jobs.submission import new_folder_suffix, node_offer, record_submission
from headway.services.pipelines.step_results import StepJobs, all_step_results, forget_results, step_results
from headway.services.storage.declared_environments import runtime_of_command
from headway.services.storage.environments import require_present
from headway.store import PipelineRow

_ENDED = ENDED | {"CACHED", "SKIPPED"}  # states of steps


async def start_pipeline(state: AppState, who: Principal, name: str, request: PipelineIn) -> PipelineOut:
    """Submits every step. If one is refused, the steps submitted before it are cancelled."""
    user = who.user_to_act_as(request.user)
    cluster = await cluster_to_work_on(state, name, who)
    pipeline, warning = await _pinned(state, cluster, read_pipeline(request.document), user)
    work = user_folders(cluster, user).job_folder(pipeline.name, new_folder_suffix(who))
    await _check(state, cluster, pipeline, pipeline.steps_in_order(), user, work)
    limit_submissions(state.submit_buckets, who, state.clock(), len(pipeline.steps))
    stored = {
        "document": _masked(pipeline),
        "bundle": request.bundle,
        "git": request.git.model_dump() if request.git else None,
    }
    with command_slot(state, who):
        row = await state.store.pipelines.save(
            name, pipeline.name, person=who.person, user=user, workdir=work, document=stored, key=who.idempotency_key
        )
        await write_audit_line(state, who, "pipeline", name, pipeline=row.id, user=user)
        made = await _submit(state, who, cluster, row, pipeline, pipeline.steps_in_order(), {})
    return (await _out(state, cluster, row, made)).model_copy(update={"warning": warning})


async def check_pipeline(state: AppState, cluster: Cluster, pipeline: Pipeline, user: str) -> None:
    """Checks all steps of a pipeline that is started later. Raises Refused with all faults."""
    pinned, _ = await _pinned(state, cluster, pipeline, user)
    work = user_folders(cluster, user).job_folder(pipeline.name, "check")
    await _check(state, cluster, pinned, pinned.steps_in_order(), user, work)


async def _pinned(state: AppState, cluster: Cluster, pipeline: Pipeline, user: str) -> tuple[Pipeline, str]:
    """Returns the pipeline with the versions of its steps' environments, and with default containers, so that a retry uses
    the same ones; and a warning about the first step whose PyTorch can't use its GPUs, "" for none."""
    steps, warning = {}, ""
    for name, step in pipeline.steps.items():
        found = await runtime_of_command(state, cluster, step, user)
        steps[name] = step.model_copy(update={"environment": found.environment, "container": found.container})
        warning = warning or (f"step {name}: {found.warning}" if found.warning else "")
    return pipeline.model_copy(update={"steps": steps}), warning


async def describe_pipelines(state: AppState, name: str, rows: Sequence[PipelineRow]) -> list[PipelineOut]:
    """Returns these stored pipelines with the present state of their jobs."""
    _, cluster = await state.clusters.get(name)
    ended: dict[int, JobState] = {}
    if rows:
        with contextlib.suppress(HeadwayError):  # jobs of the last days, in one shared request
            ended = {job.id: job for job in await state.readings.history(cluster)}
    made = [await _submitted(state, row) for row in rows]
    asked = [await _jobs_of_steps(state, cluster, row, one, ended) for row, one in zip(rows, made, strict=True)]
    results = await step_results(state, cluster, asked)
    return [
        pipeline_out(one.row, one.pipeline, of_one, one.jobs, found)
        for one, of_one, found in zip(asked, made, results, strict=True)
    ]


async def get_pipeline(state: AppState, name: str, pipeline: str) -> PipelineOut:
    """Returns the pipeline with this id, or the latest with this name. Raises NotFound."""
    _, cluster = await state.clusters.get(name)
    row = await state.store.pipelines.get(name, pipeline)
    return await _out(state, cluster, row, await _submitted(state, row))


async def retry_pipeline(
    state: AppState, who: Principal, name: str, pipeline: str, request: PipelineRetryIn
) -> PipelineOut:
    """Submits the failed steps (or the named ones) and all that depend on them again, in the same folder."""
    cluster = await cluster_to_work_on(state, name, who)
    row = await state.store.pipelines.get(name, pipeline)
    await authorize_as_owner(state, cluster, who, row, f"retry {row.name}")
    plan = _with_env(stored_pipeline(row.document["document"]), request.env)
    unknown = [step for step in request.steps if step not in plan.steps]
    if unknown:
        raise NotFound(f"{row.name} has no step {', '.join(unknown)}", hint=f"it has {', '.join(plan.steps)}")
    records = await state.store.jobs.of_pipeline(row.id)
    # If the server was killed during this request, some of its steps may be recorded already: leave them out.
    before = [
        (record.step, record.job_id) for record in records if not who.idempotency_key or record.at < who.first_sent_at
    ]
    now = latest_jobs(before)
    jobs = await _jobs(state, cluster, now.values())
    results = await all_step_results(state, cluster, StepJobs(row, plan, now, jobs))
    states = {}
    for step, number in now.items():
        result = results.get(step)
        states[step] = shown_state(jobs.get(number), result if result and result.job == number else None)
    again = steps_to_retry(plan, states, request.steps)
    if not again:
        raise Refused(f"no step of {row.name} has failed", hint=f"headway pipeline show {row.name}, or --step NAME")
    _check_needs(plan, states, again)
    used = [plan.steps[step].environment for step in again]
    await require_present(state, name, [parse_label(label) for label in used if "@" in label])
    await _check(state, cluster, plan, again, row.user, row.workdir)
    limit_submissions(state.submit_buckets, who, state.clock(), len(again))
    with command_slot(state, who):
        for step in again:
            if states.get(step, "COMPLETED") not in _ENDED:
                with contextlib.suppress(HeadwayError):  # it may have ended just now
                    await state.backend.jobs.cancel(cluster, str(now[step]), row.user, as_operator=False)
        await write_audit_line(state, who, "pipeline-retry", name, pipeline=row.id, steps=again)
        waits = {step: number for step, number in now.items() if step not in again and states[step] not in _ENDED}
        earlier = {step: [number for of, number in before if of == step] for step in again}
        if plan.passes_outputs:
            with contextlib.suppress(
                HeadwayError
            ):  # the plan names the earlier jobs, so that their results do not count
                await forget_results(state, cluster, row, earlier)
        made = await _submit(state, who, cluster, row, plan, again, waits, fresh=request.steps, earlier=earlier)
    return await _out(state, cluster, row, [*before, *made])


def _check_needs(plan: Pipeline, states: Mapping[str, str], again: Collection[str]) -> None:
    """Raises Refused if a step would wait for outputs of a step that has failed."""
    for step in again if plan.passes_outputs else ():
        for need in plan.steps[step].needs:
            if need not in again and states.get(need) in FAILED:
                raise Refused(f"step {step} needs {need}, which has failed", hint=f"name it too: --step {need}")


async def _submit(
    state: AppState,
    who: Principal,
    cluster: Cluster,
    row: PipelineRow,
    pipeline: Pipeline,
    steps: Sequence[str],
    jobs: Mapping[str, int],
    *,
    fresh: Sequence[str] = (),
    earlier: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> list[tuple[str, int]]:
    """Returns (step, job id) of each submitted step, in order. `jobs` are ids of steps that already exist. `fresh`: cached
    steps that run again regardless. `earlier`: jobs of steps whose results no longer count. If one fails, all are cancelled."""
    plan = plan_text(pipeline, user_folders(cluster, row.user), row.workdir, fresh, earlier)
    known = dict(jobs)
    git = row.document.get("git")
    made: list[tuple[str, int]] = []
    for step in steps:
        bundle, commit = str(row.document["bundle"]), GitIn.model_validate(git) if git else None
        try:
            run = step_run(pipeline, step, known, bundle=bundle, git=commit)
            offer = node_offer(state, cluster)
            prepared = prepare_run(run, cluster, row.user, "", work=row.workdir, plan=plan, offer=offer)
            done = await state.backend.jobs.submit(
                cluster, prepared.request, row.user, prepared.stage, tag=_tag(who, row, step)
            )
            known[step] = done.job_id
            made.append((step, done.job_id))
            await record_submission(state, who, cluster, prepared, row.user, done, "run", pipeline=row.id, step=step)
        except HeadwayError as error:
            for _, number in made:
                with contextlib.suppress(HeadwayError):
                    await state.backend.jobs.cancel(cluster, str(number), row.user, as_operator=False)
            error.message = f"step {step}: {error.message}"
            error.settled = bool(made)  # on a resend the head would answer with the cancelled jobs
            raise
    return made


def _tag(who: Principal, row: PipelineRow, step: str) -> str:
    """Returns the tag of the submission of one step, by which the head recognises a resent one; "" without an
    idempotency key."""
    return (
        hashlib.sha256(f"{who.idempotency_key}\n{row.id}\n{step}".encode()).hexdigest() if who.idempotency_key else ""
    )


async def _check(
    state: AppState, cluster: Cluster, pipeline: Pipeline, steps: Sequence[str], user: str, work: str
) -> None:
    """Checks these steps before the first is submitted. Raises Refused with all faults."""
    faults = []
    for name in steps:
        try:
            step = step_run(pipeline, name, {}, bundle="", git=None)
            prepared = prepare_run(step, cluster, user, "", work=work, offer=node_offer(state, cluster))
            await require_secrets(state, cluster, prepared.request, user)
        except HeadwayError as error:
            faults.append(f"step {name}: {error.message}")
    if faults:
        raise Refused("\n".join(faults))


def _masked(pipeline: Pipeline) -> dict[str, Any]:
    """Returns the pipeline file without the values of secrets."""
    document = pipeline.model_dump(mode="json", exclude={"defaults"})
    for step in document["steps"].values():
        step["env"] = credential_redaction.mask_environment(step["env"])
    return document


def _with_env(pipeline: Pipeline, env: Mapping[str, str]) -> Pipeline:
    """Returns the pipeline with its secret values, which are not stored, from `env`. Raises Refused if one is missing."""
    lost: set[str] = set()
    for step in pipeline.steps.values():
        step.env = {name: env.get(name, value) for name, value in step.env.items()}
        lost.update(credential_redaction.lost_secrets(step.env))
    if lost:
        raise Refused(
            f"the value of {', '.join(sorted(lost))} is a secret and was not stored",
            hint=" ".join(f"--env {name}" for name in sorted(lost)) + " takes it from your environment",
        )
    return pipeline


async def _submitted(state: AppState, row: PipelineRow) -> list[tuple[str, int]]:
    """Returns (step, job id) of all submissions of a pipeline, in order."""
    return [(record.step, record.job_id) for record in await state.store.jobs.of_pipeline(row.id)]


async def _out(state: AppState, cluster: Cluster, row: PipelineRow, made: Sequence[tuple[str, int]]) -> PipelineOut:
    """Returns a pipeline's response. `made` are (step, job id) of all its submissions, in order."""
    one = await _jobs_of_steps(state, cluster, row, made)
    (results,) = await step_results(state, cluster, [one])
    return pipeline_out(row, one.pipeline, made, one.jobs, results)


async def _jobs_of_steps(
    state: AppState,
    cluster: Cluster,
    row: PipelineRow,
    made: Sequence[tuple[str, int]],
    ended: Mapping[int, JobState] = MappingProxyType({}),
) -> StepJobs:
    now = latest_jobs(made)
    jobs = await _jobs(state, cluster, now.values(), ended)
    return StepJobs(row, stored_pipeline(row.document["document"]), now, jobs)


async def _jobs(
    state: AppState, cluster: Cluster, numbers: Collection[int], ended: Mapping[int, JobState] = MappingProxyType({})
) -> dict[int, JobState]:
    """Returns these jobs by id: from the snapshot, from `ended`, otherwise one by one from Slurm."""
    found = dict(ended) | (await state.readings.snapshot(cluster)).by_id
    for number in numbers:
        if number not in found:
            with contextlib.suppress(HeadwayError):
                found[number] = await state.readings.job(cluster, number)
    return {number: found[number] for number in numbers if number in found}
