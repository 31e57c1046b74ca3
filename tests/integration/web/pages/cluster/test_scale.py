"""The scale page shows the groups, a form and its plan, and changes nothing before the plan is confirmed."""

from __future__ import annotations

import re
from dataclasses import replace

import httpx

from headway.domain.changeset import Disturbs
from headway.domain.cluster import Group
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server

AT = "/clusters/lab/scale"


async def admin(server: Server) -> httpx.AsyncClient:
    return await server.client(origin=server_fakes.URL)


def field(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    return found[1] if found else ""


async def test_scale_page_shows_a_plan_and_applies_it_when_confirmed(server: Server) -> None:
    await server.apply()
    client = await admin(server)
    assert 'value="4"' in (await client.get(AT)).text
    server.backend.answers["plan"] = server_fakes.changes(Disturbs.NODE_DRAIN)
    shown = await client.post(AT, data={"nodes-main": "2", "deadline": "10"})
    assert shown.status_code == 200
    assert "1 change" in shown.text
    assert await server.store.operations.active("lab") is None
    sent = {"nodes-main": "2", "deadline": "10", "digest": field(shown.text, "digest"), "confirmed": "yes"}
    done = await client.post(f"{AT}/apply", data=sent)
    operation = await server.store.operations.active("lab")
    assert operation is not None
    assert done.headers["location"] == f"/operations/{operation.id}"
    assert operation.kind == "scale"
    assert (operation.params["scale"], operation.params["deadline_s"]) == ({"main": 2}, 600)


async def test_scale_page_refuses_a_changed_plan(server: Server) -> None:
    await server.apply()
    client = await admin(server)
    refused = await client.post(f"{AT}/apply", data={"nodes-main": "2", "digest": "0" * 32, "confirmed": "yes"})
    assert refused.status_code == 409
    assert "has changed since it was shown" in refused.text
    assert await server.store.operations.active("lab") is None


async def test_scale_page_rejects_invalid_and_unchanged_numbers(server: Server) -> None:
    await server.apply()
    client = await admin(server)
    for sent, words in (
        ({"nodes-main": "-3"}, "the number of nodes for main must be at least 0, not -3"),
        ({"nodes-main": "many"}, "is not a number of nodes for main"),
        ({"nodes-main": "4"}, "every group has that many nodes already"),
        ({"nodes-main": "20001"}, "is not a number of nodes for main"),
    ):
        told = await client.post(AT, data=sent)
        assert told.status_code == 400
        assert words in told.text
    told = await client.post(f"{AT}/apply", data={"nodes-main": "2", "deadline": "soon"})
    assert "is not a number of minutes" in told.text


async def test_scale_page_has_fields_only_for_manually_scaled_groups(server: Server) -> None:
    names = [f"lab-night-1-{i}" for i in range(1, 7)]
    whole = builders.cluster(4, 0)
    groups = (
        Group("gpu", builders.H100, 2, 4, slots=whole.slot_names, spot=True),
        Group("night", builders.H100, 1, 6, slots=tuple(names), idle_s=600),
    )
    server.backend.whole["lab"] = replace(whole, groups=groups)
    await server.apply()
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", (await (await admin(server)).get(AT)).text))
    assert "gpu spot h100-8 0 2 of 4 at most 4" in page
    assert "night h100-8 0 1 to 6 on demand; one goes after 10m 00s without a job 6" in page
    text = (await (await admin(server)).get(AT)).text
    assert 'name="nodes-gpu"' in text
    assert 'name="nodes-night"' not in text


async def test_scale_page_shows_viewers_no_form(server: Server) -> None:
    await server.apply()
    client = await server.client("vic", "viewer")
    assert '<form class="scale"' not in (await client.get(AT)).text
