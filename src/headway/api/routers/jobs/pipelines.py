"""Pipelines: steps that depend on each other, each of them a job."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, Member, State
from headway.api.http.pagination import ANY, DEEP, Page, Text, Words, contains, fits
from headway.schemas.base import API_PREFIX
from headway.schemas.submission.pipelines import PipelineIn, PipelineOut, PipelineRetryIn, PipelineScheduleOut
from headway.services.pipelines import pipelines as service
from headway.services.pipelines import schedules

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}/pipelines", tags=["jobs"])
schedules_router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}/pipeline-schedules", tags=["jobs"])


@router.post("", status_code=201, name="start")
async def start_pipeline(name: str, request: PipelineIn, state: State, who: Member) -> PipelineOut:
    """Submits every step. If one is refused, the steps before it are cancelled: all or nothing."""
    return await service.start_pipeline(state, who, name, request)


@router.get("")
async def list_pipelines(
    name: str, state: State, _who: Anyone, page: Page, person: Words = ANY, q: Text = ""
) -> list[PipelineOut]:
    """Returns the pipelines, the latest first."""
    await state.clusters.row(name)
    rows = await state.store.pipelines.recent(name, limit=DEEP)
    found = [row for row in rows if fits(row.person, person) and contains(q, row.name)]
    return await service.describe_pipelines(state, name, page.cut(found, lambda row: (row.at, row.id), newest=True))


@router.get("/{pipeline}")
async def get_pipeline(name: str, pipeline: str, state: State, _who: Anyone) -> PipelineOut:
    """Returns the pipeline with this id, or the latest with this name."""
    return await service.get_pipeline(state, name, pipeline)


@router.post("/{pipeline}/retry", status_code=201, name="retry")
async def retry_pipeline(name: str, pipeline: str, request: PipelineRetryIn, state: State, who: Member) -> PipelineOut:
    """Submits the failed steps (or the named ones) and all steps that depend on them again, in the same folder."""
    return await service.retry_pipeline(state, who, name, pipeline, request)


@schedules_router.post("", status_code=201, name="schedule")
async def schedule_pipeline(name: str, request: PipelineIn, state: State, who: Member) -> PipelineScheduleOut:
    """Starts the pipeline at the times of its `schedule`, and when the dataset of `on` has a new version."""
    return await schedules.schedule_pipeline(state, who, name, request)


@schedules_router.get("", name="list_schedules")
async def list_schedules(name: str, state: State, _who: Anyone) -> list[PipelineScheduleOut]:
    """Returns the scheduled pipelines."""
    return await schedules.list_schedules(state, name)


@schedules_router.delete("/{schedule}", name="unschedule")
async def unschedule(name: str, schedule: str, state: State, who: Member) -> PipelineScheduleOut:
    """Deletes a schedule, by its id or the pipeline's name. Pipelines that it has started go on."""
    return await schedules.unschedule(state, who, name, schedule)


router.routes.extend(schedules_router.routes)
