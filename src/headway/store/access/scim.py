"""People and groups as the identity provider sent them by SCIM. What they may do is stored with the people."""

from __future__ import annotations

import secrets as random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from headway.errors import Conflict
from headway.store.db import access_schema as t
from headway.store.db.rows import GroupsReading, ProvisionedGroup, ProvisionedUser
from headway.store.db.transactions import StorePart

u, g, m = t.provisioned_users, t.provisioned_groups, t.provisioned_members
_USER_COLUMNS = (
    *(column for column in u.c if column.name not in ("groups_version", "rights_version")), t.people.c.disabled,
)  # fmt: skip
_FEW = 500  # values of one query: SQLite limits the number of parameters


@dataclass(frozen=True, slots=True)
class UserAsk:
    """A filter for users; "" means no restriction. The name is compared without regard to case."""

    id: str = ""
    user_name: str = ""
    external_id: str = ""


@dataclass(frozen=True, slots=True)
class GroupAsk:
    """A filter for groups; "" means no restriction. The name is compared without regard to case."""

    id: str = ""
    display_name: str = ""
    external_id: str = ""
    member: str = ""  # id of a user


class ScimStore(StorePart):
    """Stores users, groups and their members."""

    async def users(self, ask: UserAsk, *, start: int = 0, limit: int) -> tuple[int, tuple[ProvisionedUser, ...]]:
        """Returns (number of matching users, `limit` of them from number `start` on), the oldest first."""
        where: list[ColumnElement[bool]] = [getattr(u.c, name) == value for name, value in _given(ask, "user_name")]
        if ask.user_name:
            where.append(func.lower(u.c.user_name) == ask.user_name.lower())
        joined = select(*_USER_COLUMNS).join(t.people, t.people.c.name == u.c.person).where(*where)
        async with self._database.read() as db:
            total = (await db.execute(select(func.count()).select_from(u).where(*where))).scalar_one()
            rows = await db.execute(joined.order_by(u.c.created_at, u.c.id).offset(start).limit(limit))
            return total, tuple(ProvisionedUser(**row._mapping) for row in rows)

    async def user_of(self, person: str) -> ProvisionedUser | None:
        """Returns what the provider sent about a person, or None."""
        query = select(*_USER_COLUMNS).join(t.people, t.people.c.name == u.c.person).where(u.c.person == person)
        async with self._database.read() as db:
            row = (await db.execute(query)).first()
        return ProvisionedUser(**row._mapping) if row else None

    async def people_of(self, users: Collection[str]) -> dict[str, ProvisionedUser]:
        """Returns those of the users with these ids that exist, by id."""
        found: dict[str, ProvisionedUser] = {}
        query = select(*_USER_COLUMNS).join(t.people, t.people.c.name == u.c.person)
        async with self._database.read() as db:
            for some in _parts(sorted(set(users))):
                rows = await db.execute(query.where(u.c.id.in_(some)))
                found |= {row.id: ProvisionedUser(**row._mapping) for row in rows}
        return found

    async def add_user(self, person: str, user_name: str, external_id: str, attributes: Mapping[str, Any]) -> str:
        """Stores a user of a person. Returns the new id. Raises Conflict if another user has the name or external id."""
        made, now = random.token_hex(8), self._database.now()
        async with self._database.write() as db:
            await _need_unused(db, made, user_name, external_id)
            values = {"user_name": user_name, "external_id": external_id, "attributes": dict(attributes)}
            await db.execute(insert(u).values(id=made, person=person, created_at=now, changed_at=now, **values))
        return made

    async def check_user(self, user_id: str, user_name: str, external_id: str) -> None:
        """Raises Conflict if another user has the name or external id."""
        async with self._database.read() as db:
            await _need_unused(db, user_id, user_name, external_id)

    async def change_user(
        self, user_id: str, user_name: str, external_id: str, subject: str, attributes: Mapping[str, Any]
    ) -> None:
        """Changes a user, and the subject by which the sign-in provider's person is known. Raises Conflict if another user
        has the name or external id."""
        async with self._database.write() as db:
            await _need_unused(db, user_id, user_name, external_id)
            values = {"user_name": user_name, "external_id": external_id, "attributes": dict(attributes)}
            await db.execute(update(u).where(u.c.id == user_id).values(changed_at=self._database.now(), **values))
            mine = select(u.c.person).where(u.c.id == user_id).scalar_subquery()
            await db.execute(update(t.people).where(t.people.c.name == mine).values(subject=subject))

    async def groups(self, ask: GroupAsk, *, start: int = 0, limit: int) -> tuple[int, tuple[ProvisionedGroup, ...]]:
        """Returns (number of matching groups, `limit` of them from number `start` on), the oldest first."""
        where: list[ColumnElement[bool]] = [
            getattr(g.c, name) == value for name, value in _given(ask, "display_name", "member")
        ]
        if ask.display_name:
            where.append(func.lower(g.c.display_name) == ask.display_name.lower())
        if ask.member:
            where.append(g.c.id.in_(select(m.c.group).where(m.c.user == ask.member)))
        async with self._database.read() as db:
            total = (await db.execute(select(func.count()).select_from(g).where(*where))).scalar_one()
            rows = await db.execute(select(g).where(*where).order_by(g.c.created_at, g.c.id).offset(start).limit(limit))
            return total, tuple(ProvisionedGroup(**row._mapping) for row in rows)

    async def groups_of(self, users: Collection[str]) -> dict[str, tuple[ProvisionedGroup, ...]]:
        """Returns the groups of each of these users, by the user's id."""
        found: dict[str, tuple[ProvisionedGroup, ...]] = dict.fromkeys(users, ())
        query = select(m.c.user, *g.c).join(m, m.c.group == g.c.id).order_by(g.c.display_name, g.c.id)
        async with self._database.read() as db:
            for some in _parts(sorted(found)):
                for row in await db.execute(query.where(m.c.user.in_(some))):
                    values = {name: value for name, value in row._mapping.items() if name != "user"}
                    found[row.user] += (ProvisionedGroup(**values),)
        return found

    async def read_groups(self, users: Collection[str]) -> dict[str, GroupsReading]:
        """Returns the groups of those of these users that exist, by the user's id, with their version."""
        versions: dict[str, int] = {}
        async with self._database.read() as db:
            for some in _parts(sorted(set(users))):
                rows = await db.execute(select(u.c.id, u.c.groups_version).where(u.c.id.in_(some)))
                versions |= {row.id: row.groups_version for row in rows}
        groups = await self.groups_of(versions.keys())  # after the versions: what is newer is refused, and read again
        return {user: GroupsReading(user, version, groups[user]) for user, version in versions.items()}

    async def rights_due(self, limit: int) -> tuple[str, ...]:
        """Returns ids of users whose groups changed after their rights were computed."""
        query = select(u.c.id).where(u.c.groups_version != u.c.rights_version).order_by(u.c.id).limit(limit)
        async with self._database.read() as db:
            return tuple((await db.execute(query)).scalars())

    async def finish_rights(self, reading: GroupsReading) -> None:
        """Records that the person of a user has the rights of this reading of the groups. Raises GroupsChanged."""
        async with self._database.write() as db:
            await require_current(db, reading)
            await db.execute(update(u).where(u.c.id == reading.user).values(rights_version=reading.version))

    async def members(self, group_id: str) -> tuple[ProvisionedUser, ...]:
        """Returns the members of a group, by their names."""
        query = (
            select(*_USER_COLUMNS)
            .join(m, m.c.user == u.c.id)
            .join(t.people, t.people.c.name == u.c.person)
            .where(m.c.group == group_id)
            .order_by(u.c.user_name)
        )
        async with self._database.read() as db:
            return tuple(ProvisionedUser(**row._mapping) for row in await db.execute(query))

    async def save_group(
        self, group_id: str, display_name: str, external_id: str, members: Sequence[str] | None
    ) -> str:
        """Stores a group and its members (ids of users; None: as they are). "" makes a new group. Returns its id. Raises
        Conflict if another group has the name."""
        now = self._database.now()
        values = {"display_name": display_name, "external_id": external_id, "changed_at": now}
        async with self._database.write() as db:
            same = select(g.c.id).where(func.lower(g.c.display_name) == display_name.lower(), g.c.id != group_id)
            if (await db.execute(same)).first():
                raise Conflict(f"another group is called {display_name}")
            if group_id:
                await db.execute(update(g).where(g.c.id == group_id).values(values))
                await _groups_changed(db, u.c.id.in_(_members_of(group_id)))
            else:
                group_id = random.token_hex(8)
                await db.execute(insert(g).values(id=group_id, created_at=now, **values))
            if members is not None:
                await db.execute(delete(m).where(m.c.group == group_id))
                for some in _parts(sorted(set(members))):
                    await db.execute(insert(m), [{"group": group_id, "user": user} for user in some])
                    await _groups_changed(db, u.c.id.in_(some))
        return group_id

    async def change_members(self, group_id: str, add: Collection[str], remove: Collection[str]) -> None:
        """Adds and removes members of a group, by the ids of users."""
        async with self._database.write() as db:
            for some in _parts(sorted({*add, *remove})):
                await db.execute(delete(m).where(m.c.group == group_id, m.c.user.in_(some)))
                await _groups_changed(db, u.c.id.in_(some))
            for some in _parts(sorted(set(add))):
                await db.execute(insert(m), [{"group": group_id, "user": user} for user in some])
            await db.execute(update(g).where(g.c.id == group_id).values(changed_at=self._database.now()))

    async def delete_group(self, group_id: str) -> None:
        """Deletes a group."""
        async with self._database.write() as db:
            await _groups_changed(db, u.c.id.in_(_members_of(group_id)))
            await db.execute(delete(g).where(g.c.id == group_id))


