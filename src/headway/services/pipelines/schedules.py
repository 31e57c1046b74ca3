"""Pipelines that start by themselves: by the clock, and by new versions of a dataset. The server's rounds start them in the name
of the person who scheduled them."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import structlog

from headway.domain.access.credential_redaction import mask_environment
from headway.domain.dataset import DatasetVersion
from headway.domain.slurm.job_states import ENDED
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError, NotFound, Refused, TooManySubmits, Unreachable
from headway.jobs.pipelines.cron import parse_cron
from headway.jobs.pipelines.pipeline_file import Pipeline, read_pipeline, stored_pipeline
from headway.jobs.pipelines.pipeline_steps import latest_jobs
from headway.schemas.submission.pipelines import PipelineIn, PipelineScheduleOut
from headway.services.access.audit import write_audit_line
from headway.services.access.ownership_rights import authorize_as_owner, cluster_to_work_on
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.jobs.tagged_submission import TAG_KEPT_S, absent_person
from headway.services.pipelines.pipelines import check_pipeline, start_pipeline
from headway.store.jobs.pipeline_schedules import PipelineScheduleRow, schedule_id

TRIGGER = "HEADWAY_TRIGGER"  # variable of the steps: schedule, or NAME@VERSION of the dataset

log = structlog.get_logger("headway.services.pipelines")


async def schedule_pipeline(state: AppState, who: Principal, name: str, request: PipelineIn) -> PipelineScheduleOut:
    """Stores a pipeline that starts by its `schedule` and `on`, in place of an earlier one of this name. Raises InvalidSpec,
    and Refused with all faults of its steps."""
    user = who.user_to_act_as(request.user)
    cluster = await cluster_to_work_on(state, name, who)
    pipeline = read_pipeline(request.document)
    if pipeline.schedule is None and pipeline.on is None:
        raise Refused(
            f"pipeline {pipeline.name} has neither schedule nor on", hint='for example schedule: "0 3 * * mon"'
        )
    _require_no_secrets(pipeline)
    await check_pipeline(state, cluster, pipeline, user)
    now, dataset = state.clock(), pipeline.on.dataset if pipeline.on else ""
    newest = await _newest(state, name, dataset)
    row = PipelineScheduleRow(
        schedule_id(name, user, pipeline.name), name, pipeline.name, who.person, user, now,
        {
            "document": pipeline.model_dump(mode="json", exclude={"defaults"}),
            "bundle": request.bundle,
            "git": request.git.model_dump() if request.git else None,
        },
        next_at=_next_time(pipeline, now), dataset=dataset, seen=newest.number if newest else 0,
        why=f"dataset {dataset} has no version yet" if dataset and newest is None else "",
    )  # fmt: skip
    await state.store.pipeline_schedules.put(row)
    await write_audit_line(state, who, "pipeline-schedule", name, pipeline=pipeline.name, user=user)
    return schedule_out(await state.store.pipeline_schedules.get(name, row.id))


def _require_no_secrets(pipeline: Pipeline) -> None:
    """Raises Refused for a variable that looks like a secret: a schedule is stored, and secret values are not."""
    for step_name, step in pipeline.steps.items():
        masked = mask_environment(step.env)
        for variable in (name for name, value in step.env.items() if masked[name] != value):
            raise Refused(
                f"steps.{step_name}.env.{variable} looks like a secret",
                hint=f"headway secret set {variable.lower()}, and secrets: [{variable.lower()}] in the file",
            )


async def list_schedules(state: AppState, name: str) -> list[PipelineScheduleOut]:
    """Returns the scheduled pipelines of a cluster. Raises NotFound."""
    await state.clusters.row(name)
    return [schedule_out(row) for row in await state.store.pipeline_schedules.of_cluster(name)]


async def unschedule(state: AppState, who: Principal, name: str, schedule: str) -> PipelineScheduleOut:
    """Deletes a schedule; pipelines that it has started go on. Raises NotFound, Conflict for a name that several others use, and
    NotAllowed for another person's."""
    cluster = await cluster_to_work_on(state, name, who)
    row = await state.store.pipeline_schedules.get(name, schedule, user=who.user)
    await authorize_as_owner(state, cluster, who, row, f"unschedule {row.name}")
    await state.store.pipeline_schedules.delete(row.id)
    await write_audit_line(state, who, "pipeline-unschedule", name, pipeline=row.name, of=row.user)
    return schedule_out(row)


def schedule_out(row: PipelineScheduleRow) -> PipelineScheduleOut:
    """Returns the answer about a schedule."""
    return PipelineScheduleOut(
        id=row.id,
        cluster=row.cluster,
        name=row.name,
        person=row.person,
        user=row.user,
        created_at=row.at,
        schedule=row.document["document"].get("schedule") or "",
        next_at=row.next_at,
        dataset=row.dataset,
        last=row.last,
        why=row.why,
    )


