"""The schedule of a cluster: expected ends, planned starts and reservations."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header
from starlette.responses import Response

from headway.api.auth.dependencies import Anyone, State
from headway.api.http.compression import accepts_gzip
from headway.schemas.base import API_PREFIX
from headway.schemas.nodes.schedule import ScheduleOut
from headway.services.queue.schedule import schedule_json

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}", tags=["jobs"])


@router.get("/schedule", response_model=ScheduleOut)
async def show_schedule(name: str, state: State, _: Anyone, accept_encoding: Annotated[str, Header()] = "") -> Response:
    """Returns which jobs run on which nodes until when, the starts that Slurm's scheduler has planned, and the
    reservations. Headway plans nothing itself."""
    packed = accepts_gzip(accept_encoding)
    body = await schedule_json(state, name, compressed=packed)
    headers = {"content-encoding": "gzip", "vary": "accept-encoding"} if packed else {"vary": "accept-encoding"}
    return Response(body, media_type="application/json", headers=headers)
