"""Locks Linux users of running clusters, and puts them into their teams."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headway.domain.access.user_change_results import UserLockResult, UserUpdateResult
from headway.domain.cluster import Cluster
from headway.server.cluster_backend.connections import ConnectionPool


class UserChangesBackend:
    """Implements services.cluster_backend.ClusterUserChanges."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def lock_user(self, cluster: Cluster, user: str) -> UserLockResult:
        from headway.cluster.accounts.user_locks import lock_user

        return await lock_user(cluster, await self._pool.context(cluster), user)

    async def update_users(self, cluster: Cluster, users: Collection[str]) -> Mapping[str, UserUpdateResult]:
        from headway.cluster.accounts.user_teams import update_users

        return await update_users(cluster, await self._pool.context(cluster), users)
