"""People, their roles and their Linux users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from headway.domain.access.role import Role
from headway.errors import Conflict, NotFound
from headway.store.access.credential_cache import CredentialCache
from headway.store.db import schema as t
from headway.store.db.rows import Person
from headway.store.db.transactions import Database, StorePart

PeopleCheck = Callable[[Sequence[Person]], None]


PERSON_COLUMNS = (
    t.people.c.name,
    t.people.c.role,
    t.people.c.user,
    t.people.c.subject,
    t.people.c.created_at,
    t.people.c.provider_teams,
)


def person_of_row(row: Any) -> Person:
    """Returns the person of a row with PERSON_COLUMNS."""
    return Person(
        row.name, Role(row.role), row.user, row.subject or "", row.created_at, tuple(row.provider_teams or ())
    )


async def _everybody(db: AsyncConnection) -> tuple[Person, ...]:
    return tuple(person_of_row(row) for row in await db.execute(select(*PERSON_COLUMNS).order_by(t.people.c.name)))


async def _need_other_admin(db: AsyncConnection, name: str) -> None:
    """Raises Conflict if this person is the only admin with a Linux user. Admins without a Linux user do not count,
    because they can only read."""
    p = t.people.c
    admins = (
        (await db.execute(select(p.name).where(p.role == Role.ADMIN, or_(p.user.is_(None), p.user != ""))))
        .scalars()
        .all()
    )
    if list(admins) == [name]:
        raise Conflict(f"{name} is the only admin with a Linux user", hint="make another person an admin first")


class People(StorePart):
    """Creates, changes and finds people. Changes clear the credential cache, because it also caches roles and Linux
    users."""

    def __init__(self, database: Database, credentials: CredentialCache) -> None:
        super().__init__(database)
        self._credentials = credentials

    async def set_role(self, name: str, role: Role) -> Person:
        """Creates a person with this role, or changes the role of an existing person."""
        async with self._credentials.write() as db:
            changed = await db.execute(update(t.people).where(t.people.c.name == name).values(role=Role(role)))
            if not changed.rowcount:
                await db.execute(insert(t.people).values(name=name, role=Role(role), created_at=self._database.now()))
        return Person(name, role)

    async def change(
        self, name: str, *, role: Role, user: str | None, check: PeopleCheck = lambda _: None, made: bool = False
    ) -> Person:
        """Changes a person's role and Linux user.

        Raises NotFound if the person does not exist (with `made`, creates the person instead), Conflict if this would
        remove the last admin, and whatever `check` raises. `check` is called in the transaction with all people, to
        check the change against them."""
        async with self._credentials.write() as db:
            if role is not Role.ADMIN or user == "":
                await _need_other_admin(db, name)
            check(await _everybody(db))
            changed = await db.execute(update(t.people).where(t.people.c.name == name).values(role=role, user=user))
            if not changed.rowcount:
                if not made:
                    raise NotFound(f"no person {name!r}", hint="headway people")
                await db.execute(
                    insert(t.people).values(name=name, role=role, user=user, created_at=self._database.now())
                )
            row = (await db.execute(select(*PERSON_COLUMNS).where(t.people.c.name == name))).one()
        return person_of_row(row)

    async def set_provider_teams(self, name: str, teams: Sequence[str]) -> None:
        """Stores the teams that the sign-in provider says a person is in."""
        async with self._credentials.write() as db:
            await db.execute(update(t.people).where(t.people.c.name == name).values(provider_teams=list(teams)))

    async def delete(self, name: str) -> None:
        """Deletes a person with their tokens and sessions. Raises NotFound and Conflict like `change`."""
        async with self._credentials.write() as db:
            await _need_other_admin(db, name)
            gone = await db.execute(delete(t.people).where(t.people.c.name == name))
            if not gone.rowcount:
                raise NotFound(f"no person {name!r}", hint="headway people")

    async def by_subject(self, subject: str) -> Person | None:
        """Returns the person with this subject of the sign-in provider, or None."""
        async with self._database.read() as db:
            row = (await db.execute(select(*PERSON_COLUMNS).where(t.people.c.subject == subject))).first()
        return person_of_row(row) if row else None

    async def add_from_provider(
        self, name: str, subject: str, *, role: Role, user: str, check: PeopleCheck = lambda _: None
    ) -> Person:
        """Creates a person who signed in through the sign-in provider for the first time. Raises Conflict if the name
        is taken. `check` is as in `change`."""
        async with self._database.write() as db:
            check(await _everybody(db))
            if (await db.execute(select(t.people.c.name).where(t.people.c.name == name))).first():
                raise Conflict(f"{name} is another person on this server already", hint="ask an admin")
            made = Person(name, role, user, subject, self._database.now())
            await db.execute(insert(t.people).values(**asdict(made)))
        return made

    async def get(self, name: str) -> Person | None:
        """Returns the person of this name, or None."""
        async with self._database.read() as db:
            row = (await db.execute(select(*PERSON_COLUMNS).where(t.people.c.name == name))).first()
        return person_of_row(row) if row else None

    async def all(self) -> tuple[Person, ...]:
        """Returns all people, sorted by name."""
        async with self._database.read() as db:
            return await _everybody(db)
