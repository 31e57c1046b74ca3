"""Sweeps: trials of one command with different parameters, each of them a job."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, Member, State
from headway.api.http.pagination import ANY, DEEP, Page, Text, Words, contains, fits
from headway.schemas.base import API_PREFIX
from headway.schemas.submission.run_request import RunOut
from headway.schemas.submission.sweeps import SweepBestIn, SweepIn, SweepOut, TrialOut, TrialsIn
from headway.services.sweeps import sweeps as service

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}/sweeps", tags=["jobs"])


@router.post("", status_code=201, name="start")
async def start_sweep(name: str, request: SweepIn, state: State, who: Member) -> SweepOut:
    """Starts a sweep: the server submits its trials, at most `parallel` at once. With `dry_run` it returns the first trials and
    what all would cost."""
    return await service.start_sweep(state, who, name, request)


@router.get("")
async def list_sweeps(
    name: str, state: State, _who: Anyone, page: Page, person: Words = ANY, q: Text = ""
) -> list[SweepOut]:
    """Returns the sweeps, the latest first."""
    await state.clusters.row(name)
    rows = await state.store.sweeps.recent(name, limit=DEEP)
    found = [row for row in rows if fits(row.person, person) and contains(q, row.name)]
    return await service.list_sweeps(state, page.cut(found, lambda row: (row.at, row.id), newest=True))


@router.get("/{sweep}")
async def get_sweep(name: str, sweep: str, state: State, _who: Anyone) -> SweepOut:
    """Returns the sweep with this id, or the latest with this name."""
    return await service.get_sweep(state, name, sweep)


@router.post("/{sweep}/trials", status_code=201, name="add_trials")
async def add_trials(name: str, sweep: str, request: TrialsIn, state: State, who: Member) -> list[TrialOut]:
    """Adds trials with parameters that a program has chosen; for `method: manual`."""
    return await service.add_trials(state, who, name, sweep, request)


@router.post("/{sweep}/stop", name="stop")
async def stop_sweep(name: str, sweep: str, state: State, who: Member) -> SweepOut:
    """Begins no further trial, and cancels those that wait or run."""
    return await service.stop_sweep(state, who, name, sweep)


@router.post("/{sweep}/best", status_code=201, name="run_best")
async def run_best(name: str, sweep: str, request: SweepBestIn, state: State, who: Member) -> RunOut:
    """Submits the command of the best trial, or of another one, with other resources. With `dry_run` it returns the script."""
    return await service.run_best(state, who, name, sweep, request)
