"""Versions of software environments. Building and removing one are operations: a request only queues them.

An environment belongs to the person who built its first version: only they and admins add and remove its versions,
because everybody's jobs may run its code. The cluster file's environments and `pytorch` belong to the admins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.domain.cluster import Cluster
from headway.domain.environment import NO_ENVIRONMENT, PYTORCH, EnvironmentVersion, address_with_password
from headway.domain.operation_kinds import EnvironmentParams
from headway.environments.uv_lock import lock_difference
from headway.errors import Conflict, HeadwayError, NotAllowed, NotFound, Refused
from headway.schemas.operations import OperationOut
from headway.schemas.storage.environments import EnvironmentDetailOut, EnvironmentIn, EnvironmentOut
from headway.services.access.audit import write_audit_line
from headway.services.access.ownership_rights import cluster_to_work_on
from headway.services.access.role_rights import Principal, Right
from headway.services.app_state import AppState
from headway.services.cluster.operation_to_schema import operation_out
from headway.services.cluster.operations import queue_operation
from headway.services.storage.version_removal import find_version, require_unused

_TOLD = ("name", "source", "user", "partition", "team", "version", "force")  # in the audit trail


async def list_environments(state: AppState, cluster: str) -> list[EnvironmentOut]:
    """Returns every version that the cluster has, by name and number."""
    _, resolved = await state.clusters.get(cluster)
    jobs = await state.store.environments.job_counts(cluster)
    found = await state.store.environments.versions(cluster)
    latest = {one.name: one.number for one in found}
    kept = {resolved.environment, *(f"{name}@{number}" for name, number in latest.items())}
    kept |= {one.environment for one in resolved.partitions} | {one.environment for one in resolved.teams}
    listed = [_out(one, jobs.get((one.name, one.number), 0)) for one in found]
    for row, one in zip(listed, found, strict=True):
        row.removable = not row.jobs and one.label not in kept
    return listed


async def environment_choices(state: AppState, cluster: str) -> list[str]:
    """Returns the environments that a job may name: each name for its latest version, and each version."""
    versions = await state.store.environments.versions(cluster)
    names = dict.fromkeys(version.name for version in versions)
    return [word for name in names for word in (name, *(one.label for one in versions if one.name == name))]


async def get_environment(state: AppState, cluster: str, name: str, number: int) -> EnvironmentDetailOut:
    """Returns one version with its lock. Raises NotFound."""
    one = await find_version(state, state.store.environments, cluster, name, number)
    count, _ = await state.store.environments.jobs_using(cluster, name, number)
    return EnvironmentDetailOut(**_out(one, count).model_dump(), lock=await state.store.environments.lock(one))


async def add_environment(state: AppState, who: Principal, cluster: str, ask: EnvironmentIn) -> OperationOut:
    """Queues the build of a new version, in a job of the person. The operation's `kept` names its path. Raises Conflict
    while the environment is being built, NotAllowed for another person's environment, Refused for a text with a
    password and for a lock that was made from other requirements."""
    user = who.user_to_act_as(ask.user)
    resolved = await cluster_to_work_on(state, cluster, who)
    await require_owner(state, who, resolved, ask.name)
    for file, text in ((ask.source, ask.text), ("pyproject.toml", ask.pyproject)):
        if address_with_password(text):
            raise Refused(
                f"{file} has an address with a password or token, which would be kept with the environment",
                hint=f"leave it out; write it to .netrc in the home of {user} on {cluster}",
            )
    if ask.source == "uv.lock" and (difference := lock_difference(ask.text, ask.pyproject)):
        raise Refused(f"uv.lock does not fit pyproject.toml: {difference}", hint="uv lock, next to them, makes it fit")
    _require_known(resolved, ask)
    params = EnvironmentParams(
        "add", ask.name, source=ask.source, text=ask.text, pyproject=ask.pyproject or None, user=user,
        partition=ask.partition or None, team=ask.team or None,
    )  # fmt: skip
    return await _queue(state, who, cluster, params)


async def remove_environment(
    state: AppState, who: Principal, cluster: str, name: str, number: int, *, force: bool
) -> OperationOut:
    """Queues the removal of a version. Raises Conflict while the lineage of jobs names it, unless `force`."""
    who.require(Right.RUN_JOBS)
    resolved = await cluster_to_work_on(state, cluster, who)
    one = await find_version(
        state, state.store.environments, cluster, name, number, removed=True
    )  # a removal that failed is completed
    await require_owner(state, who, resolved, name)
    if one.removed_at is None and not force:
        await require_unused(state.store.environments, one)
    return await _queue(state, who, cluster, EnvironmentParams("remove", name, version=number, force=force))


async def pin_environment(state: AppState, cluster: Cluster, wanted: str) -> str:
    """Returns the environment of a job as NAME@VERSION; a name without a version gets its latest. "" for a job without
    one. Raises NotFound."""
    if wanted in ("", NO_ENVIRONMENT):
        return ""
    name, _, number = wanted.partition("@")
    known = await state.store.environments.versions(cluster.name, name)
    matching = [one for one in known if number in ("", str(one.number))]
    if matching:
        return matching[-1].label
    building = await state.store.operations.active(cluster.name, EnvironmentParams("add", name).subject)
    if building is not None and not known:
        raise NotFound(
            f"environment {name} of {cluster.name} is still being built",
            hint=f"headway queue {cluster.name} shows the job environment-{name}",
        )
    if known:
        hint = f"there is {', '.join(one.label for one in known)}"
    else:
        hint = f"headway env ls {cluster.name}, or headway env add {cluster.name} {name} --requirements FILE"
    raise NotFound(f"{cluster.name} has no environment {wanted}", hint=hint)


async def require_owner(state: AppState, who: Principal, cluster: Cluster, name: str) -> None:
    """Raises NotAllowed when the environment belongs to others. A name stays its first owner's after the last version
    was removed, because scripts still name it."""
    if who.may(Right.ADMIN):
        return
    hint = "choose another name, or ask an admin"
    if name == PYTORCH or name in cluster.environments:
        raise NotAllowed(f"environment {name} belongs to the admins of {cluster.name}", hint=hint)
    first = next(iter(await state.store.environments.versions(cluster.name, name, removed=True)), None)
    if first is not None and first.person != who.person:
        raise NotAllowed(f"environment {name} belongs to {first.person}", hint=hint)


async def require_present(state: AppState, cluster: str, versions: Iterable[tuple[str, int]]) -> None:
    """Raises Refused when one of these versions, which a job is about to use again, was removed."""
    for name, number in versions:
        one = await state.store.environments.get(cluster, name, number)
        if one.removed_at is not None:
            raise Refused(
                f"environment {one.label}, which the job used, was removed by {one.removed_by}",
                hint=f"submit the job with another version: headway env ls {cluster}",
            )


async def missing_environments(
    state: AppState, cluster: Cluster, versions: Sequence[EnvironmentVersion]
) -> tuple[EnvironmentVersion, ...]:
    """Returns those of these versions whose files are missing; none while the head does not answer."""
    if not versions:
        return ()
    try:
        return await (await state.backend.storage.environment_file_store(cluster)).missing(versions)
    except HeadwayError:  # the next apply asks again
        return ()


def _require_known(cluster: Cluster, ask: EnvironmentIn) -> None:
    """Raises Refused for a partition or team that the cluster does not have."""
    for field, value, known in (
        ("partition", ask.partition, [one.name for one in cluster.partitions]),
        ("team", ask.team, [one.name for one in cluster.teams]),
    ):
        if value and value not in known:
            raise Refused(f"{cluster.name} has no {field} {value}", hint=f"it has {', '.join(known)}")


async def _queue(state: AppState, who: Principal, cluster: str, params: EnvironmentParams) -> OperationOut:
    busy = await state.store.operations.active(cluster, params.subject)
    if busy is not None and not (who.idempotency_key and await _is_same(state, who, busy.id)):
        doing = "removed" if busy.params.get("action") == "remove" else "built"
        raise Conflict(
            f"a version of environment {params.name} is being {doing}, by {busy.person}",
            hint=f"wait for it (headway status {cluster}), or cancel its job: headway queue {cluster}",
        )
    operation = await queue_operation(state, cluster, who.person, params, key=who.idempotency_key)
    stored = params.to_json()
    detail = {name: stored[name] for name in _TOLD if name in stored}
    await write_audit_line(state, who, params.kind.audit_action(stored), cluster, operation=operation.id, **detail)
    return operation_out(operation)


async def _is_same(state: AppState, who: Principal, operation: str) -> bool:
    """Returns whether an earlier try of this request queued the operation."""
    found = await state.store.operations.by_key(who.idempotency_key)
    return found is not None and found.id == operation


def _out(version: EnvironmentVersion, jobs: int) -> EnvironmentOut:
    return EnvironmentOut(
        name=version.name,
        version=version.number,
        path=version.path,
        digest=version.digest,
        python=version.python,
        packages=version.packages,
        bytes=version.bytes,
        source=version.source,
        person=version.person,
        at=version.at,
        job_id=version.job_id,
        jobs=jobs,
    )
