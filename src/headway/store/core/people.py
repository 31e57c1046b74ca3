"""People, tokens, browser sessions and one-time sign-in codes. Only hashes of secrets are stored."""

from __future__ import annotations

import asyncio
import hashlib
import secrets as random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from sqlalchemy import delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from headway.errors import Conflict, NotFound, Refused
from headway.store.db import schema as t
from headway.store.db.rows import ROLES, Held, Person, Token
from headway.store.db.transactions import Base, Locked

SIGNIN_CODE_S = 300.0
SESSION_S = 7 * 86400.0
FLOW_S = 600.0
FLOWS_KEPT = 10_000
_TOUCH_S = 60.0  # a token's last use is written at most this often


_HOLDER_S = 1.0
T = TypeVar("T")
Beside = Callable[[Sequence[Person]], None]
_MOST_HOLDERS = 10_000


@dataclass(frozen=True, slots=True)
class _Holder:
    until: float  # of the machine's own clock that never goes back
    expires_at: float | None
    value: Held | Person


def digest(secret: str) -> str:
    """Tokens, cookies and codes carry 256 random bits: a plain SHA-256 is enough, nobody can guess the input."""
    return hashlib.sha256(secret.encode()).hexdigest()


_PERSON = (t.people.c.name, t.people.c.role, t.people.c.user, t.people.c.subject, t.people.c.created_at)


def _person(row: Any) -> Person:
    return Person(row.name, row.role, row.user, row.subject or "", row.created_at)


async def _everybody(db: AsyncConnection) -> tuple[Person, ...]:
    return tuple(_person(row) for row in await db.execute(select(*_PERSON).order_by(t.people.c.name)))


async def _need_other_admin(db: AsyncConnection, name: str) -> None:
    """Raises Conflict when this person is the only admin: one with a Linux user, for without they may only look."""
    p = t.people.c
    admins = (
        (await db.execute(select(p.name).where(p.role == "admin", or_(p.user.is_(None), p.user != "")))).scalars().all()
    )
    if list(admins) == [name]:
        raise Conflict(f"{name} is the only admin with a Linux user", hint="make somebody else one first")


