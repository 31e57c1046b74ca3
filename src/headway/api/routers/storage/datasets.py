"""Datasets and their versions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BeforeValidator

from headway.api.auth.dependencies import Admin, Anyone, Operator, State
from headway.api.http.pagination import Page
from headway.api.http.path_numbers import MAX_PATH_NUMBER, require_digits
from headway.schemas.base import API_PREFIX
from headway.schemas.operations import OperationOut
from headway.schemas.storage.datasets import DatasetIn, DatasetName, DatasetOut, DatasetRemoveIn
from headway.services.storage import datasets as service

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}/datasets", tags=["datasets"])
VersionNumber = Annotated[int, BeforeValidator(require_digits), Path(ge=1, le=MAX_PATH_NUMBER)]


@router.get("")
async def list_datasets(name: str, state: State, _: Anyone, page: Page) -> list[DatasetOut]:
    """Returns every version of every dataset, by name and number."""
    return page.cut(await service.list_versions(state, name), lambda dataset: (dataset.name, dataset.version))


@router.post("", status_code=202, name="add")
async def add_dataset(name: str, body: DatasetIn, state: State, who: Admin) -> OperationOut:
    """Queues the creation of a version, from a folder of the server's machine or from an S3 bucket. The operation's
    `kept` names the path where it is mounted."""
    return await service.add_version(state, who, name, body)


@router.post("/{dataset}/{version}/verify", status_code=202, name="verify")
async def verify_dataset(
    name: str, dataset: DatasetName, version: VersionNumber, state: State, who: Operator
) -> OperationOut:
    """Queues a check that reads a version completely. If files are damaged, the operation fails and names them."""
    return await service.verify_version(state, who, name, dataset, version)


@router.post("/{dataset}/{version}/remove", status_code=202, name="remove")
async def remove_dataset(
    name: str, dataset: DatasetName, version: VersionNumber, body: DatasetRemoveIn, state: State, who: Admin
) -> OperationOut:
    """Queues the removal of a version. Refused with a conflict while the lineage of jobs names it, unless `force` is
    set."""
    return await service.remove_version(state, who, name, dataset, version, force=body.force)
