"""Every route admits exactly the roles that access_table.py names, for a person's own objects and for those of
others."""

from __future__ import annotations

import itertools

import pytest

from headway.services.access.role_rights import TOKEN_SCOPES
from tests.support.api.access_table import PUBLIC, ROLES, SCIM_ROUTES, TABLE, THINGS, Row, scopes_of
from tests.support.api.api_routes import PEOPLE, Things, ask, body_of, filled, routes, server, things
from tests.support.servers.server_fakes import Server

__all__ = ["server", "things"]  # fixtures


def refused(status: int, first: bytes, row: Row) -> bool:
    if row.leaves and b"event: leave" in first:
        return True
    return status in (401, 403) or (row.hidden and status == 404)


async def test_access_table_lists_exactly_the_existing_routes(server: Server) -> None:
    known = {key for key, _, _ in routes(server)}
    assert len(known) > 40
    for key in sorted(known - TABLE.keys()):
        pytest.fail(
            f"who may use {key}? add a row to TABLE in tests/support/api/access_table.py, for example\n"
            f'    "{key}": Row(ALL),  # ALL, WORK, NODES, ADMIN, or TOUCH / OWNER for somebody\'s job'
        )
    assert not TABLE.keys() - known, "rows without a route"


@pytest.mark.parametrize("half", ["api", "pages"])  # so that two workers share them
async def test_each_route_admits_exactly_the_listed_roles(server: Server, things: Things, half: str) -> None:
    wrong = []
    for key, method, path in sorted(routes(server)):
        row = TABLE.get(key)
        if row is None or (" api/" in key) != (half == "api"):
            continue  # where there is no row, the test above says so
        for role, thing in itertools.product(("nobody", *ROLES), THINGS if row.team is not None else THINGS[:1]):
            token = things.tokens[PEOPLE[role]] if role in PEOPLE else ""
            names = await things.names(role, thing, path)
            status, first = await ask(server, method, filled(path, names, key), token, body_of(row, names))
            if "people" in key:
                await things.everybody()
            through = not refused(status, first, row)
            wanted = role in row.roles(thing)
            if through != wanted and not (row.roles(thing) == PUBLIC and status == 401):
                wrong.append(f"{key} ({thing}): {role} got {status}, should {'' if wanted else 'not '}get through")
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize("scope", sorted(TOKEN_SCOPES))
async def test_each_route_admits_exactly_the_scopes_that_it_needs(server: Server, things: Things, scope: str) -> None:
    """The token is an admin's: what it may not do, its scope forbids."""
    wrong = []
    for key, method, path in sorted(routes(server)):
        if not (" api/" in key or SCIM_ROUTES in key) or key not in TABLE:
            continue
        row = TABLE[key]
        names = await things.names("admin", "own", path)
        _, token = await server.store.tokens.create(PEOPLE["admin"], scopes=(scope,))
        status, first = await ask(server, method, filled(path, names, key), token, body_of(row, names))
        if "people" in key:
            await things.everybody()
        through = not refused(status, first, row)
        if through != (scope in scopes_of(key)):
            wrong.append(f"{key}: {scope} got {status}, should {'not ' if through else ''}get through")
    assert not wrong, "\n" + "\n".join(wrong)
