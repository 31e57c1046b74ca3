"""Continues reading after a lost connection: the position in a followed log, and how long to reconnect."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headway.errors import Refused, Unreachable
from headway.schemas.base import ErrorOut
from headway.schemas.submission.stream_frames import frames
from headway.sdk.errors import error_from_answer

if TYPE_CHECKING:
    import httpx

RETRY_S = 0.5
RECONNECT_S = 60.0  # how long a followed log or operation reconnects after each lost connection
# Limit of `Job.wait` without a timeout, in seconds: long enough for a machine to be repaired on the next working day,
# but a server that never returns does not block a script forever.
MAX_OUTAGE_S = 2 * 86400.0


@dataclass
class LogReading:
    """The state of a log that arrives as frames (schemas.submission.stream_frames) in one or more answers."""

    at: int | None = None  # the next byte of its file; None for a log of several files
    ended: bool = False
    failed: ErrorOut | None = None
    _has_output: bool = False
    _last_message: bytes = b""

    @property
    def can_resume(self) -> bool:
        """Returns whether another request can continue where this answer broke off."""
        return self.at is not None or not self._has_output

    def read_frames(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yields the log's bytes. Raises Refused for an answer that is not made of frames."""
        try:
            for kind, data in frames(pieces):
                if kind == "at":
                    self.at = int(data)
                elif kind == "error":
                    self.failed = ErrorOut.model_validate_json(data)
                elif kind == "end":
                    self.ended = True
                elif kind == "out" or self.at is None or data != self._last_message:
                    # The server repeats the reason for waiting after each reconnect.
                    self._has_output = True
                    if kind == "out":
                        self.at = (self.at or 0) + len(data)
                    else:
                        self._last_message = data
                    yield data
        except ValueError:
            raise Refused(
                "this version of headway can't read the server's answer",
                hint="compare versions with headway version; install the server's version here, or restart the server",
            ) from None


class ReconnectDeadline:
    """Limits how long to reconnect: `seconds` after each loss."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: float | None = None
        self._answered = False

    def clear(self) -> None:
        """Records that the server answers."""
        self._answered, self._until = True, None

    def record(self, error: Unreachable, *, final: bool) -> None:
        """Sleeps before the next attempt; raises the error when `final`, before the first answer, or after the deadline."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._seconds
        if final or not self._answered or now >= self._until:
            raise error
        time.sleep(RETRY_S)


class ServerOutage:
    """An outage of the server while `Job.wait` polls: the job continues, so polling does too. `on_lost` is called once for each
    outage."""

    def __init__(self, on_lost: Callable[[Unreachable], None] | None) -> None:
        self._on_lost = on_lost
        self._since = 0.0
        self.error: Unreachable | None = None  # None while the server answers

    def clear(self) -> None:
        """Records that the server answers."""
        self.error = None

    def record(self, error: Unreachable) -> None:
        """Raises the error after MAX_OUTAGE_S without any answer."""
        now = time.monotonic()
        if self.error is None:
            self._since = now
            if self._on_lost is not None:
                self._on_lost(error)
        elif now - self._since > MAX_OUTAGE_S:
            raise error
        self.error = error


def follow_log(
    open_log: Callable[[dict[str, str]], AbstractContextManager[httpx.Response]],
    reconnect: Callable[[], object],
    patience_s: float,
) -> Iterator[bytes]:
    """Yields the log's bytes until its end; `open_log` requests it with these query parameters.

    Raises Unreachable when no server answers for `patience_s` seconds or the position is unknown, and the server's errors."""
    reading, deadline = LogReading(), ReconnectDeadline(patience_s)
    while True:
        try:
            with open_log({"start": str(reading.at)} if reading.at else {}) as answer:
                deadline.clear()
                yield from reading.read_frames(answer.iter_raw())
        except Unreachable as caught:
            error = caught
        else:
            error = Unreachable("the server stopped before the log ended", hint="headway server status")
        if reading.failed is not None:
            raise error_from_answer(reading.failed)
        if reading.ended:
            return
        deadline.record(error, final=not reading.can_resume)
        reconnect()
