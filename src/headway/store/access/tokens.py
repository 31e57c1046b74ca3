"""API tokens. Only hashes of them are stored."""

from __future__ import annotations

import secrets as random
from collections.abc import Sequence
from contextlib import suppress

from sqlalchemy import delete, insert, select, update

from headway.domain.access.token_lifetime import DEFAULT_TOKEN_DAYS, token_expiry, token_is_valid
from headway.domain.access.token_scope import TokenScope
from headway.domain.access.token_text import new_token_text
from headway.errors import NotFound, Refused
from headway.store.access.credential_cache import CredentialCache, digest
from headway.store.access.people import PERSON_COLUMNS, person_of_row
from headway.store.db import access_schema as t
from headway.store.db.errors import DatabaseLocked
from headway.store.db.rows import Token, TokenHolder
from headway.store.db.transactions import Database, StorePart

_TOUCH_S = 60.0  # the last use of a token is written at most this often


class TokenStore(StorePart):
    """Creates, checks and deletes API tokens."""

    def __init__(self, database: Database, credentials: CredentialCache) -> None:
        super().__init__(database)
        self._credentials = credentials
        self._touched: dict[str, float] = {}  # token id -> when a write of its last use was last attempted

    async def create(
        self,
        person: str,
        *,
        label: str = "",
        days: float | None = DEFAULT_TOKEN_DAYS,
        scopes: Sequence[str] = (TokenScope.ALL,),
        cluster: str = "",
        provider_session: str | None = None,
    ) -> tuple[Token, str]:
        """Returns (the token's row, the token itself, which is not stored). `days`: how long it is valid, None without end;
        `provider_session`: of the session that it
        is made in, as in SignIn. Raises NotFound if the person does not exist, Refused if they are disabled."""
        now = self._database.now()
        token_id, secret = random.token_hex(6), new_token_text()
        expires = token_expiry(now, days)
        async with self._database.write() as db:
            owner = (
                await db.execute(select(t.people.c.role, t.people.c.disabled).where(t.people.c.name == person))
            ).first()
            if owner is None:
                raise NotFound(f"no person {person!r}")
            if owner.disabled:
                raise Refused(f"{person} is disabled", hint=f"headway people enable {person}")
            await db.execute(
                insert(t.tokens).values(
                    id=token_id,
                    hash=digest(secret),
                    person=person,
                    label=label,
                    created_at=now,
                    expires_at=expires,
                    scopes=" ".join(scopes),
                    cluster=cluster,
                    provider_session=provider_session,
                )
            )
        return Token(token_id, person, owner.role, label, now, expires, None, tuple(scopes), cluster), secret

    async def holder(self, secret: str) -> TokenHolder | None:
        """Returns the holder and the scopes of a token, or None if it is unknown or expired. Records when it was last
        used."""
        key = digest(secret)
        known = self._credentials.get(key)
        if known is not None and isinstance(known.value, TokenHolder):
            return known.value if token_is_valid(known.expires_at, self._database.now()) else None
        return await self._credentials.query_once(key, lambda: self._query_holder(key))

    async def holder_for(self, secret: str, seconds: float) -> TokenHolder | None:
        """Returns the holder of a token that is valid for so long; None if it ends sooner."""
        found = await self.holder(secret)
        if found is None or (found.expires_at is not None and found.expires_at - self._database.now() < seconds):
            return None
        return found

    async def _query_holder(self, key: str) -> TokenHolder | None:
        now, changes = self._database.now(), self._credentials.changes
        query = (
            select(
                *PERSON_COLUMNS,
                t.tokens.c.id,
                t.tokens.c.expires_at,
                t.tokens.c.last_used_at,
                t.tokens.c.scopes,
                t.tokens.c.cluster,
                t.tokens.c.provider_session,
            )
            .join(t.people, t.people.c.name == t.tokens.c.person)
            .where(t.tokens.c.hash == key, t.people.c.disabled.is_(False))
        )
        async with self._database.read() as db:
            row = (await db.execute(query)).first()
        if row is None or not token_is_valid(row.expires_at, now):
            return None
        if now - max(row.last_used_at or float("-inf"), self._touched.get(row.id, float("-inf"))) >= _TOUCH_S:
            self._touched[row.id] = now
            with suppress(DatabaseLocked):  # failing to record the use must not reject the token
                async with self._database.write() as db:
                    await db.execute(update(t.tokens).where(t.tokens.c.id == row.id).values(last_used_at=now))
        holder = TokenHolder(
            row.id, person_of_row(row), tuple(row.scopes.split()), row.cluster, row.provider_session, row.expires_at
        )
        self._credentials.put(key, holder, row.expires_at, changes)
        return holder

    async def all(self, person: str | None = None) -> tuple[Token, ...]:
        """Returns all tokens, or those of one person, the oldest first."""
        query = select(t.tokens, t.people.c.role).join(t.people, t.people.c.name == t.tokens.c.person)
        if person is not None:
            query = query.where(t.tokens.c.person == person)
        async with self._database.read() as db:
            rows = await db.execute(query.order_by(t.tokens.c.created_at))
            return tuple(
                Token(
                    r.id,
                    r.person,
                    r.role,
                    r.label,
                    r.created_at,
                    r.expires_at,
                    r.last_used_at,
                    tuple(r.scopes.split()),
                    r.cluster,
                )
                for r in rows
            )

    async def delete(self, token_id: str) -> None:
        """Deletes a token. Also deletes the browser sessions and unused sign-in codes that came from it. Raises NotFound if
        the token does not exist."""
        async with self._credentials.write() as db:
            deleted = await db.execute(delete(t.tokens).where(t.tokens.c.id == token_id))
            if not deleted.rowcount:
                raise NotFound(f"no token {token_id!r}", hint="headway token ls")
            for made in (t.sessions, t.signin_codes):
                await db.execute(delete(made).where(made.c.token_id == token_id))
