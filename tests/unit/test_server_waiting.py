"""An operation that waits for jobs on nodes that go: the cluster is ready meanwhile, and what is asked of it goes first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headway.store import Operation
from tests import builders
from tests.unit import server_fakes
from tests.unit.server_fakes import Server

AT = "/api/v1/clusters/lab"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = await server_fakes.start(tmp_path, builders.Clock())
    await made.apply(nodes=4)
    yield made
    await made.close()


async def state_of(server: Server) -> str:
    row = await server.store.cluster("lab")
    assert row is not None
    return row.state


async def later(server: Server) -> list[Operation]:
    """After the apply that made the cluster, the first first."""
    return list(reversed(await server.store.operations("lab")))[1:]


def waits_once(server: Server, asked: Any) -> list[tuple[str, bool]]:
    """The first apply from now on waits for jobs while `asked` is asked of the cluster; (state, whether it goes aside)."""
    seen: list[tuple[str, bool]] = []

    async def apply(*_: Any) -> bool:
        if seen:
            return False
        waiting = server.work.waiting
        await waiting.begin()
        await asked()
        seen.append((await state_of(server), await waiting.others()))
        await waiting.end()
        assert await state_of(server) == "changing"
        return seen[0][1]

    server.work.answers["apply"] = apply
    return seen


async def test_the_cluster_is_ready_meanwhile_and_what_is_asked_goes_first(server: Server) -> None:
    client, clock = await server.client(), server.state.clock

    async def repair() -> None:
        """As health asks for another machine."""
        row = await server.store.cluster("lab")
        assert row is not None
        params = {"confirmed": False, "look_again": False, "scale": {}}
        await server.store.enqueue_operation("lab", "apply", "headway", document=row.document, params=params)

    seen = waits_once(server, repair)
    answer = await client.post(f"{AT}/scale", json={"groups": {"": 2}, "deadline_s": 3600})
    assert answer.status_code == 202, answer.text
    await server.work_off()
    assert seen == [("ready", True)]
    first, other, again = await later(server)
    assert (first.kind, first.state, first.kept) == ("scale", "done", (again.id,))
    assert (other.person, other.state) == ("headway", "done")
    assert (again.kind, again.person, again.state) == ("scale", "ann", "done")
    assert server.work.deadline == clock() + 3600, "its time goes on, and does not begin anew"
    row = await server.store.cluster("lab")
    assert row is not None
    assert (row.state, row.document["spec"]["nodes"]) == ("ready", 2)


async def test_the_number_of_before_takes_it_back(server: Server) -> None:
    client = await server.client()

    async def back() -> None:
        answer = await client.post(f"{AT}/scale", json={"groups": {"": 4}})
        assert answer.status_code == 202, answer.text

    waits_once(server, back)
    await client.post(f"{AT}/scale", json={"groups": {"": 2}, "deadline_s": 3600})
    await server.work_off()
    _, taken_back, again = await later(server)
    assert (taken_back.state, again.state) == ("done", "done")
    row = await server.store.cluster("lab")
    assert row is not None
    assert row.document["spec"]["nodes"] == 4, "what goes on goes by the file as it is by then"


@pytest.mark.parametrize("kind", ["down", "apply"])
async def test_nothing_goes_on_where_another_takes_its_place(server: Server, kind: str) -> None:
    server.work.answers["down"] = ()
    client = await server.client()

    async def other() -> None:
        if kind == "down":
            await client.post(f"{AT}/down", json={"delete_data": False})
        else:
            await client.post(f"{AT}/scale", json={"groups": {"": 3}, "deadline_s": 60})

    seen = waits_once(server, other)
    await client.post(f"{AT}/scale", json={"groups": {"": 2}, "deadline_s": 3600})
    await server.work_off()
    assert seen == [("ready", True)]
    assert len(await later(server)) == 2


async def test_it_does_not_step_aside_for_a_roll_which_steps_aside_for_it(server: Server) -> None:
    server.work.answers["roll"] = True

    async def roll() -> None:
        await server.store.enqueue_operation("lab", "roll", "ann", params={})

    seen = waits_once(server, roll)
    await (await server.client()).post(f"{AT}/scale", json={"groups": {"": 2}, "deadline_s": 3600})
    await server.work_off()
    assert seen == [("ready", False)]
