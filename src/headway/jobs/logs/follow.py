"""Follows a job's log: waits for the job to start, reads the file as the job's user, and ends with the job."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from headway.domain.machines.machine import Machine
from headway.domain.slurm.job_states import ENDED
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import CommandFailed, HeadwayError, NotFound, Unreachable
from headway.jobs.explain.reason_lines import pending_line
from headway.jobs.remote.user_helper import HelperConnections, call_helper, helper_argv, stream_error
from headway.transport.program_io import StreamSplitter

_READ_LIMIT = 1024 * 1024
# The most bytes of a frame. node/user_helper sends a quarter of it at once, but runs as the user, so it is not trusted.
_FRAME = 1024 * 1024
_RECONNECT_S = 60.0  # seconds that an unreachable head may take to come back
RETRY_S = 1.0


class LogPiece(bytes):
    """Bytes of the file. `offset` is the position of the first of them in the file."""

    offset: int


def log_piece(data: bytes, at: int) -> LogPiece:
    """Returns the data as a LogPiece that begins at byte `at`."""
    made = LogPiece(data)
    made.offset = at
    return made


def is_log_file(path: str) -> bool:
    """Returns whether a job's output goes to a file that can be read."""
    return path.startswith("/") and not path.startswith("/dev/")


ReadJob = Callable[[], Awaitable[JobState]]


async def follow_log(
    links: HelperConnections,
    head: Machine,
    job_now: ReadJob,
    *,
    follow: bool,
    err: bool = False,
    start: int = 0,
    poll_s: float = 1.0,
) -> AsyncIterator[bytes]:
    """Yields the bytes of the job's output (`err`: of its error file) from `start` on, each a LogPiece. Between them,
    lines `--- ... ---` by Headway are plain bytes.

    `job_now` returns the job's state (SlurmReader.job, or the server's record). Without `follow`, yields what the file
    has now. Raises NotFound when there is no file and there will be none, Refused when the job's user may not read it."""
    job = await job_now()
    path = job.stderr if err else job.stdout
    if not is_log_file(path):
        raise NotFound(
            f"job {job.id} has no log file on the cluster (its output goes to {path or 'no file'})",
            hint="sbatch --output=FILE",
        )
    if not follow or job.state in ENDED:
        part = _LogReader(links, head, job.user, path, start)
        async for chunk in part.read_rest():
            yield chunk
        if part.missing:
            raise NotFound(f"job {job.id} ({job.state}) has not written {path}", hint=_why(job))
        return
    async with contextlib.aclosing(_Follow(links, head, job, path, job_now, poll_s, start).run()) as chunks:
        async for chunk in chunks:
            yield chunk


def _why(job: JobState) -> str:
    return f"it waits: {job.reason}" if job.state == "PENDING" and job.reason else ""


@dataclass
class _LogReader:
    """Reads a file from an offset to its current end."""

    links: HelperConnections
    head: Machine
    user: str
    path: str
    offset: int = 0
    missing: bool = False

    async def read_rest(self) -> AsyncIterator[bytes]:
        """Yields the file from the offset to its current end. Sets `missing` when there is no file."""
        while True:
            request = {"user": self.user, "path": self.path, "offset": self.offset, "limit": _READ_LIMIT}
            ran = await call_helper(self.links, self.head, {"do": "read", "files": [request]}, timeout_s=30)
            answer = json.loads(ran.stdout or '{"error": "no answer"}')
            if answer.get("missing"):
                self.missing = True
                return
            if answer.get("error"):
                raise HeadwayError(f"{self.path} on {self.head.name}: {answer['error']}")
            data = base64.b64decode(answer["b64"])
            if data:
                yield log_piece(data, self.offset)
            self.offset += len(data)
            if len(data) < _READ_LIMIT:
                return


