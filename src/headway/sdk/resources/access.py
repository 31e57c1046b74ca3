"""Tokens and people."""

from __future__ import annotations

import builtins
from collections.abc import Iterator

from headway.schemas.access.audit import AuditCheckOut
from headway.schemas.access.people import PersonIn, PersonOut
from headway.schemas.access.tokens import SignInLinkOut, TokenIn, TokenOut
from headway.sdk.connection import Resource, path_segment

AUDIT_CHECK_TIMEOUT_S = 600  # the server reads the whole audit trail


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

    def disable(self, person: str) -> PersonOut:
        """Disables the person: their tokens, sessions, jobs and SSH sessions end."""
        return self._connection.post(f"/people/{path_segment(person)}/disable", PersonOut)

    def enable(self, person: str) -> PersonOut:
        """Enables a disabled person."""
        return self._connection.post(f"/people/{path_segment(person)}/enable", PersonOut)

    def delete(self, person: str) -> None:
        """Removes the person: their tokens, sessions, jobs and SSH sessions end."""
        self._connection.request_json("DELETE", f"/people/{path_segment(person)}")

    def audit_trail(self, filters: dict[str, str]) -> Iterator[bytes]:
        """Yields the audit trail in the server's export format; `filters`: person, action, target, format (jsonl or csv)."""
        with self._connection.stream("/audit/export", filters, self._connection.timeout_s) as answer:
            yield from answer.iter_bytes()

    def verify_audit(self, number: int = 0, known_hash: str = "") -> AuditCheckOut:
        """Checks the hash chain of the audit trail. `number` and `known_hash` are of a line exported earlier."""
        known = {"number": str(number), "hash": known_hash} if number else {}
        answer = self._connection.request_json("GET", "/audit/verify", params=known, timeout_s=AUDIT_CHECK_TIMEOUT_S)
        return self._connection.parse(AuditCheckOut, answer)
