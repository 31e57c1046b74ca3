"""Every list is returned in pages, applies the requested filters, and loses no row between two pages."""

from __future__ import annotations

import httpx

from headway import Client
from headway.schemas.base import API_PREFIX
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server, reading

LISTS = (
    "/clusters", "/operations", "/people", "/tokens", "/clusters/lab/nodes", "/clusters/lab/incidents",
    "/clusters/lab/notebooks", "/clusters/lab/pipelines", "/clusters/lab/users", "/clusters/lab/teams",
)  # fmt: skip


async def full(server: Server) -> httpx.AsyncClient:
    for name in ("lab", "mine", "yours"):
        await server.apply(name)
        server.state.clock.now += 1  # type: ignore[attr-defined]
    server.backend.answers |= {"read": reading(), "machines": (), "shares": ()}
    for name in ("bea", "cid", "dan", "eve"):
        await server.store.people.set_role(name, "member" if name != "dan" else "viewer")
    return await server.client()


async def walk(client: httpx.AsyncClient, path: str) -> list[str]:
    """Names or ids, by the links of the pages."""
    found: list[str] = []
    address = API_PREFIX + path
    for _ in range(30):
        answer = await client.get(address)
        assert answer.status_code == 200, answer.text
        rows = answer.json()
        found += [row.get("name") or row["id"] for row in rows]
        if "next" not in answer.links:
            return found
        address = answer.links["next"]["url"]
    raise AssertionError("no end")


async def test_page_links_list_every_row_once_and_keep_filters(server: Server) -> None:
    client = await full(server)
    assert await walk(client, "/clusters?limit=1") == ["lab", "mine", "yours"]
    assert await walk(client, "/clusters?q=our&limit=1") == ["yours"]
    assert await walk(client, "/people?limit=2") == ["ann", "bea", "cid", "dan", "eve", "setup"]
    assert await walk(client, "/people?limit=1&role=viewer&role=member") == ["bea", "cid", "dan", "eve"]
    whole = await walk(client, "/operations")
    assert len(whole) == 3
    assert await walk(client, "/operations?limit=1") == whole, "the latest first"
    assert await walk(client, "/operations?cluster=mine&state=done&limit=1") == whole[1:2]
    assert await walk(client, "/operations?state=failed") == []


async def test_rows_added_or_removed_between_pages_do_not_shift_the_rest(server: Server) -> None:
    client = await full(server)
    first = await client.get(f"{API_PREFIX}/people?limit=3")
    await server.store.people.set_role("aaa", "viewer")
    await server.store.people.delete("cid")
    further = (await client.get(first.links["next"]["url"])).json()
    assert [row["name"] for row in further] == ["dan", "eve", "setup"]


async def test_node_list_sorts_naturally_and_filters_by_state_and_role(server: Server) -> None:
    await server.apply(nodes=12)
    down = builders.node("lab-1-3", "IDLE", "DRAIN", reason="broken fan")
    server.backend.answers |= {"read": reading(nodes=(builders.node("lab-1-2", "IDLE"), down)), "machines": ()}
    client = await server.client("victor", "viewer")
    names = await walk(client, "/clusters/lab/nodes?limit=5")
    assert names == ["lab-head", *(slot.name for slot in builders.cluster(12).slots)]
    assert await walk(client, "/clusters/lab/nodes?state=drain") == ["lab-1-3"]
    assert await walk(client, "/clusters/lab/nodes?q=FAN") == ["lab-1-3"]
    assert await walk(client, "/clusters/lab/nodes?role=head") == ["lab-head"]
    assert await walk(client, "/clusters/lab/nodes?usable=true&role=node") == ["lab-1-2"]


async def test_lists_users_and_teams_of_a_cluster(server: Server) -> None:
    client = await full(server)
    (user,) = (await client.get(f"{API_PREFIX}/clusters/lab/users")).json()
    assert (user["name"], user["teams"]) == ("alice", ["default"])
    assert await walk(client, "/clusters/lab/users?team=other") == []
    assert len((await client.get(f"{API_PREFIX}/clusters/lab/teams?user=alice")).json()["teams"]) == 1
    assert (await client.get(f"{API_PREFIX}/clusters/lab/teams?user=bea")).json()["teams"] == []


async def test_refuses_invalid_limits_and_cursors(server: Server) -> None:
    client = await full(server)
    for path in LISTS:
        for wrong, status in (("limit=0", 422), ("limit=1001", 422), ("cursor=%00", 400), ("cursor=MQ", 400)):
            answer = await client.get(f"{API_PREFIX}{path}?{wrong}")
            assert answer.status_code == status, (path, wrong, answer.text)
    assert (await client.get(f"{API_PREFIX}/people?cursor=W3t9XQ")).status_code == 400, "of another list"


async def test_client_follows_page_links(server: Server) -> None:
    await full(server)
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.raw_path.decode())
        number = len(asked)
        row = {"id": str(number), "person": "ann", "role": "admin", "label": "", "created_at": number}
        link = {"link": f'<{API_PREFIX}/tokens?limit=1&cursor=c{number}>; rel="next"'} if number < 3 else {}
        return httpx.Response(200, json=[row], headers=link)

    client = Client("http://x", "t", transport=httpx.MockTransport(answer))
    assert [token.id for token in client.tokens.list()] == ["1", "2", "3"]
    assert asked[1:] == [f"{API_PREFIX}/tokens?limit=1&cursor=c{number}" for number in (1, 2)]
