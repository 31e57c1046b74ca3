"""Exports the audit trail as it is written: to a file, a syslog server and an OpenTelemetry collector."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from logging.handlers import SysLogHandler
from pathlib import Path
from typing import Any, Protocol

import structlog

from headway.schemas.access.audit import AuditOut
from headway.server.syslog import TIMEOUT_S, send_lines
from headway.services.app_state import AppState
from headway.services.server_settings import AuditExport, SyslogServer
from headway.store import AuditRow

LOOK_S = 1.0
AGAIN_S = 10.0  # seconds until the next try after a destination failed
BATCH = 500
POSITIONS = "audit-export.json"  # file in the servers' data folder: destination -> number of the last exported line
_SEVERITY = {"ok": ("INFO", 9), "refused": ("WARN", 13), "failed": ("ERROR", 17)}  # OTLP severity numbers
_LEVELS = {"ok": logging.INFO, "refused": logging.WARNING, "failed": logging.ERROR}
log = structlog.get_logger("headway.server.audit_export")


class Destination(Protocol):
    """Where lines go. `send` blocks and raises OSError or httpx.HTTPError; lines may arrive twice after a failure."""

    name: str

    def send(self, rows: Sequence[AuditRow]) -> None:
        """Sends the lines and blocks until they are accepted. Raises OSError or httpx.HTTPError; after that some lines
        may arrive twice."""
        ...


class AuditExportWorker:
    """Sends each new line of the audit trail to every destination of the settings, in order. A destination that does
    not answer delays only its own lines: they follow when it answers again."""

    def __init__(self, state: AppState, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._state = state
        self._pause = pause
        self._file = state.settings.data / POSITIONS
        self._faults: dict[str, str] = {}
        self.destinations = _destinations(state.settings.audit)

    async def run(self) -> None:
        """Exports until cancelled. Returns at once if no destination is set."""
        if self.destinations:
            await asyncio.gather(*(self._follow(one) for one in self.destinations))

    async def _follow(self, destination: Destination) -> None:
        while True:
            await self._pause(LOOK_S if await self.send_new(destination) else AGAIN_S)

    async def send_new(self, destination: Destination) -> bool:
        """Sends the lines that the destination does not have yet. Returns whether it took them."""
        try:
            while rows := await self._state.store.audit.search(limit=BATCH, after=self._position(destination.name)):
                await asyncio.to_thread(destination.send, rows)
                self._save_position(destination.name, rows[-1].number)
        except Exception as error:  # the network, the collector, the disk or the database may fail for a while
            fault = f"{type(error).__name__}: {error}"
            if self._faults.get(destination.name) != fault:
                log.warning("the audit trail is not exported", to=destination.name, error=fault)
            self._faults[destination.name] = fault
            return False
        if self._faults.pop(destination.name, None):
            log.info("the audit trail is exported again", to=destination.name)
        return True

    def _positions(self) -> dict[str, int]:
        try:
            found = json.loads(self._file.read_text())
        except (OSError, ValueError):  # none yet: all lines are sent
            return {}
        return {name: number for name, number in found.items() if isinstance(number, int)}

    def _position(self, name: str) -> int:
        return self._positions().get(name, 0)

    def _save_position(self, name: str, number: int) -> None:
        draft = self._file.with_suffix(".new")
        draft.write_text(json.dumps(self._positions() | {name: number}))
        draft.replace(self._file)


def _destinations(settings: AuditExport) -> tuple[Destination, ...]:
    found: list[Destination] = []
    if settings.file:
        found.append(FileDestination(settings.file))
    if settings.syslog:
        found.append(SyslogDestination(settings.syslog))
    if settings.otlp:
        found.append(OtlpDestination(settings.otlp, dict(settings.otlp_headers)))
    return tuple(found)


class FileDestination:
    """Appends one JSON object per line. The file is opened for each batch, so that logrotate may move it."""

    def __init__(self, path: Path) -> None:
        self.name = f"file {path}"
        self._path = path

    def send(self, rows: Sequence[AuditRow]) -> None:
        """Writes the lines and waits until they are on the disk."""
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w") as file:
            file.writelines(f"{_json(row)}\n" for row in rows)
            file.flush()
            os.fsync(file.fileno())


class SyslogDestination:
    """Sends each line as a message with facility authpriv: `headway-audit: {JSON}`."""

    def __init__(self, server: SyslogServer) -> None:
        self.name = f"syslog {server.transport} {server.host}:{server.port}"
        self._server = server

    def send(self, rows: Sequence[AuditRow]) -> None:
        """Sends the lines over one connection. UDP and /dev/log confirm nothing."""
        send_lines(
            self._server,
            "headway-audit",
            SysLogHandler.LOG_AUTHPRIV,
            ((_LEVELS.get(row.result, logging.ERROR), _json(row)) for row in rows),
        )


class OtlpDestination:
    """Sends log records to an OpenTelemetry collector as OTLP/HTTP in JSON."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self.name = f"otlp {url}"
        self._url = url
        self._headers = headers

    def send(self, rows: Sequence[AuditRow]) -> None:
        """Sends the lines in one request. Raises httpx.HTTPStatusError if the collector does not take them."""
        import httpx

        scope = {"scope": {"name": "headway.audit"}, "logRecords": [_log_record(row) for row in rows]}
        resource = {"attributes": [_attribute("service.name", "headway")]}
        body = {"resourceLogs": [{"resource": resource, "scopeLogs": [scope]}]}
        answer = httpx.post(self._url, json=body, headers=self._headers, timeout=TIMEOUT_S)
        answer.raise_for_status()


def _log_record(row: AuditRow) -> dict[str, Any]:
    text, number = _SEVERITY.get(row.result, _SEVERITY["failed"])
    values = {
        "audit.number": str(row.number), "enduser.id": row.person, "event.name": row.action, "audit.target": row.target,
        "audit.result": row.result, "client.address": row.address, "audit.hash": row.hash,
        "audit.detail": json.dumps(dict(row.detail)),
    }  # fmt: skip
    return {
        "timeUnixNano": str(int(row.at * 1e9)),
        "severityNumber": number,
        "severityText": text,
        "body": {"stringValue": f"{row.person} {row.action} {row.target}: {row.result}"},
        "attributes": [_attribute(name, value) for name, value in values.items() if value],
    }


def _attribute(name: str, value: str) -> dict[str, Any]:
    return {"key": name, "value": {"stringValue": value}}


def _json(row: AuditRow) -> str:
    return json.dumps(AuditOut.model_validate(row).model_dump())
