"""Browser sessions, one-time sign-in codes and OpenID Connect flows. Only hashes of secrets are stored."""

from __future__ import annotations

import secrets as random
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import and_, delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from headway.domain.access.session_validity import (
    OIDC_FLOW_S,
    SESSION_IDLE_S,
    SESSION_S,
    SIGNIN_CODE_S,
    session_end,
    session_is_valid,
)
from headway.errors import NotFound
from headway.store.access.audit import add_audit_line
from headway.store.access.credential_cache import CredentialCache, digest
from headway.store.access.people import PERSON_COLUMNS, person_of_row
from headway.store.db import access_schema as t
from headway.store.db.errors import DatabaseLocked
from headway.store.db.rows import OidcFlow, Person, Session, SessionHolder, SignIn
from headway.store.db.transactions import Database, StorePart

_TOUCH_S = 60.0  # the last use of a session is written at most this often
OIDC_FLOWS_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class LogoutToken:
    """A logout token of the sign-in provider: its id, and for how many seconds it can't be used again."""

    id: str
    kept_s: float


class SessionStore(StorePart):
    """Creates and checks browser sessions, sign-in codes and OpenID Connect flows."""

    def __init__(self, database: Database, credentials: CredentialCache) -> None:
        super().__init__(database)
        self._credentials = credentials

    async def create_signin_code(self, person: str, sign_in: SignIn | None = None) -> tuple[str, float]:
        """Returns (one-time code, its expiry time in unix seconds). `sign_in`: of the session that asks for it, which the
        new session inherits, so that an old session cannot renew itself; None: the person is authenticated now."""
        sign_in = sign_in or SignIn(self._database.now())
        code, expires = random.token_urlsafe(32), self._database.now() + SIGNIN_CODE_S
        async with self._database.write() as db:
            await db.execute(delete(t.signin_codes).where(t.signin_codes.c.expires_at <= self._database.now()))
            await db.execute(
                insert(t.signin_codes).values(hash=digest(code), person=person, expires_at=expires, **asdict(sign_in))
            )
        return code, expires

    async def redeem_signin_code(
        self, code: str, *, address: str = "", browser: str = ""
    ) -> tuple[Person, str, float] | None:
        """Returns (person, session cookie, its expiry time) the first time a code is used; None if it is unknown, used
        or expired."""
        query = (
            select(
                *PERSON_COLUMNS,
                t.signin_codes.c.authenticated_at,
                t.signin_codes.c.provider_session,
                t.signin_codes.c.token_id,
            )
            .join(t.signin_codes, t.signin_codes.c.person == t.people.c.name)
            .where(
                t.signin_codes.c.hash == digest(code),
                t.signin_codes.c.expires_at > self._database.now(),
                t.people.c.disabled.is_(False),
            )
        )
        async with self._database.read() as db:  # guessed codes must not occupy the one writer
            if (await db.execute(query)).first() is None:
                return None
        async with self._database.write() as db:
            row = (await db.execute(query)).first()
            # The request that deletes the row has used the code: of two concurrent requests only one sees a row count
            # of 1.
            spent = await db.execute(delete(t.signin_codes).where(t.signin_codes.c.hash == digest(code)))
            if row is None or not spent.rowcount:
                return None
            cookie, expires = await self._insert(db, row.name, "link", _sign_in_of(row), address, browser)
        return person_of_row(row), cookie, expires

    async def create(
        self,
        person: str,
        how: str = "token",
        sign_in: SignIn | None = None,
        *,
        address: str = "",
        browser: str = "",
    ) -> tuple[str, float]:
        """Returns (session cookie, its expiry time) for a person who is authenticated. `how` they signed in: by link,
        token or provider; `sign_in`: None is now, not by the provider; `browser` is its User-Agent."""
        async with self._database.write() as db:
            sign_in = sign_in or SignIn(self._database.now())
            return await self._insert(db, person, how, sign_in, address, browser)

    async def _insert(
        self, db: AsyncConnection, person: str, how: str, sign_in: SignIn, address: str, browser: str
    ) -> tuple[str, float]:
        now = self._database.now()
        cookie, expires = random.token_urlsafe(32), now + SESSION_S
        idle = t.sessions.c.last_used_at <= now - SESSION_IDLE_S
        await db.execute(delete(t.sessions).where(or_(t.sessions.c.expires_at <= now, idle)))
        await db.execute(
            insert(t.sessions).values(
                hash=digest(cookie),
                id=random.token_hex(8),
                person=person,
                created_at=now,
                expires_at=expires,
                last_used_at=now,
                how=how,
                address=address[:64],
                browser=browser[:200],
                **asdict(sign_in),
            )
        )
        return cookie, expires

    async def start_oidc_flow(
        self, state: str, nonce: str, verifier: str, *, again: bool = False, next_path: str = "/"
    ) -> None:
        """Records that a browser was sent to the sign-in provider; only a hash of `state` is stored. Requests are
        unauthenticated, so only the latest OIDC_FLOWS_KEPT flows are kept. `again`: the provider must ask for the
        password again; `next_path`: the page to show after the sign-in."""
        now, f = self._database.now(), t.oidc_flows
        async with self._database.write() as db:
            await db.execute(delete(f).where(f.c.expires_at <= now))
            oldest = select(f.c.hash).order_by(f.c.expires_at.desc(), f.c.hash).offset(OIDC_FLOWS_KEPT - 1)
            many = list((await db.execute(oldest)).scalars())
            if many:
                await db.execute(delete(f).where(f.c.hash.in_(many[:500])))
            values = {"hash": digest(state), "nonce": nonce, "verifier": verifier, "expires_at": now + OIDC_FLOW_S}
            await db.execute(insert(f).values(**values, again=again, next_path=next_path))

    async def finish_oidc_flow(self, state: str) -> OidcFlow | None:
        """Returns the flow the first time the browser comes back; None if it is unknown or expired."""
        f = t.oidc_flows
        mine = f.c.hash == digest(state)
        query = select(f).where(mine, f.c.expires_at > self._database.now())
        async with self._database.read() as db:  # guessed answers must not occupy the one writer
            if (await db.execute(query)).first() is None:
                return None
        async with self._database.write() as db:
            row = (await db.execute(query)).first()
            gone = await db.execute(delete(f).where(mine))
        if row is None or not gone.rowcount:
            return None
        return OidcFlow(row.nonce, row.verifier, row.expires_at - OIDC_FLOW_S, row.again, row.next_path)

    async def holder(self, cookie: str) -> SessionHolder | None:
        """Returns the person of a session cookie and their sign-in, or None if it is unknown, expired or was not used for
        SESSION_IDLE_S. Records when it was last used."""
        key = digest(cookie)
        known = self._credentials.get(key)
        if known is not None and isinstance(known.value, SessionHolder):
            return known.value if known.expires_at is not None and known.expires_at > self._database.now() else None
        return await self._credentials.query_once(key, lambda: self._query_holder(key))

    async def _query_holder(self, key: str) -> SessionHolder | None:
        now, changes = self._database.now(), self._credentials.changes
        query = (
            select(
                *PERSON_COLUMNS,
                t.sessions.c.expires_at,
                t.sessions.c.last_used_at,
                t.sessions.c.authenticated_at,
                t.sessions.c.provider_session,
                t.sessions.c.token_id,
            )
            .join(t.sessions, t.sessions.c.person == t.people.c.name)
            .where(t.sessions.c.hash == key, t.people.c.disabled.is_(False))
        )
        async with self._database.read() as db:
            row = (await db.execute(query)).first()
        if row is None or not session_is_valid(row.expires_at, row.last_used_at, now):
            return None
        if now - row.last_used_at >= _TOUCH_S:
            with suppress(DatabaseLocked):  # failing to record the use must not end the session
                async with self._database.write() as db:
                    used = update(t.sessions).where(t.sessions.c.hash == key)
                    await db.execute(used.values(last_used_at=now))
        holder = SessionHolder(person_of_row(row), _sign_in_of(row))
        self._credentials.put(key, holder, row.expires_at, changes)
        return holder

    async def all(self, person: str | None = None, cookie: str = "") -> tuple[Session, ...]:
        """Returns the sessions that have not ended, of one person or of all, the latest used first. `cookie` is that of
        the request, whose session is marked."""
        now, s, mine = self._database.now(), t.sessions.c, digest(cookie) if cookie else ""
        query = select(t.sessions)
        if person is not None:
            query = query.where(s.person == person)
        async with self._database.read() as db:
            rows = await db.execute(query.order_by(s.last_used_at.desc(), s.id))
            return tuple(
                Session(
                    r.id, r.person, r.created_at, session_end(r.expires_at, r.last_used_at), r.last_used_at,
                    r.how, r.address, r.browser, r.hash == mine,
                )
                for r in rows
                if session_is_valid(r.expires_at, r.last_used_at, now)
            )  # fmt: skip

    async def end(self, session_id: str) -> None:
        """Ends a session by its id. Raises NotFound."""
        async with self._credentials.write() as db:
            ended = await db.execute(delete(t.sessions).where(t.sessions.c.id == session_id))
        if not ended.rowcount:
            raise NotFound(f"no session {session_id!r}", hint="it may have ended already")

    async def delete(self, cookie: str) -> None:
        """Ends the session of this cookie."""
        async with self._credentials.write() as db:
            await db.execute(delete(t.sessions).where(t.sessions.c.hash == digest(cookie)))

    async def end_provider_sessions(
        self, token: LogoutToken, *, person: str = "", provider_session: str = "", address: str = ""
    ) -> dict[str, int] | None:
        """Ends the browser sessions, tokens and sign-in links that came from the sign-in provider's session, and writes the
        audit lines. Returns how many of the sessions and tokens ended, by person; None if the token was used before.

        With `person` those of this person; without `provider_session` all that came from any session of the provider;
        without both none. Those of whose session the provider said no name end with each of the person's sessions.
        One transaction: a logout that was not carried out leaves its token unused, so that the provider can repeat it."""
        now, used, ended = self._database.now(), t.used_logout_tokens, dict[str, int]()
        async with self._credentials.write() as db:
            await db.execute(delete(used).where(used.c.expires_at <= now))
            if (await db.execute(select(used.c.hash).where(used.c.hash == digest(token.id)))).first():
                return None
            await db.execute(insert(used).values(hash=digest(token.id), expires_at=now + token.kept_s))
            if not (person or provider_session):
                return ended
            for table in (t.sessions, t.tokens, t.signin_codes):
                name = table.c.provider_session
                mine = name.is_not(None) if not provider_session else name == provider_session
                if person:
                    mine = and_(table.c.person == person, or_(mine, name == ""))
                for owner in (await db.execute(select(table.c.person).where(mine))).scalars():
                    ended[owner] = ended.get(owner, 0) + (table is not t.signin_codes)
                await db.execute(delete(table).where(mine))
            for owner, count in ended.items():
                detail = {"by": "sign-in provider", "ended": count}
                await add_audit_line(db, now, owner, "signout", owner, detail, address=address)
        return ended


def _sign_in_of(row: Any) -> SignIn:
    return SignIn(row.authenticated_at, row.provider_session, row.token_id)
