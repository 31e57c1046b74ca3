"""Finds a version of a dataset or of a software environment, and removes one unless jobs have used it."""

from __future__ import annotations

from headway.errors import Conflict, NotFound
from headway.services.app_state import AppState
from headway.store.clusters.versions import V, VersionStore


async def find_version(
    state: AppState, store: VersionStore[V], cluster: str, name: str, number: int, *, removed: bool = False
) -> V:
    """Returns a version. Raises NotFound, also for a removed one unless `removed`."""
    await state.clusters.row(cluster)
    found = await store.get(cluster, name, number)
    if found.removed_at is not None and not removed:
        raise NotFound(
            f"{found.label} was removed by {found.removed_by}", hint=store.list_command.format(cluster=cluster)
        )
    return found


async def require_unused(store: VersionStore[V], version: V) -> None:
    """Raises Conflict while the lineage of jobs names the version."""
    count, latest = await store.jobs_using(version.cluster, version.name, version.number)
    if count:
        words = ", ".join(map(str, latest)) + (f" and {count - len(latest)} more" if count > len(latest) else "")
        command = store.remove_command.format(cluster=version.cluster, label=version.label)
        raise Conflict(
            f"{version.label} is in the lineage of job{'s' * (count != 1)} {words}: "
            f"without it {'that job' if count == 1 else 'those jobs'} can't be repeated",
            hint=f"{command} removes it and records that in the lineage",
        )


async def record_removal(store: VersionStore[V], version: V, person: str, *, force: bool) -> None:
    """Records the removal of a version, once. Raises Conflict while the lineage of jobs names it, unless `force`."""
    while version.removed_at is None and not await store.record_removal(version, person, force=force):
        await require_unused(store, version)
