"""A logout token of the provider ends what came from its session, and no other token does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncConnection

from headway.store import AuditAsk, StoreUnavailable
from tests.support.api.oidc_provider import (
    Provider,
    fresh,
    is_signed_in,
    logout_token,
    provider,
    send_logout,
    signed_in,
    use,
)
from tests.support.servers.server_fakes import URL, Server

__all__ = ["fresh", "provider"]  # fixtures
API = "/api/v1"


async def test_logout_of_a_session_ends_it_with_its_tokens_and_links(server: Server, provider: Provider) -> None:
    use(server, provider)
    ended: list[str] = []
    server.state.notebooks.end_sessions_of = ended.append  # type: ignore[method-assign]
    laptop = await signed_in(server, provider, "ida", "s-1")
    secret = (await laptop.post(f"{API}/tokens", json={"label": "ci"})).json()["token"]
    token = server.anonymous(authorization=f"Bearer {secret}")
    second = (await token.post(f"{API}/tokens", json={"label": "made by it"})).json()["token"]
    link = (await laptop.post(f"{API}/signin-links")).json()["url"]
    other_link = (await token.post(f"{API}/signin-links")).json()["url"]
    tablet = server.anonymous(origin=URL)
    assert (await tablet.get(other_link)).status_code == 303
    phone = await signed_in(server, provider, "ida", "s-2")
    local = server.anonymous(authorization=f"Bearer {(await server.store.tokens.create('ida'))[1]}")
    answer = await send_logout(server, logout_token(provider, sub="u-ida", sid="s-1"))
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    for client in (laptop, token, server.anonymous(authorization=f"Bearer {second}"), tablet):
        assert not await is_signed_in(client)
    assert (await server.anonymous(origin=URL).get(link)).status_code == 401
    assert await is_signed_in(phone), "another session of the provider"
    assert await is_signed_in(local), "a token that came from no sign-in by the provider"
    assert ended == ["ida"]
    line = (await server.store.audit.search(AuditAsk(action="signout")))[0]
    assert (line.target, line.detail) == ("ida", {"by": "sign-in provider", "ended": 4})


async def test_logout_of_a_person_ends_all_their_sessions_and_no_others(server: Server, provider: Provider) -> None:
    use(server, provider)
    ida, again = await signed_in(server, provider, "ida", "s-1"), await signed_in(server, provider, "ida")
    bea = await signed_in(server, provider, "bea", "s-9")
    assert (await send_logout(server, logout_token(provider, sub="u-ida"))).status_code == 200
    assert not await is_signed_in(ida)
    assert not await is_signed_in(again)
    assert await is_signed_in(bea)
    assert (await send_logout(server, logout_token(provider, sub="u-unknown"))).status_code == 200
    assert (await send_logout(server, logout_token(provider, sid="s-9"))).status_code == 200
    assert not await is_signed_in(bea)


async def test_session_whose_name_is_unknown_ends_with_each_of_its_person(server: Server, provider: Provider) -> None:
    use(server, provider)
    ida = await signed_in(server, provider, "ida")
    assert (await send_logout(server, logout_token(provider, sid="s-1"))).status_code == 200
    assert await is_signed_in(ida)
    assert (await send_logout(server, logout_token(provider, sub="u-ida", sid="s-1"))).status_code == 200
    assert not await is_signed_in(ida)


async def test_logout_that_the_database_lost_can_be_repeated(server: Server, provider: Provider) -> None:
    use(server, provider)
    ida = await signed_in(server, provider, "ida", "s-1")
    credentials = server.store.sessions._credentials
    open_write = credentials.write

    @asynccontextmanager
    async def lost() -> AsyncIterator[AsyncConnection]:
        async with open_write() as db:
            yield db
            raise StoreUnavailable("the server's database does not answer")

    token = logout_token(provider, sub="u-ida")
    credentials.write = lost  # type: ignore[method-assign]
    answer = await send_logout(server, token)
    assert (answer.status_code, answer.json()["error"]) == (503, "temporarily_unavailable")
    assert await is_signed_in(ida)
    credentials.write = open_write  # type: ignore[method-assign]
    assert (await send_logout(server, token)).status_code == 200, "the provider sends the same token again"
    assert not await is_signed_in(ida)


async def test_server_without_a_provider_has_no_logout(server: Server) -> None:
    assert (await send_logout(server, "a.b.c")).status_code == 400
