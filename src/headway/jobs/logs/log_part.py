"""Reads a part of a job's log: a window before a given offset, or the lines that contain a text."""

from __future__ import annotations

import base64
import codecs
import json
from io import BytesIO
from typing import Any

from headway.domain.machines.machine import Machine
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError, NotFound
from headway.jobs.remote.user_helper import HelperConnections, call_helper
from headway.schemas.jobs import LogFoundOut, LogLineOut, LogPartOut

WINDOW_BYTES = 256 * 1024  # the most bytes of one part
MAX_MATCHES = 200


async def read_log_part(
    links: HelperConnections, head: Machine, job: JobState, *, before: int | None, lines: int, err: bool
) -> LogPartOut:
    """Returns the last `lines` lines before byte `before` (None: of the whole log), complete lines unless a line
    is longer than the window. Returns an empty part where the log has no content yet; raises NotFound where the
    job has no log file."""
    path = _path(job, err)
    start = -WINDOW_BYTES if before is None else max(0, before - WINDOW_BYTES)
    limit = WINDOW_BYTES if before is None else before - start
    request = {
        "do": "read",
        "files": [{"user": job.user, "path": path, "offset": start, "limit": limit, "count": True}],
    }
    ran = await call_helper(links, head, request, timeout_s=30)
    answer = _parse_answer(ran.stdout, path, head)
    if answer.get("missing"):
        return LogPartOut(text="", start=0, end=0, size=0)
    breaks = answer.get("breaks")
    return last_lines(base64.b64decode(answer["b64"]), int(answer["offset"]), int(answer["size"]), lines, breaks)


def last_lines(data: bytes, offset: int, size: int, lines: int, breaks: int | None = None) -> LogPartOut:
    """Returns the last lines of what was read. A partial line at the beginning is left for the part before it. The
    last line may be incomplete; then no line break ends it. `breaks`: the number of line breaks before the data, None if it
    is unknown."""
    data = _whole(data)
    before = data
    end = offset + len(data)
    if offset:
        first = data.find(b"\n") + 1
        if 0 < first < len(data):
            data = data[first:]
    kept = BytesIO(data).readlines()[-lines:]  # only at line breaks: progress bars overwrite their line after a "\r"
    text = b"".join(kept)
    dropped = before[: len(before) - len(text)]
    line = 0 if breaks is None else breaks + dropped.count(b"\n") + 1
    return LogPartOut(text=text.decode(errors="replace"), start=end - len(text), end=end, size=size, line=line)


def _whole(data: bytes) -> bytes:
    """Returns the data without an incomplete character at its end; the rest of the character comes with the next
    data."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data[-4:])
    return data.removesuffix(decoder.getstate()[0])


async def search_log(links: HelperConnections, head: Machine, job: JobState, text: str, *, err: bool) -> LogFoundOut:
    """Returns the lines that contain the text, in upper or lower case. The search runs on the cluster."""
    path = _path(job, err)
    request = {"do": "search", "user": job.user, "path": path, "text": text, "most": MAX_MATCHES}
    ran = await call_helper(links, head, request, timeout_s=30)
    answer = _parse_answer(ran.stdout, path, head)
    if answer.get("missing"):
        return LogFoundOut(found=[])
    found = [LogLineOut.model_validate(line) for line in answer["found"]]
    return LogFoundOut(found=found, more=answer["looked"] < answer["size"])


def _path(job: JobState, err: bool) -> str:
    path = job.stderr if err else job.stdout
    if not path.startswith("/"):
        raise NotFound(f"job {job.id} has no log file on the cluster", hint="sbatch --output=FILE")
    return path


def _parse_answer(stdout: str, path: str, head: Machine) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(stdout or '{"error": "no answer"}')
    if answer.get("error"):
        raise HeadwayError(f"{path} on {head.name}: {answer['error']}")
    return answer
