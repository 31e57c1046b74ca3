"""An operation's page and its stream are for those alone who reach its cluster; the home page counts every open incident."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.domain.incident import IncidentState, XidClass
from headway.web.pages import operations
from tests import builders
from tests.unit import server_fakes
from tests.unit.server_fakes import Server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = await server_fakes.start(tmp_path, builders.Clock())
    await made.apply()
    yield made
    await made.close()


@pytest.mark.parametrize("path", ["", "/live"])
async def test_a_token_for_another_cluster_does_not_see_the_operation(server: Server, path: str) -> None:
    (operation,) = await server.store.operations("lab")
    await server.store.put_person("eve", "admin")
    _, mine = await server.store.create_token("eve", cluster="lab")
    _, other = await server.store.create_token("eve", cluster="sea")
    at = f"/operations/{operation.id}{path}"
    assert (await server.anonymous(authorization=f"Bearer {mine}").get(at)).status_code == 200
    assert (await server.anonymous(authorization=f"Bearer {other}").get(at)).status_code == 403


async def test_an_operation_without_news_tells_that_somebody_is_there(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "LOOK_S", 0.01)
    made = await server.store.enqueue_operation("lab", "backup", "ann")
    events = operations._events(server.state, made.id)
    assert [(await anext(events)).event for _ in range(2)] == ["progress", "pulse"]
    server.state.clock.now += 10  # type: ignore[attr-defined]
    assert (await anext(events)).event == "pulse"
    await events.aclose()  # type: ignore[attr-defined]


async def test_open_incidents_are_counted_however_many_have_ended_since(server: Server) -> None:
    store = server.store
    for number in range(60):
        opened = await store.open_incident("lab", "lab-1-1", "what", XidClass.REBOOT, 1000.0 + number, {})
        if number > 1:
            await store.move_incident(opened, IncidentState.RETURNED, "passed", evidence={"passed": ["x"]})
    page = (await (await server.client()).get("/")).text
    assert "2 open incidents" in page
