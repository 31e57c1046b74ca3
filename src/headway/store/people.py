"""People, tokens, browser sessions, one-time sign-in codes and the audit trail. Only hashes of secrets are stored."""

from __future__ import annotations

import hashlib
import secrets as random
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Insert, delete, insert, select, update

from headway.errors import NotFound, Refused
from headway.store import schema as t
from headway.store.base import Base
from headway.store.records import ROLES, AuditRow, Person, Token

SIGNIN_CODE_S = 300.0
SESSION_S = 7 * 86400.0
_TOUCH_S = 60.0  # a token's last use is written at most this often


def digest(secret: str) -> str:
    """Tokens, cookies and codes carry 256 random bits: a plain SHA-256 is enough, nobody can guess the input."""
    return hashlib.sha256(secret.encode()).hexdigest()


def audit_line(at: float, person: str, action: str, target: str, detail: Mapping[str, Any]) -> Insert:
    return insert(t.audit).values(at=at, person=person, action=action, target=target[:200], detail=dict(detail))


class PeopleStore(Base):
    async def put_person(self, name: str, role: str) -> Person:
        """Creates a person, or gives an existing one this role."""
        if role not in ROLES:
            raise Refused(f"no role {role!r}", hint=f"one of {', '.join(ROLES)}")
        async with self._write() as db:
            changed = await db.execute(update(t.people).where(t.people.c.name == name).values(role=role))
            if not changed.rowcount:
                await db.execute(insert(t.people).values(name=name, role=role, created_at=self._now()))
        return Person(name, role)

    async def person(self, name: str) -> Person | None:
        async with self._read() as db:
            row = (await db.execute(select(t.people.c.name, t.people.c.role).where(t.people.c.name == name))).first()
        return Person(row.name, row.role) if row else None

    async def people(self) -> tuple[Person, ...]:
        async with self._read() as db:
            rows = await db.execute(select(t.people.c.name, t.people.c.role).order_by(t.people.c.name))
            return tuple(Person(row.name, row.role) for row in rows)

    # --- tokens

    async def create_token(self, person: str, *, label: str = "", days: float | None = None) -> tuple[Token, str]:
        """(the token's row, the token itself, which is not kept)."""
        now = self._now()
        token_id, secret = random.token_hex(6), f"hw_{random.token_urlsafe(32)}"
        expires = None if days is None else now + days * 86400
        async with self._write() as db:
            role = (await db.execute(select(t.people.c.role).where(t.people.c.name == person))).scalar()
            if role is None:
                raise NotFound(f"no person {person!r}")
            await db.execute(
                insert(t.tokens).values(
                    id=token_id,
                    hash=digest(secret),
                    person=person,
                    label=label,
                    created_at=now,
                    expires_at=expires,
                )
            )
        return Token(token_id, person, role, label, now, expires, None), secret

    async def person_of_token(self, secret: str) -> Person | None:
        """Whose token this is; None for an unknown or expired one. Notes when it was last used."""
        now = self._now()
        query = (
            select(
                t.people.c.name,
                t.people.c.role,
                t.tokens.c.id,
                t.tokens.c.expires_at,
                t.tokens.c.last_used_at,
            )
            .join(t.people, t.people.c.name == t.tokens.c.person)
            .where(t.tokens.c.hash == digest(secret))
        )
        async with self._read() as db:
            row = (await db.execute(query)).first()
        if row is None or (row.expires_at is not None and row.expires_at <= now):
            return None
        if row.last_used_at is None or now - row.last_used_at >= _TOUCH_S:
            async with self._write() as db:
                await db.execute(update(t.tokens).where(t.tokens.c.id == row.id).values(last_used_at=now))
        return Person(row.name, row.role)

    async def tokens(self, person: str | None = None) -> tuple[Token, ...]:
        query = select(t.tokens, t.people.c.role).join(t.people, t.people.c.name == t.tokens.c.person)
        if person is not None:
            query = query.where(t.tokens.c.person == person)
        async with self._read() as db:
            rows = await db.execute(query.order_by(t.tokens.c.created_at))
            return tuple(
                Token(r.id, r.person, r.role, r.label, r.created_at, r.expires_at, r.last_used_at) for r in rows
            )

    async def delete_token(self, token_id: str) -> None:
        """And the person's browser sessions and unused sign-in codes, which a token may have made."""
        async with self._write() as db:
            person = (await db.execute(select(t.tokens.c.person).where(t.tokens.c.id == token_id))).scalar()
            if person is None:
                raise NotFound(f"no token {token_id!r}", hint="headway token ls")
            await db.execute(delete(t.tokens).where(t.tokens.c.id == token_id))
            for made in (t.sessions, t.signin_codes):
                await db.execute(delete(made).where(made.c.person == person))

    # --- the browser

    async def create_signin_code(self, person: str) -> tuple[str, float]:
        """(one-time code, when it expires)."""
        code, expires = random.token_urlsafe(32), self._now() + SIGNIN_CODE_S
        async with self._write() as db:
            await db.execute(delete(t.signin_codes).where(t.signin_codes.c.expires_at <= self._now()))
            await db.execute(insert(t.signin_codes).values(hash=digest(code), person=person, expires_at=expires))
        return code, expires

    async def spend_signin_code(self, code: str) -> tuple[Person, str, float] | None:
        """(person, session cookie, when it expires), once per code; None when it is unknown, used or too old."""
        now = self._now()
        async with self._write() as db:
            query = (
                select(t.people.c.name, t.people.c.role)
                .join(t.signin_codes, t.signin_codes.c.person == t.people.c.name)
                .where(t.signin_codes.c.hash == digest(code), t.signin_codes.c.expires_at > now)
            )
            row = (await db.execute(query)).first()
            # Whoever deletes the row has spent the code: of two at once only one sees a row count of 1.
            spent = await db.execute(delete(t.signin_codes).where(t.signin_codes.c.hash == digest(code)))
            if row is None or not spent.rowcount:
                return None
            cookie, expires = random.token_urlsafe(32), now + SESSION_S
            await db.execute(delete(t.sessions).where(t.sessions.c.expires_at <= now))
            await db.execute(
                insert(t.sessions).values(hash=digest(cookie), person=row.name, created_at=now, expires_at=expires)
            )
        return Person(row.name, row.role), cookie, expires

    async def person_of_session(self, cookie: str) -> Person | None:
        query = (
            select(t.people.c.name, t.people.c.role)
            .join(t.sessions, t.sessions.c.person == t.people.c.name)
            .where(t.sessions.c.hash == digest(cookie), t.sessions.c.expires_at > self._now())
        )
        async with self._read() as db:
            row = (await db.execute(query)).first()
        return Person(row.name, row.role) if row else None

    async def end_session(self, cookie: str) -> None:
        async with self._write() as db:
            await db.execute(delete(t.sessions).where(t.sessions.c.hash == digest(cookie)))

    # --- audit

    async def note(self, person: str, action: str, target: str, detail: Mapping[str, Any] | None = None) -> None:
        """One line of the audit trail. Never pass a secret."""
        async with self._write() as db:
            await db.execute(audit_line(self._now(), person, action, target, detail or {}))

    async def audit_trail(self, *, limit: int = 100) -> tuple[AuditRow, ...]:
        """The latest first."""
        async with self._read() as db:
            rows = await db.execute(select(t.audit).order_by(t.audit.c.number.desc()).limit(limit))
            return tuple(AuditRow(**row._mapping) for row in rows)
