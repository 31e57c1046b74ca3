"""What goes on over the loss of its server: how far a followed log has come, and how long to try again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headway.errors import Refused, Unreachable
from headway.schemas.base import ErrorOut
from headway.schemas.stream_frames import frames
from headway.sdk.errors import to_error

if TYPE_CHECKING:
    import httpx

RETRY_S = 0.5
# Of who waits for a job's end without a time limit. A machine that is mended by the next day's work is lived through; a server
# that is gone for good, or another cluster's address, holds nobody's script for ever.
MOST_AWAY_S = 2 * 86400.0


@dataclass
class LogReading:
    """What the frames of a log (schemas.stream_frames) have said, over all answers that it came in."""

    at: int | None = None  # the byte of its file that comes next; None where it is of many files
    ended: bool = False
    failed: ErrorOut | None = None
    _given: bool = False
    _said: bytes = b""

    @property
    def can_go_on(self) -> bool:
        """Whether another answer goes on where this one broke off."""
        return self.at is not None or not self._given

    def take(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The log's bytes. Raises Refused for what are no frames."""
        try:
            for kind, data in frames(pieces):
                if kind == "at":
                    self.at = int(data)
                elif kind == "error":
                    self.failed = ErrorOut.model_validate_json(data)
                elif kind == "end":
                    self.ended = True
                elif kind == "out" or self.at is None or data != self._said:
                    # Why it waits is said again to who comes again.
                    self._given = True
                    if kind == "out":
                        self.at = (self.at or 0) + len(data)
                    else:
                        self._said = data
                    yield data
        except ValueError:
            raise Refused(
                "the server answers in a way that this headway does not understand",
                hint="headway version shows both; install the server's version here, or start the server again",
            ) from None


class Patience:
    """With a server that goes away: so many seconds after each loss."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: float | None = None
        self._heard = False

    def heard(self) -> None:
        """It answers."""
        self._heard, self._until = True, None

    def lost(self, error: Unreachable, *, for_good: bool) -> None:
        """Waits a moment; raises the error when it was never there, or has been away for too long."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._seconds
        if for_good or not self._heard or now >= self._until:
            raise error
        time.sleep(RETRY_S)


class Away:
    """A server that does not answer who waits for a job's end: the job runs on, so this is no end. `on_lost` is called once
    a loss."""

    def __init__(self, on_lost: Callable[[Unreachable], None] | None) -> None:
        self._on_lost = on_lost
        self._since = 0.0
        self.why: Unreachable | None = None  # while it does not answer

    def heard(self) -> None:
        self.why = None

    def lost(self, error: Unreachable) -> None:
        """Raises the error after MOST_AWAY_S without any answer."""
        now = time.monotonic()
        if self.why is None:
            self._since = now
            if self._on_lost is not None:
                self._on_lost(error)
        elif now - self._since > MOST_AWAY_S:
            raise error
        self.why = error


def followed(
    ask: Callable[[dict[str, str]], AbstractContextManager[httpx.Response]],
    reconnect: Callable[[], object],
    patience_s: float,
) -> Iterator[bytes]:
    """The log's bytes until its end. `ask`: for its answer from a place on. Raises Unreachable when no server comes for
    `patience_s` seconds, or the place is not known, and what the server says."""
    reading, patience = LogReading(), Patience(patience_s)
    while True:
        try:
            with ask({"start": str(reading.at)} if reading.at else {}) as answer:
                patience.heard()
                yield from reading.take(answer.iter_raw())
        except Unreachable as caught:
            error = caught
        else:
            error = Unreachable("the server ended before the log did", hint="headway server status")
        if reading.failed is not None:
            raise to_error(reading.failed)
        if reading.ended:
            return
        patience.lost(error, for_good=not reading.can_go_on)
        reconnect()