class _Follow:
    """Follows a log that still grows: one task reads the file, one reads the job's state; both write to one queue."""

    def __init__(
        self,
        links: HelperConnections,
        head: Machine,
        job: JobState,
        path: str,
        job_now: ReadJob,
        poll_s: float,
        start: int,
    ) -> None:
        self._links, self._head, self._path = links, head, path
        self._job, self._job_now, self._poll_s = job, job_now, poll_s
        self._queue: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue(64)
        self._offset = start
        self._reported = ""
        self._restarts = job.restarts
        self._ended = asyncio.Event()

    async def run(self) -> AsyncGenerator[bytes, None]:
        """Yields what both tasks put into the queue until the job has ended and its log is read."""
        reader = asyncio.create_task(self._guard(self._read()))
        watcher = asyncio.create_task(self._guard(self._watch()))
        try:
            while (item := await self._queue.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            for task in (reader, watcher):
                task.cancel()
            await asyncio.gather(reader, watcher, return_exceptions=True)

    async def _guard(self, work: Awaitable[None]) -> None:
        """Runs one of the tasks and passes an error to the caller of `run`, which ends both."""
        try:
            await work
        except Exception as error:  # passed to the caller, which raises it
            await self._queue.put(error)

    async def _watch(self) -> None:
        silent_s = 0.0
        while True:
            await self._report_state()
            if self._job.state in ENDED:
                self._ended.set()
                return
            await asyncio.sleep(self._poll_s)
            try:
                self._job = await self._job_now()
                silent_s = 0.0
            except Unreachable:
                silent_s += self._poll_s
                if silent_s > _RECONNECT_S:
                    raise

    async def _report_state(self) -> None:
        """Reports why the job does not run yet, and each restart; repeats nothing."""
        job = self._job
        if job.restarts > self._restarts:
            self._restarts = job.restarts
            self._reported = ""
            await self._queue.put(f"--- restarted ({job.restarts}) ---\n".encode())
        if job.state == "PENDING":
            words = f"--- {pending_line(job)} ---\n"
            if words != self._reported:
                self._reported = words
                await self._queue.put(words.encode())

    async def _read(self) -> None:
        following = asyncio.create_task(self._follow())
        ended = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait({following, ended}, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()
        finally:
            following.cancel()
            ended.cancel()
            await asyncio.gather(following, ended, return_exceptions=True)
        part = _LogReader(self._links, self._head, self._job.user, self._path, self._offset)
        async for chunk in part.read_rest():
            await self._queue.put(chunk)
        if part.missing:
            raise NotFound(
                f"job {self._job.id} ended ({self._job.state}) without writing {self._path}",
                hint=f"headway job {self._head.cluster} {self._job.id}",
            )
        await self._queue.put(None)

    async def _follow(self) -> None:
        """Follows the file, and continues at the same position after the connection was lost."""
        away_since = 0.0
        while True:
            at = self._offset
            try:
                await self._frames()
            except CommandFailed as error:
                raise stream_error(error) from error
            except Unreachable:
                now = time.monotonic()
                away_since = now if self._offset != at or not away_since else away_since
                if now - away_since > _RECONNECT_S:
                    raise
            await asyncio.sleep(RETRY_S)

    async def _frames(self) -> None:
        request = {"do": "follow", "user": self._job.user, "path": self._path, "offset": self._offset}
        async with contextlib.aclosing(self._links.stream(self._head, helper_argv(request))) as chunks:  # type: ignore[type-var]
            reader = StreamSplitter(partial(anext, chunks, b""), most=_FRAME)
            while (line := await reader.line()) is not None:
                if line.startswith(b"D "):
                    data = await reader.exactly(int(line[2:]))
                    # The offset changes only after the put: when it is cancelled, the data is read again.
                    await self._queue.put(log_piece(data, self._offset))
                    self._offset += len(data)
                elif line == b"T":
                    await self._cut()

    async def _cut(self) -> None:
        """Starts at the beginning of a truncated file (Slurm truncates it when a requeued job starts again), and
        reports the restart before the new output."""
        self._offset = 0
        with contextlib.suppress(HeadwayError):
            self._job = await self._job_now()
        await self._report_state()
