"""Versions of datasets. Adding, verifying and removing one are operations: a request only queues them."""

from __future__ import annotations

import secrets as random
from collections.abc import Sequence

from headway.domain.cluster import Cluster
from headway.domain.dataset import FOLDER, DatasetVersion, conflicting_field
from headway.domain.operation_kinds import DatasetParams
from headway.errors import NotAllowed, NotFound, Refused
from headway.schemas.operations import OperationOut
from headway.schemas.storage.datasets import DatasetIn, DatasetOut, S3In
from headway.services.access.audit import write_audit_line
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.cluster.operation_to_schema import operation_out
from headway.services.cluster.operations import queue_operation
from headway.services.storage.path_policy import require_dataset_source
from headway.services.storage.version_removal import find_version, require_unused


async def list_versions(state: AppState, name: str) -> list[DatasetOut]:
    """Returns every version that the cluster has, by dataset name and number."""
    await state.clusters.row(name)
    jobs = await state.store.datasets.job_counts(name)
    found = [
        _version_out(version, jobs.get((version.name, version.number), 0))
        for version in await state.store.datasets.versions(name)
    ]
    return sorted(found, key=lambda version: (version.name, version.version))


async def add_version(state: AppState, who: Principal, name: str, request: DatasetIn) -> OperationOut:
    """Queues a new version, from a folder of the server's machine or an S3 bucket. The operation's `kept` names its
    mount point."""
    _, cluster = await state.clusters.get(name)
    require_free_name(cluster, request.name)
    if not request.source.startswith("s3://"):
        if request.s3 is not None:
            raise Refused("s3 needs a bucket as source", hint="source: s3://BUCKET/PREFIX")
        return await _queue(
            state,
            who,
            name,
            DatasetParams("add", request.name, source=str(require_dataset_source(state, request.source))),
        )
    access, ref = request.s3 or S3In(), random.token_hex(8)
    source = request.source.rstrip("/")
    params = DatasetParams("add", request.name, source=source, endpoint_url=access.endpoint_url, ref=ref)
    return await _queue(state, who, name, params, access.model_dump_json())


async def verify_version(state: AppState, who: Principal, name: str, dataset: str, version: int) -> OperationOut:
    """Queues a check that reads a version completely. If files are damaged, the operation fails and names them."""
    found = await find_version(state, state.store.datasets, name, dataset, version)
    return await _queue(state, who, name, DatasetParams("verify", found.name, version=found.number))


async def remove_version(
    state: AppState, who: Principal, name: str, dataset: str, version: int, *, force: bool
) -> OperationOut:
    """Queues the removal of a version. Raises Conflict while the lineage of jobs names it, unless `force`; SignInAgain."""
    who.require_recent_sign_in(state.clock(), f"remove {dataset}@{version}")
    found = await find_version(
        state, state.store.datasets, name, dataset, version, removed=True
    )  # a removal that failed is completed
    if found.removed_at is None and not force:
        await require_unused(state.store.datasets, found)
    return await _queue(state, who, name, DatasetParams("remove", found.name, version=found.number, force=force))


async def pin_versions(state: AppState, cluster: Cluster, stage_in: Sequence[str]) -> list[str]:
    """Returns each as NAME@VERSION; a name without a version gets its latest. Raises NotFound."""
    if not stage_in:
        return []
    known = await state.store.datasets.versions(cluster.name)
    found = []
    for name_and_version in stage_in:
        name, _, number = name_and_version.partition("@")
        matching = [version for version in known if version.name == name and number in ("", str(version.number))]
        if not matching:
            raise NotFound(
                f"{cluster.name} has no dataset {name_and_version}",
                hint=f"headway dataset ls --cluster {cluster.name}",
            )
        found.append(matching[-1].label)
    return found


def require_free_name(cluster: Cluster, name: str) -> None:
    """Raises Refused if the cluster's file uses the mount point of a dataset of this name for something else."""
    field = conflicting_field(cluster.storage, name)
    if field:
        raise Refused(
            f"{FOLDER}/{name} is taken on {cluster.name}: {field} of its file", hint="give the dataset another name"
        )


async def require_own_dataset(state: AppState, cluster: Cluster, name: str, person: str) -> None:
    """Raises Refused if the cluster's file uses the name, and NotAllowed if another person has added versions of this
    dataset: jobs may use its latest one."""
    require_free_name(cluster, name)
    versions = await state.store.datasets.versions(cluster.name, name)
    other = next((version.person for version in versions if version.person != person), "")
    if other:
        raise NotAllowed(f"dataset {name} has versions of {other}", hint="give the output another name")


async def _queue(
    state: AppState, who: Principal, cluster: str, params: DatasetParams, secret: str = ""
) -> OperationOut:
    operation = await queue_operation(state, cluster, who.person, params, secret=secret, key=who.idempotency_key)
    stored = params.to_json()
    detail = {name: value for name, value in stored.items() if name != "action"}
    await write_audit_line(state, who, params.kind.audit_action(stored), cluster, operation=operation.id, **detail)
    return operation_out(operation)


def _version_out(version: DatasetVersion, jobs: int) -> DatasetOut:
    """Returns the version in the form of the API. `jobs` is the number of jobs whose lineage names it."""
    return DatasetOut(
        name=version.name,
        version=version.number,
        path=version.path,
        digest=version.digest,
        files=version.files,
        bytes=version.bytes,
        source=version.source,
        person=version.person,
        at=version.at,
        jobs=jobs,
        state="damaged" if version.damage else "whole",
        checked_at=version.checked_at,
        damage=version.damage,
    )
