"""Sends the server's own log, server.log, to a syslog server as it is written (HEADWAY_LOG_SYSLOG)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from logging.handlers import SysLogHandler
from pathlib import Path

import structlog

from headway import paths
from headway.private_files import write_private
from headway.server.syslog import send_lines
from headway.services.server_settings import SyslogServer

LOOK_S = 1.0
AGAIN_S = 10.0  # seconds until the next try after the syslog server failed
BATCH = 500  # lines
POSITION = "log-export.json"  # file in the state folder: inode and number of sent bytes of the log
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "critical": logging.CRITICAL}

log = structlog.get_logger("headway.server.log_export")


class LogExport:
    """Sends each line of the log in order. Lines wait in the log while the syslog server does not answer, and may arrive twice
    after that; they are lost if the log is rotated twice meanwhile."""

    def __init__(
        self, state_dir: Path, server: SyslogServer, pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._file = state_dir / paths.LOG_FILE
        self._position_file = state_dir / POSITION
        self._server = server
        self._pause = pause
        self._fault = ""

    async def run(self) -> None:
        """Sends until cancelled."""
        while True:
            await self._pause(LOOK_S if await self.send_new() else AGAIN_S)

    async def send_new(self) -> bool:
        """Sends the lines that were not sent yet. Returns whether the syslog server took them."""
        try:
            await asyncio.to_thread(self._send)
        except OSError as error:
            fault = f"{type(error).__name__}: {error}"
            if fault != self._fault:
                log.warning("the server's log is not sent", error=fault)
            self._fault = fault
            return False
        self._fault = ""
        return True

    def _send(self) -> None:
        inode, sent = self._position()
        before = self._file.with_name(f"{self._file.name}.1")  # the name of a log that was rotated
        if before.exists() and before.stat().st_ino == inode:
            self._send_file(before, sent)
        now = self._file.stat()
        self._send_file(self._file, sent if now.st_ino == inode and now.st_size >= sent else 0)

    def _send_file(self, file: Path, at: int) -> None:
        """Sends the complete lines from byte `at` on. Stores which were sent, also if one can't be sent."""
        with file.open("rb") as opened:
            inode = os.fstat(opened.fileno()).st_ino
            opened.seek(at)
            while lines := [line for line in islice(opened, BATCH) if line.endswith(b"\n")]:
                taken: list[bytes] = []
                try:
                    send_lines(self._server, "headway-server", SysLogHandler.LOG_DAEMON, _leveled(lines, taken))
                except BaseException:
                    self._store(inode, at + sum(map(len, taken[:-1])))
                    raise
                at += sum(map(len, lines))
                self._store(inode, at)

    def _store(self, inode: int, sent: int) -> None:
        write_private(self._position_file, json.dumps({"inode": inode, "sent": sent}))

    def _position(self) -> tuple[int, int]:
        """Returns the inode of the log, and how many bytes of it were sent."""
        try:
            found = json.loads(self._position_file.read_text())
            return int(found["inode"]), int(found["sent"])
        except (OSError, ValueError, KeyError, TypeError):  # none yet: the whole log is sent
            return 0, 0


def _leveled(lines: list[bytes], taken: list[bytes]) -> Iterator[tuple[int, str]]:
    """Yields (level, text) of each line, and adds the line to `taken`."""
    for line in lines:
        taken.append(line)
        text = line.decode(errors="replace").rstrip("\n")
        yield _level(text), text


def _level(line: str) -> int:
    """Returns the level of a line of the log; ERROR for a line that is no JSON, such as one of a traceback."""
    try:
        return _LEVELS.get(json.loads(line)["level"], logging.ERROR)
    except (ValueError, KeyError, TypeError):
        return logging.ERROR
