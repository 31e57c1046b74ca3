"""Where the audit trail and the server's own log are sent as they are written, read from environment variables. Each
destination is optional.

HEADWAY_AUDIT_FILE       a file to which lines are appended as JSON
HEADWAY_AUDIT_SYSLOG     a syslog server: /dev/log, udp://HOST[:514], tcp://HOST[:514] or tls://HOST[:6514]
HEADWAY_LOG_SYSLOG       the same for the server's log
HEADWAY_AUDIT_OTLP       an OpenTelemetry collector's OTLP/HTTP address: https://otel.example.org:4318
HEADWAY_AUDIT_OTLP_HEADERS_FILE  a file with headers for the collector, one NAME: VALUE per line
HEADWAY_AUDIT_EXEC_ARGUMENTS     1: lines of `headway exec` hold the command's arguments, which may be secret
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from headway.errors import Refused
from headway.services.server_settings import AuditExport, SyslogServer

_SYSLOG_PORTS: dict[str, tuple[Literal["udp", "tcp", "tls"], int]] = {
    "udp": ("udp", 514), "tcp": ("tcp", 514), "tls": ("tls", 6514),
}  # fmt: skip


def read_audit_settings(env: Mapping[str, str]) -> AuditExport:
    """Returns the destinations. Raises Refused for invalid settings."""
    file = env.get("HEADWAY_AUDIT_FILE", "")
    if file and (not file.startswith("/") or not Path(file).parent.is_dir()):
        raise Refused(
            f"HEADWAY_AUDIT_FILE is not a file in an existing folder: {file[:200]!r}",
            hint="give an absolute path, such as /var/log/headway/audit.jsonl",
        )
    return AuditExport(
        Path(file) if file else None,
        _syslog(env, "HEADWAY_AUDIT_SYSLOG"),
        _otlp(env.get("HEADWAY_AUDIT_OTLP", "")),
        _headers(env.get("HEADWAY_AUDIT_OTLP_HEADERS_FILE", "")),
        exec_arguments=env.get("HEADWAY_AUDIT_EXEC_ARGUMENTS", "") == "1",
        log_syslog=_syslog(env, "HEADWAY_LOG_SYSLOG"),
    )


def _syslog(env: Mapping[str, str], name: str) -> SyslogServer | None:
    text = env.get(name, "")
    if not text:
        return None
    if text.startswith("/"):
        return SyslogServer("unix", text, 0)
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", 0
    if parts.scheme not in _SYSLOG_PORTS or not host or parts.path:
        raise Refused(
            f"{name} is not a syslog server: {text[:80]!r}",
            hint="give /dev/log, udp://log.example.org:514, tcp://log.example.org:514 or tls://log.example.org:6514",
        )
    transport, usual = _SYSLOG_PORTS[parts.scheme]
    return SyslogServer(transport, host, port or usual)


def _otlp(text: str) -> str:
    if text and (not text.startswith(("http://", "https://")) or not urlsplit(text).hostname):
        raise Refused(
            f"HEADWAY_AUDIT_OTLP is not an address: {text[:80]!r}", hint="give http(s)://HOST:4318 of a collector"
        )
    return f"{text.rstrip('/').removesuffix('/v1/logs')}/v1/logs" if text else ""


def _headers(file: str) -> tuple[tuple[str, str], ...]:
    if not file:
        return ()
    try:
        lines = Path(file).read_text().splitlines()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Refused(
            f"HEADWAY_AUDIT_OTLP_HEADERS_FILE can't be read: {why}", hint=f"make {file} readable by the server's user"
        ) from None
    found = []
    for number, line in enumerate(lines, 1):
        name, colon, value = line.partition(":")
        if line.strip() and not (colon and name.strip()):
            raise Refused(f"{file}, line {number}: no NAME: VALUE", hint="for example Authorization: Bearer ...")
        if line.strip():
            found.append((name.strip(), value.strip()))
    return tuple(found)
