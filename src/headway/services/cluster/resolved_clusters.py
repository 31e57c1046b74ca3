"""The clusters of the store with their resolved cluster files, cached between requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Set
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from headway.clusterfile.team_members import with_team_members, without_users
from headway.domain.cluster import SLURM_STATE_FOLDER, STATE_VERSION_FILE, Cluster
from headway.domain.dataset import mount_versions
from headway.errors import Fault, NotFound
from headway.paths import volumes_dir
from headway.schemas.clusters import Document
from headway.services.cluster.shown_plan import document_digest
from headway.services.cluster_backend import ClusterBackend, ResolvedCluster
from headway.services.read_model.live_state import LiveState
from headway.services.read_model.topic_hub import cluster_topic
from headway.services.server_settings import Settings
from headway.services.shared_cache import SharedReads
from headway.store import ClusterRow, Person, Store

if TYPE_CHECKING:
    from headway.datasets.file_store import DatasetFileStore

_CACHED_S = 1.0  # seconds that a row, a resolved file, the names of datasets and people are reused


class ResolvedClusters:
    """Reads cluster rows and resolves their documents."""

    def __init__(self, store: Store, backend: ClusterBackend, live: LiveState, settings: Settings) -> None:
        self._store = store
        self._backend = backend
        self._live = live
        self._settings = settings
        self._shared_rows: SharedReads[ClusterRow] = SharedReads()
        self._known: dict[str, tuple[float, Cluster | None]] = {}
        self._resolved: dict[str, tuple[str, Cluster]] = {}
        self._datasets: dict[str, tuple[float, tuple[str, ...]]] = {}
        self._people: tuple[float, int, tuple[Person, ...]] = (0.0, 0, ())  # (valid until, change number, all people)
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def row(self, name: str) -> ClusterRow:
        """Returns the cluster's row. Raises NotFound, which names the clusters that exist."""
        row = await self._store.clusters.get(name)
        if row is None:
            names = [c.name for c in await self._store.clusters.all()]
            raise NotFound(
                f"no cluster {name!r}", hint=f"there is {', '.join(names)}" if names else "headway apply FILE makes one"
            )
        return row

    async def shared_row(self, name: str) -> ClusterRow:
        """Returns the cluster's row for callers that a change has woken. They share one read that was made after the
        change."""
        change = self._live.hub.version(cluster_topic(name))
        return await self._shared_rows.get(name, change, _CACHED_S, lambda: self.row(name))

    async def get(self, name: str) -> tuple[ClusterRow, Cluster]:
        """Returns the cluster's row and its resolved document. Raises NotFound."""
        row = await self.row(name)
        return row, await self.resolved(row)

    async def resolved(self, row: ClusterRow) -> Cluster:
        """Returns the row's document, resolved. It is cached until the document or the cluster's datasets change."""
        until, names = self._datasets.get(row.name, (0.0, ()))
        if time.monotonic() >= until:
            names = await self._store.datasets.names(row.name)
            self._datasets[row.name] = (time.monotonic() + _CACHED_S, names)
        members, locked = await self._provider_members(row.name), await self._store.user_changes.locked()
        key = document_digest(
            {"document": row.document, "datasets": names, "members": members, "locked": sorted(locked)}
        )
        known = self._resolved.get(row.name)
        if known is None or known[0] != key:
            found = await self.resolve(Document.model_validate(row.document))
            known = self._resolved[row.name] = (key, found.cluster)
        return known[1]

    async def resolve(self, document: Document) -> ResolvedCluster:
        """Returns the document resolved, with the users that the sign-in provider says are in its teams, without those that
        are locked, and with the dataset versions that exist on the cluster. Raises InvalidSpec with every fault."""
        members = await self._provider_members(str(document.spec.get("name")))
        if members:
            document = document.model_copy(update={"spec": with_team_members(document.spec, members)})
        found = await self._backend.lifecycle.resolve(document)
        locked = await self._store.user_changes.locked()
        warnings = (*found.warnings, *_lock_warnings(found.cluster, locked))
        cluster = without_users(found.cluster, locked)
        names = await self._store.datasets.names(cluster.name)
        folders = {name: str(self.dataset_file_store(cluster).folder(name)) for name in names}
        cluster = replace(cluster, storage=mount_versions(cluster.storage, folders))
        return replace(found, cluster=cluster, warnings=warnings)

    async def _provider_members(self, cluster: str) -> dict[str, list[str]]:
        """Returns the Linux users of people from the sign-in provider, by team of this cluster. They are not stored in the
        document: a person who leaves a group loses the team at once, and in Slurm within a minute
        (server.workers.user_changes)."""
        if self._settings.oidc is None or not self._settings.oidc.teams:
            return {}
        until, changes, people = self._people
        if time.monotonic() >= until or changes != self._store.people.changes:
            changes, people = self._store.people.changes, await self._store.people.all()
            self._people = (time.monotonic() + _CACHED_S, changes, people)
        found: dict[str, list[str]] = {}
        for person in people:
            user = person.linux_user
            for team in person.provider_teams:
                where, _, name = team.rpartition("/")
                if user and where in ("", cluster):
                    found.setdefault(name, []).append(user)
        return {team: sorted(set(users)) for team, users in found.items()}

    def dataset_file_store(self, cluster: Cluster) -> DatasetFileStore:
        """Returns the place of dataset versions: on this machine for a local cluster, otherwise on the cluster's own
        machines (datasets.async_file_store)."""
        from headway.datasets.file_store import DatasetFileStore

        if not cluster.provider.volumes_on_server:
            return DatasetFileStore(Path(cluster.dataset_store_folder))
        return DatasetFileStore(volumes_dir(self._settings.data.resolve(), cluster.name) / "library")

    def stored_slurm_version(self, cluster: Cluster, before: Cluster | None) -> str:
        """Returns the Slurm version that wrote the cluster's kept state, or "" if nothing is kept. For machines of an
        inventory it is the version in the cluster's previous file."""
        if not cluster.provider.volumes_on_server:
            return before.slurm_version if before else ""
        volume = self._head_volume(cluster)
        try:
            return (volume / STATE_VERSION_FILE).read_text().strip()
        except FileNotFoundError:  # nothing is kept, or the head was set up before the version was written down
            return before.slurm_version if before and (volume / PurePosixPath(SLURM_STATE_FOLDER).name).is_dir() else ""

    def record_slurm_version(self, cluster: Cluster, slurm_version: str) -> None:
        """Writes down the Slurm version of a local cluster whose head was set up before the version was stored."""
        file = self._head_volume(cluster) / STATE_VERSION_FILE
        if cluster.provider.volumes_on_server and not file.exists():
            file.write_text(f"{slurm_version}\n")

    def forget_datasets(self, name: str) -> None:
        """Drops the cached dataset names, so that the next request gets the cluster with its present datasets."""
        self._datasets.pop(name, None)
        self._known.pop(name, None)

    async def cached(self, name: str) -> Cluster:
        """Returns the cluster, from memory if it was read within the last second."""
        until, cluster = self._known.get(name, (0.0, None))
        if cluster is not None and time.monotonic() < until:
            return cluster
        async with self._reading.setdefault(name, asyncio.Lock()):
            until, cluster = self._known.get(name, (0.0, None))
            if cluster is None or time.monotonic() >= until:
                _, cluster = await self.get(name)
                self._known[name] = (time.monotonic() + _CACHED_S, cluster)
            return cluster

    def forget(self, name: str) -> None:
        """Drops everything cached about a cluster."""
        self._resolved.pop(name, None)
        self._shared_rows.forget(name)
        self.forget_datasets(name)

    def _head_volume(self, cluster: Cluster) -> Path:
        return volumes_dir(self._settings.data.resolve(), cluster.name) / "head"


def _lock_warnings(cluster: Cluster, locked: Set[str]) -> Iterator[Fault]:
    """Yields a warning for each user of the file who is left out because they are locked."""
    for user in cluster.users:
        if user.name in locked:
            hint = f"headway people enable PERSON, or headway people set {user.name} ROLE, lets the user return"
            yield Fault(
                "teams", f"{user.name} is left out: this user's person is disabled or was removed", hint, "warning"
            )
