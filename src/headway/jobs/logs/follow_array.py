"""Follows the logs of an array: every task's lines as they are written, each with the task's number before it."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from headway.domain.machines.machine import Machine
from headway.domain.slurm.job_states import ENDED
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import NotFound
from headway.jobs.explain.reason_lines import pending_line
from headway.jobs.logs.follow import is_log_file
from headway.jobs.remote.user_helper import HelperConnections, call_helper

ReadTasks = Callable[[], Awaitable[Sequence[JobState]]]
_AT_ONCE = 50  # files of one request
_PIECE = 128 * 1024  # bytes of one file in one answer; times _AT_ONCE, the most that is in memory
_LONGEST_LINE = 64 * 1024


@dataclass
class _File:
    """One log and how far it has been read. Tasks that write to the same file share it, and its lines have no
    number."""

    user: str
    path: str
    label: str
    offset: int = 0
    rest: bytes = b""
    ended: bool = False  # this look reads all that the file will have

    def lines(self, data: bytes, *, last: bool) -> bytes:
        """Returns the complete lines with the label before each; with `last` also an incomplete last line."""
        self.offset += len(data)
        *whole, self.rest = (self.rest + data).split(b"\n")
        if (last or len(self.rest) > _LONGEST_LINE) and self.rest:
            whole, self.rest = [*whole, self.rest], b""
        mark = self.label.encode()
        return b"".join(b"%s%s\n" % (mark, line) for line in whole)


async def follow_array_logs(
    links: HelperConnections,
    head: Machine,
    tasks_now: ReadTasks,
    *,
    follow: bool,
    err: bool = False,
    poll_s: float = 0.5,
) -> AsyncIterator[bytes]:
    """Yields what all tasks have written; with `follow`, until the last task has ended. Raises NotFound when no
    task wrote a log."""
    files: dict[str, _File] = {}
    shown, anything = "", False
    while True:
        tasks = await tasks_now()
        _learn(files, tasks, err=err)
        # Computed once a look, because an array can have many tasks.
        unfinished = {_log(task, err=err) for task in tasks if task.state not in ENDED}
        going = follow and bool(unfinished)
        # An ended task may be requeued, so its file is read again when it is unfinished.
        reading = [file for file in files.values() if not file.ended or file.path in unfinished]
        for file in reading:  # a task that ended before this look has written everything
            file.ended = not going or file.path not in unfinished
        async for piece in _read(links, head, reading):
            anything = True
            yield piece
        if not going:
            break
        words = _waiting(tasks)
        if words and words != shown and not any(task.state in ("RUNNING", "COMPLETING") for task in tasks):
            yield f"--- {words} ---\n".encode()
        shown = words
        await asyncio.sleep(poll_s)
    if not anything and not any(file.offset for file in files.values()):
        nowhere = sorted({_log(task, err=err) for task in tasks if not is_log_file(_log(task, err=err))})
        if nowhere and not files:
            raise NotFound(
                f"no task of this array has a log file (its output goes to {', '.join(nowhere) or 'no file'})",
                hint="sbatch --output=FILE",
            )
        waits = "" if follow else "; headway logs -f waits for them"
        raise NotFound("no task of this array has written a log", hint=f"headway job shows their states{waits}")


def _learn(files: dict[str, _File], tasks: Sequence[JobState], *, err: bool) -> None:
    for task in tasks:
        path = _log(task, err=err)
        if not task.array_task.isdigit() or not is_log_file(path):
            continue
        if path not in files:
            files[path] = _File(task.user, path, f"[{task.array_task}] ")
        elif files[path].label not in ("", f"[{task.array_task}] "):
            files[path].label = ""


def _log(task: JobState, *, err: bool) -> str:
    return task.stderr if err else task.stdout


def _waiting(tasks: Sequence[JobState]) -> str:
    return next((pending_line(task) for task in tasks if task.state == "PENDING"), "")


async def _read(links: HelperConnections, head: Machine, files: list[_File]) -> AsyncIterator[bytes]:
    """Yields new lines of these files, up to their current ends."""
    for start in range(0, len(files), _AT_ONCE):
        some = files[start : start + _AT_ONCE]
        while some:
            request = [{"user": f.user, "path": f.path, "offset": f.offset, "limit": _PIECE} for f in some]
            ran = await call_helper(links, head, {"do": "read", "files": request}, timeout_s=60)
            more = []
            for file, line in zip(some, ran.stdout.splitlines(), strict=False):
                answer = json.loads(line)
                if "b64" not in answer:
                    continue
                data = base64.b64decode(answer["b64"])
                full = len(data) == _PIECE
                if answer["size"] < file.offset:  # the task was started again and the file truncated
                    file.offset, file.rest = 0, b""
                    more.append(file)
                    continue
                text = file.lines(data, last=file.ended and not full)
                if text:
                    yield text
                if full:
                    more.append(file)
            some = more
