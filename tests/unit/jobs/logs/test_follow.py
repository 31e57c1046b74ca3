"""A log is followed while its job waits, writes, restarts and ends, against a stand-in head and without real
waits."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import CommandFailed, NotFound, Refused, Unreachable
from headway.jobs.logs.follow import LogPiece, follow_log
from headway.transport.process import CommandResult
from tests.support.clusters.builders import job, machine, question_of

HEAD = machine("lab-head")
PATH = "/home/alice/slurm-7.out"
WAITS = replace(job(7), user="alice", state="PENDING", reason="Resources", stdout=PATH, stderr="/home/alice/7.err")
RUNS = replace(WAITS, state="RUNNING", reason="")
DONE = replace(RUNS, state="COMPLETED")


class Job:
    """How the job stands, as the test moves it on; each look lets everybody else run first."""

    def __init__(self, now: JobState) -> None:
        self.now = now
        self.looks = 0
        self.error: Exception | None = None

    async def __call__(self) -> JobState:
        self.looks += 1
        await asyncio.sleep(0)
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return self.now


class Head:
    """Frames that the test sends, and the file as it is at the end."""

    def __init__(self, file: bytes | None = b"") -> None:
        self.file = file
        self.frames: asyncio.Queue[bytes | Exception] = asyncio.Queue()
        self.follows: list[dict[str, Any]] = []
        self.open = 0

    async def remote(self, machine: Any, argv: Sequence[str], **options: Any) -> CommandResult:
        (one,) = question_of(options["input"])[0]["files"]
        if self.file is None:
            return CommandResult((), 0, json.dumps({"error": "", "missing": True}), "", 0.0)
        part = self.file[one["offset"] : one["offset"] + one["limit"]]
        answer = {"size": len(self.file), "offset": one["offset"], "b64": base64.b64encode(part).decode()}
        return CommandResult((), 0, json.dumps(answer), "", 0.0)

    async def stream(
        self, machine: Any, argv: Sequence[str], *, timeout_s: float | None = None
    ) -> AsyncIterator[bytes]:
        self.follows.append(json.loads(argv[-1]))
        self.open += 1
        try:
            while True:
                frame = await self.frames.get()
                if isinstance(frame, Exception):
                    raise frame
                yield frame
        finally:
            self.open -= 1

    def write(self, data: bytes) -> None:
        self.file = (self.file or b"") + data
        self.frames.put_nowait(b"D %d\n" % len(data) + data)


def tail(head: Head, now: Job, **options: Any) -> AsyncIterator[bytes]:
    return follow_log(head, HEAD, now, **{"follow": True, "poll_s": 0, **options})


async def take(chunks: AsyncIterator[bytes]) -> bytes:
    async with asyncio.timeout(60):
        return await anext(chunks)


async def rest(chunks: AsyncIterator[bytes]) -> bytes:
    async with asyncio.timeout(60):
        return b"".join([chunk async for chunk in chunks])


async def test_follow_reports_pending_reasons_and_reads_to_the_last_line() -> None:
    head, now = Head(), Job(WAITS)
    chunks = tail(head, now)
    assert await take(chunks) == b"--- pending (Resources): waits until enough nodes or GPUs are free ---\n"
    now.now = replace(WAITS, reason="Priority")
    assert await take(chunks) == b"--- pending (Priority): waits behind jobs of higher priority ---\n"
    now.now = RUNS
    head.write(b"step 1\n")
    assert await take(chunks) == b"step 1\n"
    head.file = b"step 1\nlast words\n"
    now.now = DONE
    assert await rest(chunks) == b"last words\n"
    assert head.follows == [{"do": "follow", "user": "alice", "path": PATH, "offset": 0}]
    assert head.open == 0, "nothing is left running on the head"


async def test_follow_accepts_frames_in_any_pieces() -> None:
    head, now = Head(b"ab\ncd"), Job(RUNS)
    chunks = tail(head, now)
    for piece in (b"D", b" 3\nab", b"\nD 2\n", b"cd"):
        head.frames.put_nowait(piece)
    assert await take(chunks) + await take(chunks) == b"ab\ncd"
    now.now = DONE
    assert await rest(chunks) == b""


async def test_follow_announces_a_restart_before_the_new_output() -> None:
    head, now = Head(), Job(RUNS)
    chunks = tail(head, now)
    head.write(b"step 1\nstep 2\n")
    assert await take(chunks) == b"step 1\nstep 2\n"
    now.now = replace(RUNS, restarts=1)
    head.file = b""
    head.frames.put_nowait(b"T\n")
    head.write(b"step 2\n")
    said, new = await take(chunks), await take(chunks)
    assert (said, isinstance(said, LogPiece)) == (b"--- restarted (1) ---\n", False)
    assert (new, isinstance(new, LogPiece) and new.offset) == (b"step 2\n", 0)
    now.now = replace(DONE, restarts=1)
    assert await rest(chunks) == b"", "told once, and the new file's end was reached"


async def test_follow_resumes_at_its_offset_after_a_broken_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.jobs.logs.follow.RETRY_S", 0)
    head, now = Head(), Job(RUNS)
    chunks = tail(head, now)
    head.write(b"one\n")
    assert await take(chunks) == b"one\n"
    now.error = Unreachable("the head is away")
    head.frames.put_nowait(Unreachable("broke"))
    head.write(b"two\n")
    assert await take(chunks) == b"two\n"
    assert [f["offset"] for f in head.follows] == [0, 4]
    now.now = DONE
    assert await rest(chunks) == b""


async def test_follow_refuses_an_unreadable_file_with_the_reason() -> None:
    head, now = Head(), Job(RUNS)
    head.frames.put_nowait(CommandFailed(["python3"], 97, f"{PATH}: Permission denied"))
    with pytest.raises(Refused, match="Permission denied"):
        await rest(tail(head, now))
    assert head.open == 0


async def test_closing_the_follow_ends_its_stream_on_the_head() -> None:
    head, now = Head(), Job(RUNS)
    chunks = tail(head, now)
    head.write(b"one\n")
    await take(chunks)
    await chunks.aclose()  # type: ignore[attr-defined]
    assert head.open == 0


async def test_log_of_an_ended_job_or_without_follow_is_read_once() -> None:
    assert await rest(tail(Head(b"so far\n"), Job(RUNS), follow=False)) == b"so far\n"
    assert await rest(tail(Head(b"all\n"), Job(DONE))) == b"all\n"
    with pytest.raises(NotFound, match="has not written") as caught:
        await rest(tail(Head(None), Job(WAITS), follow=False))
    assert caught.value.hint == "it waits: Resources"


async def test_follow_reads_stderr_and_refuses_jobs_without_a_log_file() -> None:
    head, now = Head(), Job(RUNS)
    chunks = tail(head, now, err=True)
    head.write(b"e\n")
    await take(chunks)
    assert head.follows[0]["path"] == "/home/alice/7.err"
    await chunks.aclose()  # type: ignore[attr-defined]
    with pytest.raises(NotFound, match="no log file"):
        await rest(tail(Head(), Job(replace(RUNS, stdout=""))))


async def test_each_log_piece_has_its_file_offset() -> None:
    head, now = Head(b"step 1\n"), Job(RUNS)
    chunks = tail(head, now, start=7)
    head.write(b"step 2\n")
    head.write(b"step 3\n")
    parts = [await take(chunks), await take(chunks)]
    assert [(part, getattr(part, "offset", None)) for part in parts] == [(b"step 2\n", 7), (b"step 3\n", 14)]
    head.file = (head.file or b"") + b"end\n"
    now.now = DONE
    assert [(part, getattr(part, "offset", None)) async for part in chunks] == [(b"end\n", 21)]
