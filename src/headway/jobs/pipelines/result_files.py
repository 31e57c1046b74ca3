"""Reads the results that steps recorded in their pipeline's folder, on the head and as the folder's owner."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

from headway.domain.machines.machine import Machine
from headway.jobs.remote.user_helper import HelperConnections, call_helper

_FILE_BYTES = 256 * 1024  # as node/pipeline_step reads
_TIMEOUT_S = 10


async def read_result_files(
    links: HelperConnections, head: Machine, user: str, paths: Sequence[str]
) -> dict[str, bytes]:
    """Returns the content of these files by path, without files that do not exist or that the user may not read. Reads regular
    files only, and runs no command of the user. Raises HeadwayError if the head does not answer within 10 s."""
    words = [{"user": user, "path": path, "offset": 0, "limit": _FILE_BYTES} for path in paths]
    ran = await call_helper(links, head, {"do": "read", "files": words}, timeout_s=_TIMEOUT_S)
    answers = zip(paths, map(json.loads, ran.stdout.splitlines()), strict=False)
    return {path: base64.b64decode(answer["b64"]) for path, answer in answers if "b64" in answer}
