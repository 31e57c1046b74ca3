"""What the proxy is to have: the servers of all services, with the requests that each gets, and the keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from headway.domain.serving.service_proxy import ProxyServer, ProxyService, ProxySettings, ServerState
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.jobs.serving.scaling import spare_replicas
from headway.services.app_state import AppState
from headway.services.serving.stored_service import StoredService, server_name
from headway.store import ReplicaRow, ServiceRow

IN_PROXY = {
    "starting": ServerState.NEW,
    "serving": ServerState.READY,
    "unhealthy": ServerState.READY,
    "draining": ServerState.DRAIN,
}


@dataclass(frozen=True)
class ObservedService:
    """A service with its replicas as their jobs are now. `before`: as they are stored."""

    row: ServiceRow
    stored: StoredService
    before: tuple[ReplicaRow, ...]
    replicas: tuple[ReplicaRow, ...]
    jobs: Mapping[int, JobState]


async def proxy_settings(
    state: AppState, cluster: str, found: Sequence[ObservedService], unread: Collection[str]
) -> ProxySettings:
    """Returns the servers and keys that the proxy is to have. `unread`: services that stay in the proxy as they are."""
    services = tuple(_proxy_service(one) for one in found)
    names = {service.name for service in services} | set(unread)
    keys = await state.store.services.keys(cluster) if names else ()
    opening = [key for key in keys if key.service in names]
    limits = {key.hash: key.per_minute for key in opening if key.per_minute is not None}
    opens = {key.hash: key.service for key in opening}
    return ProxySettings(opens, services, limits, unchanged=tuple(sorted(unread)))


def _proxy_service(one: ObservedService) -> ProxyService:
    service = one.stored.service
    spare = spare_replicas(one.replicas, one.row.wanted, service.replicas.standby, one.row.version)
    servers = tuple(
        ProxyServer(
            server_name(replica),
            replica.node,
            replica.port,
            ServerState.NEW if replica.number in spare else IN_PROXY[replica.state],
        )
        for replica in one.replicas
        if replica.state in IN_PROXY and replica.node
    )
    return ProxyService(one.row.proxy_name, service.health, service.hold_s, servers)


def is_active(replica: ReplicaRow) -> bool:
    """Returns whether a replica has not ended."""
    return replica.ended_at is None
