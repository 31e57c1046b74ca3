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
from headway.store.access.scim import require_current
from headway.store.access.user_changes import change_teams, lock_user, unlock_user
from headway.store.clusters.job_secrets import remove_secrets_of_user
from headway.store.db import access_schema as t
from headway.store.db.rows import GroupsReading, Person
from headway.store.db.transactions import Database, StorePart

PeopleCheck = Callable[[Sequence[Person]], None]


PERSON_COLUMNS = (
    t.people.c.name,
    t.people.c.role,
    t.people.c.user,
    t.people.c.subject,
    t.people.c.created_at,
    t.people.c.provider_teams,
    t.people.c.disabled,
)


def person_of_row(row: Any) -> Person:
    """Returns the person of a row with PERSON_COLUMNS."""
    teams = tuple(row.provider_teams or ())
    return Person(row.name, Role(row.role), row.user, row.subject or "", row.created_at, teams, row.disabled)


async def _everybody(db: AsyncConnection) -> tuple[Person, ...]:
    return tuple(person_of_row(row) for row in await db.execute(select(*PERSON_COLUMNS).order_by(t.people.c.name)))


async def _need_other_admin(db: AsyncConnection, name: str) -> None:
    """Raises Conflict if this person is the only admin with a Linux user. Admins without a Linux user do not count,
    because they can only read, and neither do disabled ones."""
    p = t.people.c
    query = select(p.name).where(p.role == Role.ADMIN, or_(p.user.is_(None), p.user != ""), p.disabled.is_(False))
    if list((await db.execute(query)).scalars()) == [name]:
        raise Conflict(f"{name} is the only admin with a Linux user", hint="make another person an admin first")


async def _person(db: AsyncConnection, name: str) -> Person:
    row = (await db.execute(select(*PERSON_COLUMNS).where(t.people.c.name == name))).first()
    if row is None:
        raise NotFound(f"no person {name!r}", hint="headway people")
    return person_of_row(row)


async def _set_disabled(db: AsyncConnection, name: str, *, disabled: bool) -> Person:
    await db.execute(update(t.people).where(t.people.c.name == name).values(disabled=disabled))
    return await _person(db, name)


async def _end_sign_ins(db: AsyncConnection, name: str) -> None:
    for table in (t.sessions, t.tokens, t.signin_codes):
        await db.execute(delete(table).where(table.c.person == name))


class PersonStore(StorePart):
    """Creates, changes and finds people. Changes clear the credential cache, because it also caches roles and Linux
    users."""

    def __init__(self, database: Database, credentials: CredentialCache) -> None:
        super().__init__(database)
        self._credentials = credentials

    @property
    def changes(self) -> int:
        """Returns the number of changes that this server has made to people."""
        return self._credentials.changes

    async def set_role(self, name: str, role: Role) -> Person:
        """Creates a person with this role, or changes the role of an existing person."""
        async with self._credentials.write() as db:
            changed = await db.execute(update(t.people).where(t.people.c.name == name).values(role=Role(role)))
            if not changed.rowcount:
                await db.execute(insert(t.people).values(name=name, role=Role(role), created_at=self._database.now()))
                await unlock_user(db, Person(name, role).linux_user, name, self._database.now())
        return Person(name, role)

    async def change(
        self,
        name: str,
        *,
        role: Role,
        user: str | None,
        check: PeopleCheck = lambda _: None,
        made: bool = False,
        by: str = "",
        reading: GroupsReading | None = None,
    ) -> Person:
        """Changes a person's role and Linux user, which is unlocked, or locked if the person is disabled. Secrets of jobs of a
        Linux user that they no longer have are removed. `by` is who does it.

        Raises NotFound if the person does not exist (with `made`, creates the person instead), Conflict if this would
        remove the last admin, and whatever `check` raises. `check` is called in the transaction with all people, to
        check the change against them. `reading`: the groups that the change was computed from; raises GroupsChanged if they
        are others now."""
        async with self._credentials.write() as db:
            if reading is not None:
                await require_current(db, reading)
            if role is not Role.ADMIN or user == "":
                await _need_other_admin(db, name)
            everybody = await _everybody(db)
            check(everybody)
            changed = await db.execute(update(t.people).where(t.people.c.name == name).values(role=role, user=user))
            if not changed.rowcount:
                if not made:
                    raise NotFound(f"no person {name!r}", hint="headway people")
                await db.execute(
                    insert(t.people).values(name=name, role=role, user=user, created_at=self._database.now())
                )
            person = await _person(db, name)
            lock_or_unlock = lock_user if person.disabled else unlock_user
            await lock_or_unlock(db, person.linux_user, by, self._database.now())
            for one in everybody:
                if one.name == name and one.linux_user != person.linux_user:
                    await remove_secrets_of_user(db, self._database.now(), one.linux_user)
                    await change_teams(db, one, person, by or name, self._database.now())
        return person

    async def disable(self, name: str, *, by: str) -> Person:
        """Disables a person and locks their Linux user; their sessions, tokens and sign-in links are deleted. `by` is who
        does it. Raises NotFound, and Conflict for the last admin."""
        async with self._credentials.write() as db:
            await _need_other_admin(db, name)
            person = await _set_disabled(db, name, disabled=True)
            await _end_sign_ins(db, name)
            await lock_user(db, person.linux_user, by, self._database.now())
        return person

    async def enable(self, name: str, *, by: str) -> Person:
        """Lets a disabled person sign in again and unlocks their Linux user. `by` is who does it. Raises NotFound."""
        async with self._credentials.write() as db:
            person = await _set_disabled(db, name, disabled=False)
            await unlock_user(db, person.linux_user, by, self._database.now())
        return person

    async def end_sign_ins(self, name: str) -> None:
        """Deletes a person's sessions, tokens and sign-in links."""
        async with self._credentials.write() as db:
            await _end_sign_ins(db, name)

    async def set_provider_teams(
        self, name: str, teams: Sequence[str], *, reading: GroupsReading | None = None
    ) -> None:
        """Stores the teams that the sign-in provider says a person is in. Clusters change the teams of their Linux user
        within a minute (server.workers.user_changes). `reading` is as in `change`. Raises NotFound, GroupsChanged."""
        async with self._credentials.write() as db:
            if reading is not None:
                await require_current(db, reading)
            before = await _person(db, name)
            await db.execute(update(t.people).where(t.people.c.name == name).values(provider_teams=list(teams)))
            await change_teams(db, before, await _person(db, name), name, self._database.now())

    async def delete(self, name: str, *, by: str = "") -> None:
        """Deletes a person with their tokens, sessions and secrets of jobs, and locks their Linux user. `by` is who does it.
        Raises NotFound and Conflict like `change`."""
        async with self._credentials.write() as db:
            await _need_other_admin(db, name)
            person = await _person(db, name)
            await db.execute(delete(t.people).where(t.people.c.name == name))
            await lock_user(db, person.linux_user, by, self._database.now())
            await remove_secrets_of_user(db, self._database.now(), person.linux_user)

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
            same = or_(t.people.c.name == name, t.people.c.subject == subject)
            if (await db.execute(select(t.people.c.name).where(same))).first():
                raise Conflict(f"{name} is another person on this server already", hint="ask an admin")
            made = Person(name, role, user, subject, self._database.now())
            await db.execute(insert(t.people).values(**asdict(made)))
            await unlock_user(db, user, name, made.created_at)
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
