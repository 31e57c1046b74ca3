"""Datasets with versions. Adding, reading again and removing are operations; a request writes their row."""

from __future__ import annotations

import secrets as random
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BeforeValidator

from headway.api.auth.dependencies import MAX_PATH_NUMBER, Admin, Anyone, Operator, State, require_digits
from headway.api.http.pagination import Page
from headway.domain.cluster import Cluster
from headway.domain.dataset import FOLDER, Version, in_the_way
from headway.errors import Conflict, NotFound, Refused
from headway.schemas.clusters import OperationOut
from headway.schemas.datasets import DatasetIn, DatasetName, DatasetOut, DatasetRemoveIn, S3In
from headway.services.authorization import write_audit_line
from headway.services.context import AppState
from headway.services.identity import Principal
from headway.services.mappers import operation_out
from headway.services.path_policy import source_of
from headway.services.planning import queued

router = APIRouter(prefix="/clusters/{name}/datasets", tags=["datasets"])
Number = Annotated[int, BeforeValidator(require_digits), Path(ge=1, le=MAX_PATH_NUMBER)]


@router.get("")
async def datasets(name: str, state: State, _: Anyone, page: Page) -> list[DatasetOut]:
    """Every version there is, by name and number."""
    return page.cut(await datasets_of(name, state), lambda one: (one.name, one.version))


async def datasets_of(name: str, state: AppState) -> list[DatasetOut]:
    await state.row(name)
    jobs = await state.store.job_counts(name)
    return [_out(one, jobs.get((one.name, one.number), 0)) for one in await state.store.versions(name)]


@router.post("", status_code=202)
async def add(name: str, ask: DatasetIn, state: State, who: Admin) -> OperationOut:
    """Queues another version, of a folder of the server's machine or of an S3 bucket. The operation's `kept` names where it
    is mounted."""
    _, cluster = await state.cluster(name)
    can_hold(cluster, ask.name)
    if not ask.source.startswith("s3://"):
        if ask.s3 is not None:
            raise Refused("s3 is for buckets", hint="source: s3://BUCKET/PREFIX")
        return await _queue(state, who, name, "add", {"name": ask.name, "source": str(source_of(state, ask.source))})
    access, ref = ask.s3 or S3In(), random.token_hex(8)
    params = {"name": ask.name, "source": ask.source.rstrip("/"), "endpoint_url": access.endpoint_url, "ref": ref}
    return await _queue(state, who, name, "add", params, access.model_dump_json())


@router.post("/{dataset}/{version}/verify", status_code=202)
async def verify(name: str, dataset: DatasetName, version: Number, state: State, who: Operator) -> OperationOut:
    """Queues reading all of a version again. The operation fails, with the files' names, when one is damaged."""
    one = await _version(state, name, dataset, version)
    return await _queue(state, who, name, "verify", {"name": one.name, "version": one.number})


@router.post("/{dataset}/{version}/remove", status_code=202)
async def remove(
    name: str, dataset: DatasetName, version: Number, ask: DatasetRemoveIn, state: State, who: Admin
) -> OperationOut:
    """Queues taking a version away. Conflict while jobs' lineage names it, unless `force`."""
    one = await _version(state, name, dataset, version, gone=True)  # a removal that failed is done to its end
    if one.removed_at is None and not ask.force:
        await must_be_unused(state, one)
    params = {"name": one.name, "version": one.number, "force": ask.force}
    return await _queue(state, who, name, "remove", params)


async def pinned(state: AppState, cluster: Cluster, stage_in: Sequence[str]) -> list[str]:
    """NAME@VERSION of each: of a dataset without a version, its latest. Raises NotFound."""
    if not stage_in:
        return []
    there = await state.store.versions(cluster.name)
    found = []
    for one in stage_in:
        name, _, number = one.partition("@")
        mine = [version for version in there if version.name == name and number in ("", str(version.number))]
        if not mine:
            raise NotFound(
                f"{cluster.name} has no dataset {one}", hint=f"headway dataset list --cluster {cluster.name}"
            )
        found.append(mine[-1].label)
    return found


def can_hold(cluster: Cluster, name: str) -> None:
    """Raises Refused where the cluster can't have a dataset of this name with versions."""
    field = in_the_way(cluster.storage, name)
    if field:
        raise Refused(
            f"{FOLDER}/{name} is taken on {cluster.name}: {field} of its file", hint="give the dataset another name"
        )


async def must_be_unused(state: AppState, one: Version) -> None:
    """Raises Conflict while jobs' lineage names the version."""
    count, latest = await state.store.jobs_of_version(one.cluster, one.name, one.number)
    if count:
        words = ", ".join(map(str, latest)) + (f" and {count - len(latest)} more" if count > len(latest) else "")
        raise Conflict(
            f"{one.label} is in the lineage of job{'s' * (count != 1)} {words}: "
            f"without it nobody can repeat {'it' if count == 1 else 'them'}",
            hint=f"headway dataset remove {one.label} --force removes it, and the lineage says so",
        )


async def _version(state: AppState, cluster: str, dataset: str, number: int, *, gone: bool = False) -> Version:
    """`gone`: also one that was removed. Raises NotFound."""
    await state.row(cluster)
    one = await state.store.version(cluster, dataset, number)
    if one.removed_at is not None and not gone:
        raise NotFound(f"{one.label} was removed by {one.removed_by}", hint=f"headway dataset list --cluster {cluster}")
    return one


async def _queue(
    state: AppState, who: Principal, cluster: str, action: str, params: dict[str, Any], secret: str = ""
) -> OperationOut:
    operation = await state.store.enqueue_operation(
        cluster, "dataset", who.person, params={"action": action, **params}, secret=secret, key=who.idempotency_key
    )
    queued(state, operation)
    await write_audit_line(state, who, f"dataset.{action}", cluster, operation=operation.id, **params)
    return operation_out(operation)


def _out(one: Version, jobs: int) -> DatasetOut:
    return DatasetOut(
        name=one.name,
        version=one.number,
        path=one.path,
        digest=one.digest,
        files=one.files,
        bytes=one.bytes,
        source=one.source,
        person=one.person,
        at=one.at,
        jobs=jobs,
        state="damaged" if one.damage else "whole",
        checked_at=one.checked_at,
        damage=one.damage,
    )
