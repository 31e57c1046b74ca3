"""Reads a part of a job's log: a window before a given offset, or the lines that contain a text."""

from __future__ import annotations

import base64
import codecs
import json
from typing import Any

from headway.domain.machine import Machine
from headway.domain.slurm.state import JobState
from headway.errors import HeadwayError, NotFound
from headway.jobs.remote.user_helper import HelperConnections, call_helper
from headway.schemas.jobs import LogFoundOut, LogLineOut, LogPartOut

WINDOW_BYTES = 256 * 1024  # bytes at most
MAX_MATCHES = 200


async def read_log_window(
    links: HelperConnections, head: Machine, job: JobState, *, before: int | None, lines: int, err: bool
) -> LogPartOut:
    """The last `lines` before byte `before` (None: of all there is), whole ones as far as they are not longer than the
    window. Nothing where nothing is written yet; NotFound where there is no log file at all."""
    path = _path(job, err)
    start = -WINDOW_BYTES if before is None else max(0, before - WINDOW_BYTES)
    limit = WINDOW_BYTES if before is None else before - start
    ask = {"do": "read", "files": [{"user": job.user, "path": path, "offset": start, "limit": limit}]}
    ran = await call_helper(links, head, ask, timeout_s=30)
    told = _told(ran.stdout, path, head)
    if told.get("missing"):
        return LogPartOut(text="", start=0, end=0, size=0)
    return last_lines(base64.b64decode(told["b64"]), int(told["offset"]), int(told["size"]), lines)


def last_lines(data: bytes, offset: int, size: int, lines: int) -> LogPartOut:
    """The last lines of what was read; half a line at its beginning is left for the part before. The last line may be half
    of one: there is no line break at its end then."""
    data = _whole(data)
    end = offset + len(data)
    if offset:
        first = data.find(b"\n") + 1
        if 0 < first < len(data):
            data = data[first:]
    kept = data.splitlines(keepends=True)[-lines:]
    text = b"".join(kept)
    return LogPartOut(text=text.decode(errors="replace"), start=end - len(text), end=end, size=size)


def _whole(data: bytes) -> bytes:
    """Without the part of a character at its end: the rest of it comes with what follows."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data[-4:])
    return data.removesuffix(decoder.getstate()[0])


async def search_log(links: HelperConnections, head: Machine, job: JobState, text: str, *, err: bool) -> LogFoundOut:
    """Lines that hold the text, whatever its case; the search is done on the cluster."""
    path = _path(job, err)
    ask = {"do": "search", "user": job.user, "path": path, "text": text, "most": MAX_MATCHES}
    ran = await call_helper(links, head, ask, timeout_s=30)
    told = _told(ran.stdout, path, head)
    if told.get("missing"):
        return LogFoundOut(found=[])
    found = [LogLineOut.model_validate(one) for one in told["found"]]
    return LogFoundOut(found=found, more=told["looked"] < told["size"])


def _path(job: JobState, err: bool) -> str:
    path = job.stderr if err else job.stdout
    if not path.startswith("/"):
        raise NotFound(f"job {job.id} has no log file on the cluster", hint="sbatch --output=FILE")
    return path


def _told(stdout: str, path: str, head: Machine) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(stdout or '{"error": "no answer"}')
    if told.get("error"):
        raise HeadwayError(f"{path} on {head.name}: {told['error']}")
    return told