class PeopleStore(Base):
    """Whose a token or session is, is remembered for a second: pages and programs that follow a cluster ask ten times in
    one. This server forgets it with every change; another on the same database needs that second."""

    def __init__(self, engine: AsyncEngine, clock: Callable[[], float] = time.time) -> None:
        super().__init__(engine, clock)
        self._holders: dict[str, _Holder] = {}
        self._changes = 0
        self._asking: dict[tuple[str, int], asyncio.Future[Any]] = {}
        self._touched: dict[str, float] = {}  # token -> when its last use was last written, or tried to be

    @asynccontextmanager
    async def _change(self) -> AsyncIterator[AsyncConnection]:
        """A write after which somebody may do less than before."""
        try:
            async with self._write() as db:
                yield db
        finally:
            self._changes += 1
            self._holders.clear()

    def _lookup(self, key: str) -> _Holder | None:
        known = self._holders.get(key)
        if known is None or time.monotonic() >= known.until:
            return None
        return known

    async def _together(self, key: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Who asks while the same is being looked up waits for that answer, unless something was changed since."""
        mark = (key, self._changes)
        if mark not in self._asking:
            self._asking[mark] = asyncio.ensure_future(ask())
            self._asking[mark].add_done_callback(lambda _: self._asking.pop(mark, None))
        found: T = await asyncio.shield(self._asking[mark])
        return found

    def _keep(self, key: str, value: Held | Person, expires_at: float | None, changes: int) -> None:
        """Unless something was changed while it was looked up."""
        if changes == self._changes:
            if len(self._holders) > _MOST_HOLDERS:
                self._holders.clear()
            self._holders[key] = _Holder(time.monotonic() + _HOLDER_S, expires_at, value)

    async def put_person(self, name: str, role: str) -> Person:
        """Creates a person, or gives an existing one this role."""
        if role not in ROLES:
            raise Refused(f"no role {role!r}", hint=f"one of {', '.join(ROLES)}")
        async with self._change() as db:
            changed = await db.execute(update(t.people).where(t.people.c.name == name).values(role=role))
            if not changed.rowcount:
                await db.execute(insert(t.people).values(name=name, role=role, created_at=self._now()))
        return Person(name, role)

    async def change_person(
        self, name: str, *, role: str, user: str | None, beside: Beside = lambda _: None, made: bool = False
    ) -> Person:
        """Raises NotFound for nobody, unless they are to be `made`; Conflict for the last admin of all, who would leave nobody
        to undo it; and what `beside` does when it is given everybody there is."""
        if role not in ROLES:
            raise Refused(f"no role {role!r}", hint=f"one of {', '.join(ROLES)}")
        async with self._change() as db:
            if role != "admin" or user == "":
                await _need_other_admin(db, name)
            beside(await _everybody(db))
            changed = await db.execute(update(t.people).where(t.people.c.name == name).values(role=role, user=user))
            if not changed.rowcount:
                if not made:
                    raise NotFound(f"no person {name!r}", hint="headway people")
                await db.execute(insert(t.people).values(name=name, role=role, user=user, created_at=self._now()))
            row = (await db.execute(select(*_PERSON).where(t.people.c.name == name))).one()
        return _person(row)

    async def delete_person(self, name: str) -> None:
        """With their tokens and sessions. NotFound and Conflict as `change_person`."""
        async with self._change() as db:
            await _need_other_admin(db, name)
            gone = await db.execute(delete(t.people).where(t.people.c.name == name))
            if not gone.rowcount:
                raise NotFound(f"no person {name!r}", hint="headway people")

    async def person_of_subject(self, subject: str) -> Person | None:
        async with self._read() as db:
            row = (await db.execute(select(*_PERSON).where(t.people.c.subject == subject))).first()
        return _person(row) if row else None

    async def add_from_provider(
        self, name: str, subject: str, *, role: str, user: str, beside: Beside = lambda _: None
    ) -> Person:
        """A person who came by the sign-in provider for the first time. Conflict when the name is another's already; `beside`
        as in `change_person`."""
        async with self._write() as db:
            beside(await _everybody(db))
            if (await db.execute(select(t.people.c.name).where(t.people.c.name == name))).first():
                raise Conflict(f"{name} is somebody else here already", hint="ask an admin")
            made = Person(name, role, user, subject, self._now())
            await db.execute(insert(t.people).values(**asdict(made)))
        return made

    async def person(self, name: str) -> Person | None:
        async with self._read() as db:
            row = (await db.execute(select(*_PERSON).where(t.people.c.name == name))).first()
        return _person(row) if row else None

    async def people(self) -> tuple[Person, ...]:
        async with self._read() as db:
            return await _everybody(db)

    # --- tokens

    async def create_token(
        self,
        person: str,
        *,
        label: str = "",
        days: float | None = None,
        scopes: Sequence[str] = ("all",),
        cluster: str = "",
    ) -> tuple[Token, str]:
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
                    scopes=" ".join(scopes),
                    cluster=cluster,
                )
            )
        return Token(token_id, person, role, label, now, expires, None, tuple(scopes), cluster), secret

    async def holder_of_token(self, secret: str) -> Held | None:
        """Whose token this is and what it is good for; None for an unknown or expired one. Notes when it was last used."""
        key = digest(secret)
        known = self._lookup(key)
        if known is not None and isinstance(known.value, Held):
            return known.value if known.expires_at is None or known.expires_at > self._now() else None
        return await self._together(key, lambda: self._token(key))

    async def _token(self, key: str) -> Held | None:
        now, changes = self._now(), self._changes
        query = (
            select(
                *_PERSON,
                t.tokens.c.id,
                t.tokens.c.expires_at,
                t.tokens.c.last_used_at,
                t.tokens.c.scopes,
                t.tokens.c.cluster,
            )
            .join(t.people, t.people.c.name == t.tokens.c.person)
            .where(t.tokens.c.hash == key)
        )
        async with self._read() as db:
            row = (await db.execute(query)).first()
        if row is None or (row.expires_at is not None and row.expires_at <= now):
            return None
        if now - max(row.last_used_at or float("-inf"), self._touched.get(row.id, float("-inf"))) >= _TOUCH_S:
            self._touched[row.id] = now
            with suppress(Locked):  # that it was used is no reason to refuse it
                async with self._write() as db:
                    await db.execute(update(t.tokens).where(t.tokens.c.id == row.id).values(last_used_at=now))
        held = Held(_person(row), tuple(row.scopes.split()), row.cluster)
        self._keep(key, held, row.expires_at, changes)
        return held

    async def tokens(self, person: str | None = None) -> tuple[Token, ...]:
        query = select(t.tokens, t.people.c.role).join(t.people, t.people.c.name == t.tokens.c.person)
        if person is not None:
            query = query.where(t.tokens.c.person == person)
        async with self._read() as db:
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

    async def delete_token(self, token_id: str) -> None:
        """And the person's browser sessions and unused sign-in codes, which a token may have made."""
        async with self._change() as db:
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
                select(*_PERSON)
                .join(t.signin_codes, t.signin_codes.c.person == t.people.c.name)
                .where(t.signin_codes.c.hash == digest(code), t.signin_codes.c.expires_at > now)
            )
            row = (await db.execute(query)).first()
            # Whoever deletes the row has spent the code: of two at once only one sees a row count of 1.
            spent = await db.execute(delete(t.signin_codes).where(t.signin_codes.c.hash == digest(code)))
            if row is None or not spent.rowcount:
                return None
            cookie, expires = await self._new_session(db, row.name)
        return _person(row), cookie, expires

    async def create_session(self, person: str) -> tuple[str, float]:
        """(session cookie, when it expires) for somebody who has shown who they are."""
        async with self._write() as db:
            return await self._new_session(db, person)

    async def _new_session(self, db: AsyncConnection, person: str) -> tuple[str, float]:
        now = self._now()
        cookie, expires = random.token_urlsafe(32), now + SESSION_S
        await db.execute(delete(t.sessions).where(t.sessions.c.expires_at <= now))
        await db.execute(
            insert(t.sessions).values(hash=digest(cookie), person=person, created_at=now, expires_at=expires)
        )
        return cookie, expires

    async def start_flow(self, state: str, nonce: str, verifier: str) -> None:
        """Remembers a browser that goes to the sign-in provider; its `state` is kept as a hash. Anybody may go there, so
        only the latest are kept."""
        now, f = self._now(), t.oidc_flows
        async with self._write() as db:
            await db.execute(delete(f).where(f.c.expires_at <= now))
            oldest = select(f.c.hash).order_by(f.c.expires_at.desc(), f.c.hash).offset(FLOWS_KEPT - 1)
            many = list((await db.execute(oldest)).scalars())
            if many:
                await db.execute(delete(f).where(f.c.hash.in_(many[:500])))
            values = {"hash": digest(state), "nonce": nonce, "verifier": verifier, "expires_at": now + FLOW_S}
            await db.execute(insert(f).values(**values))

    async def end_flow(self, state: str) -> tuple[str, str] | None:
        """(nonce, verifier) of a browser that came back, once; None for one that never left or was too long away."""
        f = t.oidc_flows
        async with self._write() as db:
            mine = f.c.hash == digest(state)
            row = (await db.execute(select(f).where(mine, f.c.expires_at > self._now()))).first()
            gone = await db.execute(delete(f).where(mine))
        return (row.nonce, row.verifier) if row is not None and gone.rowcount else None

    async def person_of_session(self, cookie: str) -> Person | None:
        key = digest(cookie)
        known = self._lookup(key)
        if known is not None and isinstance(known.value, Person):
            return known.value if known.expires_at is not None and known.expires_at > self._now() else None
        return await self._together(key, lambda: self._session(key))

    async def _session(self, key: str) -> Person | None:
        now, changes = self._now(), self._changes
        query = (
            select(*_PERSON, t.sessions.c.expires_at)
            .join(t.sessions, t.sessions.c.person == t.people.c.name)
            .where(t.sessions.c.hash == key, t.sessions.c.expires_at > now)
        )
        async with self._read() as db:
            row = (await db.execute(query)).first()
        if row is None:
            return None
        self._keep(key, _person(row), row.expires_at, changes)
        return _person(row)

    async def end_session(self, cookie: str) -> None:
        async with self._change() as db:
            await db.execute(delete(t.sessions).where(t.sessions.c.hash == digest(cookie)))
