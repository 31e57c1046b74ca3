"""Settings of a server, which do not change while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from headway.catalog.gpuhunt_catalog import PUBLISHED_AT
from headway.domain.access.role import Role
from headway.services.access.submit_rate import DEFAULT_SUBMITS_PER_MINUTE
from headway.validation.hosts import is_loopback


@dataclass(frozen=True)
class Oidc:
    """Settings of an OpenID provider. `roles` maps values of the role claim to roles; the first that matches counts.
    `teams` maps values of the team claim to teams, or to CLUSTER/TEAM; all that match count."""

    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    role_claim: str = ""
    roles: tuple[tuple[str, Role], ...] = ()
    team_claim: str = ""
    teams: tuple[tuple[str, str], ...] = ()
    subject_claim: str = "sub"  # claim with the person's id at the provider, which SCIM sends as externalId
    user_claim: str = ""  # claim with the Linux user; "" if an admin sets it
    scopes: tuple[str, ...] = ()  # requested in addition to openid, profile and email
    acr: tuple[str, ...] = ()  # values of the claim acr, one of which a sign-in must have; () = any
    amr: tuple[str, ...] = ()  # values of the claim amr, one of which a sign-in must have; () = any
    only: bool = False  # browsers sign in neither by links nor by tokens

    @property
    def host(self) -> str:
        """Returns the host name of the provider's address."""
        return urlsplit(self.issuer).netloc


@dataclass(frozen=True)
class SyslogServer:
    """A syslog server. `host` is the path of the socket for `unix`."""

    transport: Literal["unix", "udp", "tcp", "tls"]
    host: str
    port: int

    @property
    def in_clear(self) -> bool:
        """Returns whether lines are sent to another machine without encryption."""
        return self.transport in ("udp", "tcp") and not is_loopback(self.host)


@dataclass(frozen=True)
class AuditExport:
    """Where the audit trail, and the server's own log, are sent as they are written."""

    file: Path | None = None
    syslog: SyslogServer | None = None
    otlp: str = ""  # address of an OTLP/HTTP collector, with /v1/logs
    otlp_headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    exec_arguments: bool = False  # record the arguments of `headway exec`
    log_syslog: SyslogServer | None = None  # for the server's own log

    @property
    def in_clear(self) -> tuple[str, ...]:
        """Returns the variables of the destinations on other machines to which lines are sent without encryption."""
        otlp = urlsplit(self.otlp)
        found = {
            "HEADWAY_AUDIT_SYSLOG": self.syslog is not None and self.syslog.in_clear,
            "HEADWAY_LOG_SYSLOG": self.log_syslog is not None and self.log_syslog.in_clear,
            "HEADWAY_AUDIT_OTLP": otlp.scheme == "http" and not is_loopback(otlp.hostname or ""),
        }
        return tuple(name for name, is_clear in found.items() if is_clear)


@dataclass(frozen=True)
class Settings:
    """Settings that do not change while the server runs."""

    state_dir: Path
    data_dir: Path | None = None  # folder of the clusters' data, if several servers share it; None: the state folder
    url: str = ""  # the address that people use, without a slash at the end
    database: str = ""
    notebooks: str = ""  # separate web origin on which notebooks are shown; a * in it gives each notebook its own
    cookie: str = "headway_session"
    allowed_hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")  # () allows every host
    dataset_roots: tuple[Path, ...] = ()  # () allows every folder except the system's
    oidc: Oidc | None = None
    tls: bool = False  # this process itself serves TLS
    fingerprint: str = ""  # of the certificate that the server made for itself; "" with another or without TLS
    proxies: tuple[str, ...] = ()  # addresses of reverse proxies, which report the client's address
    audit: AuditExport = AuditExport()
    submits_per_minute: int = DEFAULT_SUBMITS_PER_MINUTE  # of each person who is not an admin
    offers_url: str = PUBLISHED_AT  # where the catalogues of prices of clouds are, without a slash at the end

    @property
    def data(self) -> Path:
        """Returns the folder of the clusters' data."""
        return self.data_dir or self.state_dir

    @property
    def https(self) -> bool:
        """Returns whether people reach the server by TLS, its own or a proxy's."""
        return self.url.startswith("https://")
