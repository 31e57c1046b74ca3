"""Rights follow the groups of SCIM also if two requests change them at the same moment, or a server ends in between."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from headway.services.scim.people_sync import sync_unfinished
from headway.store import StoreUnavailable
from tests.integration.api.routers.access.test_scim import GROUPS, added, group, idp, patch, rights, server
from tests.support.servers.server_fakes import Server

__all__ = ["idp", "server"]  # fixtures


async def test_rights_are_those_of_the_last_of_two_requests(
    server: Server, idp: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request that gives the role is the slower one: it has read the groups, and writes after the other has ended."""
    zoe = (await added(idp))["id"]
    await group(idp, "staff", zoe)
    admins = await group(idp, "hpc-admins")
    change, reached, goes_on = server.store.people.change, asyncio.Event(), asyncio.Event()

    async def slow_once(name: str, **more: Any) -> Any:
        if not reached.is_set():
            reached.set()
            await goes_on.wait()
        return await change(name, **more)

    monkeypatch.setattr(server.store.people, "change", slow_once)
    member = {"path": "members", "value": [{"value": zoe}]}
    slow = asyncio.create_task(patch(idp, f"{GROUPS}/{admins}", {"op": "add", **member}))
    await reached.wait()
    assert (await patch(idp, f"{GROUPS}/{admins}", {"op": "remove", **member})).is_success
    goes_on.set()
    assert (await slow).is_success
    assert await rights(server) == ("member", ())


async def test_rights_of_a_deleted_group_end_though_the_server_ended_before_it_took_them(
    server: Server, idp: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoe = (await added(idp))["id"]
    for name in ("staff", "ml"):
        await group(idp, name, zoe)
    admins = await group(idp, "hpc-admins", zoe)
    assert await rights(server) == ("admin", ("red",))
    with monkeypatch.context() as broken:

        async def away(*_: Any, **__: Any) -> Any:
            raise StoreUnavailable("the database is away", hint="start it")

        broken.setattr(server.store.people, "change", away)
        answer = await idp.delete(f"{GROUPS}/{admins}")
        assert answer.status_code == 503
    assert (await idp.get(f"{GROUPS}/{admins}")).status_code == 404
    assert await rights(server) == ("admin", ("red",))
    await sync_unfinished(server.state)
    assert await rights(server) == ("member", ("red",))
    assert await server.store.scim.rights_due(10) == ()


@pytest.mark.parametrize("how", ["renamed", "left"])
async def test_every_change_of_a_group_is_due_until_the_rights_are_changed(
    server: Server, idp: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    zoe = (await added(idp))["id"]
    staff = await group(idp, "staff", zoe)

    async def nothing(*_: Any) -> None:
        pass

    monkeypatch.setattr("headway.services.scim.groups.sync_members", nothing)
    operation: dict[str, Any] = {"op": "replace", "path": "displayName", "value": "others"}
    if how == "left":
        operation = {"op": "remove", "path": "members", "value": [{"value": zoe}]}
    assert (await patch(idp, f"{GROUPS}/{staff}", operation)).is_success
    assert await server.store.scim.rights_due(10) == (zoe,)
    await sync_unfinished(server.state)
    assert await rights(server) == ("viewer", ())
