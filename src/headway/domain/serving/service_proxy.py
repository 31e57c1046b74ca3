"""The proxy of services on a head: which servers and keys it is to have, and what it reports. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

SERVICE_PORT = 8470  # of the proxy, on the head


class ServerState(StrEnum):
    """What a server of the proxy is sent. The values are those of node/steer_proxy."""

    NEW = "new"  # only health checks
    READY = "ready"  # requests, while its health check passes
    DRAIN = "drain"  # no new requests; those that run are finished


@dataclass(frozen=True, slots=True)
class ProxyServer:
    """A replica that the proxy knows, on a port of a node."""

    name: str
    node: str
    port: int
    state: ServerState
    weight: int = 100  # 1 to 256


@dataclass(frozen=True, slots=True)
class ProxyService:
    """A service that the proxy carries. `name` is TEAM:NAME. A request waits at most `hold_s` for a server that can answer it."""

    name: str
    health: str  # path that health checks ask for
    hold_s: int
    servers: tuple[ProxyServer, ...]


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """What the proxy of a cluster is to have. `keys`: SHA-256 of a key, in hexadecimal digits -> the service that it opens;
    `limits`: such a hash -> requests a minute; `unchanged`: services that stay with the servers that they have."""

    keys: Mapping[str, str]
    services: tuple[ProxyService, ...]
    limits: Mapping[str, int] = field(default_factory=dict)
    port: int = SERVICE_PORT
    unchanged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaAddress:
    """Where a replica listens. `service` is TEAM:NAME, `name` as in ProxyServer."""

    service: str
    name: str
    node: str
    port: int


@dataclass(frozen=True, slots=True)
class ServerReading:
    """What the proxy reports of a server. `sessions`: requests that it is answering."""

    healthy: bool
    sessions: int
    requests: int
    check: str  # result of the last health check


@dataclass(frozen=True, slots=True)
class ServiceReading:
    """What the proxy reports of a service, since the service or the proxy was started. Times are means of the last 1,024
    requests of each server."""

    requests: int = 0
    active: int = 0  # requests that run or wait
    errors_4xx: int = 0
    errors_5xx: int = 0
    retries: int = 0
    first_byte_ms: int = 0
    total_ms: int = 0
    servers: Mapping[str, ServerReading] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProxyReading:
    """What the proxy of a cluster reports. `address`: of its machine; `services`: by TEAM:NAME."""

    address: str = ""
    services: Mapping[str, ServiceReading] = field(default_factory=dict)


def service_path(team: str, name: str) -> str:
    """Returns the path below which the proxy serves a service."""
    return f"/serve/{team}/{name}"