async def advance_schedule(state: AppState, row: PipelineScheduleRow) -> None:
    """Starts the pipeline if its time has come, or its dataset has a new version. A start that was interrupted is repeated with
    the same key, so that no step is submitted twice. While the last pipeline runs, a time is left out, and a version waits.
    Times that passed while no server ran start it once. A schedule that was replaced meanwhile stays as it is."""
    now, schedules = state.clock(), state.store.pipeline_schedules
    newest = await _newest(state, row.cluster, row.dataset)
    done: dict[str, Any]
    if row.next_at is not None and row.next_at <= now:
        trigger, since = "schedule", row.next_at
        done = {"next_at": _next_time(stored_pipeline(row.document["document"]), now)}
    elif newest is not None and newest.number > row.seen:
        trigger, since, done = newest.label, newest.at, {"seen": newest.number}
    else:
        return
    try:
        if await _is_running(state, row):
            if trigger == "schedule":
                await schedules.change(row, why=f"{row.last} still ran", **done)
            return
        row = await _begun(state, row, f"{row.id}-{trigger}-{since:.0f}-{_tries(row)}")
        pipeline = await _start(state, row, trigger, since)
        if not await schedules.change(row, last=pipeline, why="", **done):
            await schedules.set_last(row.id, pipeline)
    except (TooManySubmits, Unreachable) as error:  # tried again in the next round
        if error.settled:  # the steps before were cancelled, and the head would answer with them again
            kept = {**row.document, "tries": _tries(row) + 1}
            await schedules.change(row, why=error.message, document=kept)
        elif row.why != error.message:
            await schedules.change(row, why=error.message)
    except HeadwayError as error:
        log.warning("a scheduled pipeline did not start", schedule=row.id, error=error.message)
        await schedules.change(row, why=error.message, **done)


async def _begun(state: AppState, row: PipelineScheduleRow, key: str) -> PipelineScheduleRow:
    """Returns the schedule with the start of this key, stored as begun before its first step is submitted. Raises Refused for one
    that began so long ago that the head may have forgotten its steps: it would submit them twice."""
    began = row.document.get("began", {})
    if began.get("key") != key:
        row = replace(row, document={**row.document, "began": {"key": key, "at": state.clock()}})
        await state.store.pipeline_schedules.change(row, document=row.document)
    elif state.clock() - began["at"] > TAG_KEPT_S:
        raise Refused("its start was interrupted more than a day ago; some of its steps may have run")
    return row


async def _start(state: AppState, row: PipelineScheduleRow, trigger: str, since: float) -> str:
    """Returns the id of the pipeline that was started. `since`: when its trigger was (Unix seconds)."""
    _, cluster = await state.clusters.get(row.cluster)
    who = await absent_person(state, cluster, row.person)
    document = dict(row.document["document"])
    document["steps"] = {
        name: {**step, "env": {**step.get("env", {}), TRIGGER: trigger}} for name, step in document["steps"].items()
    }
    request = PipelineIn(
        document=document, bundle=row.document["bundle"], git=row.document["git"],
        user="" if row.user == who.user else row.user,
    )  # fmt: skip
    started = await start_pipeline(
        state,
        replace(who, idempotency_key=row.document["began"]["key"], first_sent_at=since),
        row.cluster,
        request,
    )
    return started.id


def _tries(row: PipelineScheduleRow) -> int:
    """Returns how many starts have failed after some of their steps were submitted."""
    return int(row.document.get("tries", 0))


async def _is_running(state: AppState, row: PipelineScheduleRow) -> bool:
    """Returns whether a step of the pipeline that was started last has not ended. Raises Unreachable if it is not known now."""
    made = await state.store.jobs.of_pipeline(row.last) if row.last else ()
    if not made:
        return False
    _, cluster = await state.clusters.get(row.cluster)
    snapshot = await state.readings.snapshot(cluster)
    if snapshot.stale:
        raise Unreachable(snapshot.stale)
    numbers = latest_jobs([(record.step, record.job_id) for record in made]).values()
    shown = [snapshot.by_id[number] for number in numbers if number in snapshot.by_id]
    if any(map(_goes_on, shown)):
        return True
    ended = {job.id for job in (*shown, *await state.readings.history(cluster)) if job.state in ENDED}
    for number in numbers:
        if number not in ended and number not in snapshot.by_id:
            with contextlib.suppress(NotFound):
                if _goes_on(await state.readings.job(cluster, number)):
                    return True
    return False


def _goes_on(job: JobState) -> bool:
    """Returns whether a job runs or may still run."""
    return job.state not in ENDED and job.reason != "DependencyNeverSatisfied"


def _next_time(pipeline: Pipeline, now: float) -> float | None:
    return parse_cron(pipeline.schedule).next_after(now) if pipeline.schedule else None


async def _newest(state: AppState, cluster: str, dataset: str) -> DatasetVersion | None:
    """Returns the newest version of a dataset; None if there is none."""
    return await state.store.datasets.latest(cluster, dataset) if dataset else None
