"""The schedule of a cluster: expected ends, planned starts and reservations."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, State
from headway.schemas.base import API_PREFIX
from headway.schemas.nodes.schedule import ScheduleOut
from headway.services.queue.schedule import get_schedule

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}", tags=["jobs"])


@router.get("/schedule")
async def show_schedule(name: str, state: State, _: Anyone) -> ScheduleOut:
    """Returns which jobs run on which nodes until when, the starts that Slurm's scheduler has planned, and the
    reservations. Headway plans nothing itself."""
    return await get_schedule(state, name)