class GroupsChanged(Conflict):
    """Rights were computed from groups that have changed since."""


async def require_current(db: AsyncConnection, reading: GroupsReading) -> None:
    """Raises GroupsChanged if the groups of the user have changed since the reading, or the user is gone."""
    found = await db.execute(select(u.c.groups_version).where(u.c.id == reading.user))
    if found.scalar() != reading.version:
        raise GroupsChanged("the groups of this person have just changed", hint="try again")


async def _groups_changed(db: AsyncConnection, who: ColumnElement[bool]) -> None:
    """Records in the transaction of a change that the rights of these users must be computed."""
    await db.execute(update(u).where(who).values(groups_version=u.c.groups_version + 1))


def _members_of(group_id: str) -> Select[tuple[str]]:
    return select(m.c.user).where(m.c.group == group_id)


def _given(ask: UserAsk | GroupAsk, *others: str) -> Iterator[tuple[str, str]]:
    """Yields (field, value) of what is asked for, without these fields."""
    for name in ask.__dataclass_fields__:
        value = getattr(ask, name)
        if value and name not in others:
            yield name, value


def _parts(values: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(values), _FEW):
        yield values[start : start + _FEW]


async def _need_unused(db: AsyncConnection, user_id: str, user_name: str, external_id: str) -> None:
    taken = or_(func.lower(u.c.user_name) == user_name.lower(), u.c.external_id == external_id)
    row = (await db.execute(select(u.c.user_name).where(taken, u.c.id != user_id))).first()
    if row is not None:
        raise Conflict(f"the user {row.user_name} has this userName or externalId")
