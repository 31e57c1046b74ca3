"""Batches: a program or a model computes a result for each row of a dataset."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, Member, State
from headway.api.http.pagination import ANY, DEEP, Page, Text, Words, contains, fits
from headway.schemas.base import API_PREFIX
from headway.schemas.submission.batches import BatchIn, BatchOut
from headway.services.batches import batches as service

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}/batches", tags=["jobs"])


@router.post("", status_code=201, name="start")
async def start_batch(name: str, request: BatchIn, state: State, who: Member) -> BatchOut:
    """Starts a batch. Its results become a version of the dataset `output`. With `dry_run` it returns the batch script."""
    return await service.start_batch(state, who, name, request)


@router.get("")
async def list_batches(
    name: str, state: State, _who: Anyone, page: Page, person: Words = ANY, q: Text = ""
) -> list[BatchOut]:
    """Returns the batches, the latest first."""
    await state.clusters.row(name)
    keys = await state.store.batches.keys(name, limit=DEEP)
    found = [key for key in keys if fits(key.person, person) and contains(q, key.name)]
    shown = page.cut(found, lambda key: (key.at, key.id), newest=True)
    return service.list_batches(await state.store.batches.of_ids(name, [key.id for key in shown]))


@router.get("/{batch}")
async def get_batch(name: str, batch: str, state: State, who: Anyone) -> BatchOut:
    """Returns the batch with this id, or the latest with this name."""
    return await service.get_batch(state, who, name, batch)


@router.post("/{batch}/stop", name="stop")
async def stop_batch(name: str, batch: str, state: State, who: Member) -> BatchOut:
    """Ends a batch. What is computed remains, for a retry."""
    return await service.stop_batch(state, who, name, batch)


@router.post("/{batch}/retry", name="retry")
async def retry_batch(name: str, batch: str, state: State, who: Member) -> BatchOut:
    """Continues a batch that has failed or was stopped: rows that are computed stay."""
    return await service.retry_batch(state, who, name, batch)
