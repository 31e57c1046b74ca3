"""A job's progress, from its own log: lines like `step 120 loss 1.873`, read on from where the last look ended."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from headway.domain.live import JobState
from headway.domain.machine import Machine
from headway.jobs.remote import Links, call

MOST_POINTS = 500
FIRST_LOOK = 4 * 1024 * 1024  # bytes of a log that is already there when first looked at: its end
EACH_LOOK = 1024 * 1024
_LONGEST_LINE = 4096
_LINE = re.compile(
    rb"\bstep[ \t:=#]*(\d{1,12})\b.*?\bloss[ \t:=]*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf)\b", re.IGNORECASE
)


@dataclass
class Progress:
    """What a log has said so far. `series` has at most MOST_POINTS points, evenly thinned, the last one always in."""

    step: int = 0
    loss: float = math.nan
    seen: bool = False
    _points: list[tuple[int, float]] = field(default_factory=list)
    _stride: int = 1
    _skipped: int = 0
    _rest: bytes = b""

    def feed(self, data: bytes) -> None:
        """More of the log, in any pieces."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[-_LONGEST_LINE:]
        for line in lines:
            for part in line.split(b"\r"):  # progress bars write over their own line
                self._line(part)

    def cut(self) -> None:
        """The log begins anew (a requeued job): half a line is dropped; what was learned stays until passed again."""
        self._rest = b""

    @property
    def series(self) -> list[tuple[int, float]]:
        if self.seen and (not self._points or self._points[-1][0] != self.step):
            return [*self._points, (self.step, self.loss)]
        return list(self._points)

    def _line(self, line: bytes) -> None:
        found = _LINE.search(line[:_LONGEST_LINE])
        if found is None:
            return
        step, loss = int(found[1]), float(found[2])
        if not math.isfinite(loss):
            loss = math.nan
        if self.seen and step <= self.step:  # went on from a checkpoint: the steps after it are done again
            self._points = [point for point in self._points if point[0] < step]
            self._skipped = 0
        self.step, self.loss, self.seen = step, loss, True
        if math.isnan(loss):
            return
        if self._skipped:
            self._skipped -= 1
            return
        self._points.append((step, loss))
        self._skipped = self._stride - 1
        if len(self._points) >= MOST_POINTS:
            self._points = self._points[::2]  # the last one, this one, is among those that go
            self._stride *= 2


@dataclass
class _Followed:
    path: str
    offset: int = -FIRST_LOOK
    restarts: int = 0
    progress: Progress = field(default_factory=Progress)


class ProgressReader:
    """Keeps the progress of one cluster's running jobs: one remote call a look, however many jobs."""

    def __init__(self, links: Links, head: Machine) -> None:
        self._links = links
        self._head = head
        self._jobs: dict[int, _Followed] = {}

    def known(self, job_id: int) -> Progress | None:
        """What the last look saw; None when the log has no such line."""
        followed = self._jobs.get(job_id)
        return followed.progress if followed and followed.progress.seen else None

    async def look(self, jobs: Iterable[JobState]) -> None:
        """Reads what these jobs have written since; forgets those that are no longer among them."""
        wanted = {job.id: job for job in jobs if job.stdout.startswith("/") and job.start_time}
        self._jobs = {
            job.id: self._jobs.get(job.id) or _Followed(job.stdout, restarts=job.restarts) for job in wanted.values()
        }
        if not wanted:
            return
        files = [
            {
                "user": wanted[i].user,
                "path": f.path,
                "offset": f.offset,
                "limit": FIRST_LOOK if f.offset < 0 else EACH_LOOK,
            }
            for i, f in self._jobs.items()
        ]
        for start in range(0, len(files), 100):  # the question is one word of a command, and has a longest size
            ran = await call(self._links, self._head, {"do": "read", "files": files[start : start + 100]}, timeout_s=30)
            asked = list(self._jobs.values())[start : start + 100]
            for followed, line in zip(asked, ran.stdout.splitlines(), strict=False):
                self._take(followed, json.loads(line))

    @staticmethod
    def _take(followed: _Followed, answer: dict[str, object]) -> None:
        if "size" not in answer:
            return
        size, offset = int(str(answer["size"])), int(str(answer["offset"]))
        if size < offset:  # cut short: begin again with the next look
            followed.offset = 0
            followed.progress.cut()
            return
        data = base64.b64decode(str(answer["b64"]))
        followed.offset = offset + len(data)
        followed.progress.feed(data)
