"""Tokens, people, and commands on the login node."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Generator, Iterator, Sequence

from headway.errors import Unreachable
from headway.schemas.base import ErrorOut
from headway.schemas.people import PersonIn, PersonOut, SignInLinkOut, TokenIn, TokenOut
from headway.schemas.stream_frames import frames
from headway.schemas.submissions import CommandIn, ExecIn, ExecOut
from headway.sdk.connection import Resource, cluster_path, path_segment
from headway.sdk.errors import error_from_answer
from headway.sdk.stdin import forward_stdin


class Tokens(Resource):
    """Access tokens and sign-in links."""

    def sign_in_link(self) -> SignInLinkOut:
        """Returns a one-time link that signs a browser in as this person."""
        return self._connection.post("/signin-links", SignInLinkOut)

    def list(self) -> builtins.list[TokenOut]:
        """Returns this person's tokens, without their secrets (admins: everyone's)."""
        return self._connection.get_list("/tokens", TokenOut)

    def create(self, request: TokenIn) -> TokenOut:
        """Creates a token; only this answer carries its secret."""
        return self._connection.post("/tokens", TokenOut, request)

    def revoke(self, token_id: str) -> None:
        """Revokes a token."""
        self._connection.request_json("DELETE", f"/tokens/{path_segment(token_id)}")


class People(Resource):
    """The people who may sign in, and the audit trail."""

    def list(self) -> builtins.list[PersonOut]:
        """Returns everyone who may sign in."""
        return self._connection.get_list("/people", PersonOut)

    def put(self, person: str, request: PersonIn) -> PersonOut:
        """Creates the person, or sets their role and Linux user."""
        return self._connection.parse(
            PersonOut, self._connection.request_json("PUT", f"/people/{path_segment(person)}", body=request)
        )

    def delete(self, person: str) -> None:
        """Removes the person and ends their tokens and sessions."""
        self._connection.request_json("DELETE", f"/people/{path_segment(person)}")

    def audit_trail(self, filters: dict[str, str]) -> Iterator[bytes]:
        """Yields the audit trail in the server's export format; `filters`: person, action, target, format (jsonl or csv)."""
        with self._connection.stream("/audit/export", filters, self._connection.timeout_s) as answer:
            yield from answer.iter_bytes()


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
