"""Writes logs as JSON lines to server.log in the state folder, without secrets: values under known names and
anything shaped like a token are blanked."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import structlog

from headway import paths
from headway.domain.access.token_text import TOKEN_PATTERN

KEEP_BYTES = 20 * 1024 * 1024
_SECRET_NAMES = frozenset({"authorization", "code", "cookie", "key", "password", "secret", "token", "value"})
_SECRET_TEXT = re.compile(TOKEN_PATTERN + r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_.-]+|://[^/\s:@]+:[^/\s@]+@")
BLANK = "[removed]"


def configure_logging(state_dir: Path) -> None:
    """Sends structlog's output and the libraries' warnings to the log file, with mode 600."""
    file = state_dir / paths.LOG_FILE
    file.touch(mode=0o600)
    file.chmod(0o600)
    out: Any = RotatingLogHandler(_opened(file), file)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            blank_secrets,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(file=out),
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers[:] = [_StructlogHandler(logging.WARNING)]


def _opened(file: Path) -> int:
    return os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


class RotatingLogHandler:
    """A log file that ignores write errors: a full disk must not stop the work that is being logged. At KEEP_BYTES
    it is renamed to FILE.1 and a new file is started."""

    def __init__(self, handle: int, file: Path | None = None) -> None:
        self._handle = handle
        self._file = file
        self._room = KEEP_BYTES - os.fstat(handle).st_size

    def write(self, text: str) -> int:
        """Appends the text; errors are ignored. Rotates the file first if it would grow beyond KEEP_BYTES."""
        data = text.encode(errors="replace")
        with contextlib.suppress(OSError):
            if self._file is not None and self._room < len(data):
                self._turn(self._file)
            self._room -= os.write(self._handle, data)
        return len(text)

    def _turn(self, file: Path) -> None:
        """Renames the file to FILE.1 and continues in a new one."""
        self._room = KEEP_BYTES  # reset even if the rename fails, so that it is not retried with each line
        file.replace(file.with_name(f"{file.name}.1"))
        fresh = _opened(file)
        os.dup2(fresh, self._handle, inheritable=False)
        os.close(fresh)

    def flush(self) -> None:
        """Does nothing: `write` does not buffer."""
        ...


def blank_secrets(_logger: Any, _method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Blanks values under a secret's name and text that looks like a secret (a structlog processor)."""
    for name, value in entry.items():
        if name.lower() in _SECRET_NAMES:
            entry[name] = BLANK
        elif isinstance(value, str):
            entry[name] = _SECRET_TEXT.sub(BLANK, value)
    return entry


class _StructlogHandler(logging.Handler):
    """Forwards the log records of libraries to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(
            record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info or None
        )
