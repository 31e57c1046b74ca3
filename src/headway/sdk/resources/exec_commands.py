"""Commands on the login node."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence

from headway.errors import Unreachable
from headway.schemas.base import ErrorOut
from headway.schemas.submission.exec_commands import CommandIn, ExecIn, ExecOut
from headway.schemas.submission.stream_frames import frames
from headway.sdk.connection import Resource, cluster_path
from headway.sdk.errors import error_from_answer
from headway.sdk.stdin import forward_stdin


class Commands(Resource):
    """Commands on a cluster's login node."""

    def exec(self, cluster: str, request: ExecIn, *, timeout_s: float = 3600.0) -> ExecOut:
        """Runs one command on the login node and returns its exit code and output unchanged."""
        return self._connection.post(cluster_path(cluster, "exec"), ExecOut, request, timeout_s=timeout_s)

    def stream(
        self, cluster: str, argv: Sequence[str], user: str = "", read: Callable[[], bytes] | None = None
    ) -> Generator[tuple[str, bytes]]:
        """Yields ("out" | "err", bytes) of a command on the login node as they arrive, and last ("code", digits).

        `read` returns the next piece of standard input, b"" at its end; it is called in a thread. Closing the iterator ends the
        command."""
        path = cluster_path(cluster, "commands")
        key = os.urandom(16).hex() if read else ""
        request = CommandIn(argv=list(argv), user=user, input=key)
        with self._connection.stream(path, None, None, method="POST", body=request) as answer:
            if read:
                forward_stdin(lambda piece: self._connection.send_piece(f"{path}/{key}/input", piece), read)
            for kind, data in frames(answer.iter_raw()):
                if kind == "error":
                    raise error_from_answer(ErrorOut.model_validate_json(data))
                yield kind, data
                if kind == "code":
                    return
        raise Unreachable("the server ended before the command did", hint="headway server status")
