"""While an operation waits for jobs on nodes that will be removed, the cluster is ready and other operations run
first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.domain.changeset import Disturbs
from headway.domain.machines.scale_in_deadline import Deadline
from headway.errors import Refused
from headway.store import Operation, StoreUnavailable
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server, changes

AT = "/api/v1/clusters/lab"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = await server_fakes.start(tmp_path, builders.Clock())
    await made.apply(nodes=4)
    yield made
    await made.close()


async def state_of(server: Server) -> str:
    row = await server.store.clusters.get("lab")
    assert row is not None
    return row.state


async def later(server: Server) -> list[Operation]:
    """After the apply that made the cluster, the first first."""
    return list(reversed(await server.store.operations.recent("lab")))[1:]


def waits_once(server: Server, asked: Any, nodes: Collection[str] = ("lab-1-4",)) -> list[tuple[str, bool]]:
    """The first apply from now on waits for jobs while `asked` is asked of the cluster; (state, whether it goes aside)."""
    seen: list[tuple[str, bool]] = []

    async def apply(*_: Any) -> bool:
        if seen:
            return False
        waiting = server.backend.waiting
        await waiting.begin()
        await asked()
        seen.append((await state_of(server), await waiting.others(nodes)))
        await waiting.end()
        assert await state_of(server) == "changing"
        return seen[0][1]

    server.backend.answers["apply"] = apply
    return seen


async def test_waiting_scale_in_keeps_the_cluster_ready_and_lets_others_run_first(server: Server) -> None:
    client, clock = await server.client(), server.state.clock

    async def repair() -> None:
        """As health asks for another machine."""
        server.backend.answers["replace_machine"] = None
        await server.store.operations.enqueue("lab", "replace", "headway", params={"node": "lab-1-1"})

    seen = waits_once(server, repair)
    answer = await client.post(f"{AT}/scale", json={"groups": {"": 2}, "deadline_s": 3600})
    assert answer.status_code == 202, answer.text
    await server.work_off()
    assert seen == [("ready", True)]
    first, other, again = await later(server)
    assert (first.kind, first.state, first.kept) == ("scale", "done", (again.id,))
    assert (other.person, other.state) == ("headway", "done")
    assert (again.kind, again.person, again.state) == ("scale", "ann", "done")
    assert server.backend.deadline == Deadline(clock() + 3600, frozenset({"lab-1-4"})), (
        "its time goes on, and does not begin anew"
    )
    row = await server.store.clusters.get("lab")
    assert row is not None
    assert (row.state, row.document["spec"]["nodes"]) == ("ready", 2)


async def test_scale_in_that_fails_while_waiting_marks_the_cluster_failed(server: Server) -> None:
    async def apply(*_: Any) -> bool:
        await server.backend.waiting.begin()
        raise Refused("lab-1-2 is lost")

    server.backend.answers["apply"] = apply
    await (await server.client()).post(f"{AT}/scale", json={"groups": {"": 2}, "deadline_s": 3600})
    await server.work_off()
    assert await state_of(server) == "failed"


async def test_waiting_scale_in_is_cancelled_by_scaling_back(server: Server) -> None:
    client = await server.client()

    async def back() -> None:
        answer = await client.post(f"{AT}/scale", json={"groups": {"": 4}})
        assert answer.status_code == 202, answer.text

    waits_once(server, back)
    await client.post(f"{AT}/scale", json={"groups": {"": 2}, "deadline_s": 3600})
    await server.work_off()
    _, taken_back, again = await later(server)
    assert (taken_back.state, again.state) == ("done", "done")
    row = await server.store.clusters.get("lab")
    assert row is not None
    assert row.document["spec"]["nodes"] == 4, "what goes on goes by the file as it is by then"


@pytest.mark.parametrize("kind", ["down", "apply"])
async def test_waiting_scale_in_is_superseded_by_down_or_another_scale(server: Server, kind: str) -> None:
    server.backend.answers["take_down"] = ()
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
    first, taking, again = await later(server)
    assert (taking.state, again.state, first.kept) == ("done", "done", (again.id,))
    assert len(server.backend.named("apply")) == (2 if kind == "down" else 3), "nothing is left for it to do"
    if kind == "down":
        assert await server.store.clusters.get("lab") is None


@pytest.mark.parametrize("kind", ["down", "scale"])
async def test_waiting_scale_in_continues_if_the_superseding_operation_fails(server: Server, kind: str) -> None:
    server.backend.answers["take_down"] = Refused("the provider is away")
    client, clock = await server.client(), server.state.clock

    async def other() -> None:
        server.backend.answers["plan"] = changes(Disturbs.JOBS)  # and the request does not confirm it
        if kind == "down":
            await client.post(f"{AT}/down", json={"delete_data": False})
        else:
            await client.post(f"{AT}/scale", json={"groups": {"": 3}, "deadline_s": 60})

    waits_once(server, other)
    await client.post(f"{AT}/scale", json={"groups": {"": 2}, "deadline_s": 3600})
    await server.work_off()
    _, failed, again = await later(server)
    assert (failed.state, again.state) == ("failed", "done")
    assert server.backend.deadline == Deadline(clock() + 3600, frozenset({"lab-1-4"}))
    assert server.backend.named("apply")[-1][0].groups[0].nodes == 2


@pytest.mark.parametrize(
    ("asks", "aside"), [({"b": 1}, False), ({"a": 1, "b": 1}, True), ("apply", False), ("restore", True)]
)
async def test_waiting_scale_in_yields_only_to_deadlines_for_its_own_groups(
    server: Server, asks: dict[str, int] | str, aside: bool
) -> None:
    lab = builders.cluster(4, 0)
    a, b = (replace(lab.groups[0], name=n, slots=lab.groups[0].slots[i : i + 2]) for n, i in (("a", 0), ("b", 2)))
    server.backend.whole["lab"] = replace(lab, groups=(a, b))

    async def other() -> None:
        row = await server.store.clusters.get("lab")
        assert row is not None
        kind, scale = (asks, {}) if isinstance(asks, str) else ("scale", {"scale": asks})
        params = {"deadline_s": 60, **scale}
        await server.store.operations.enqueue("lab", kind, "ann", document=row.document, params=params)

    seen = waits_once(server, other, ["lab-1-1"])
    params: dict[str, Any] = {"scale": {}, "deadline_s": 3600}
    await server.store.operations.enqueue("lab", "scale", "ann", params=params)
    await server.work_off()
    assert seen == [("ready", aside)]


async def test_resumed_apply_does_not_ask_for_confirmation_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.server.workers.operation_worker.AWAY_S", 0.0)
    server.backend.answers["plan"] = changes()
    tries = 0

    async def apply(*_: Any) -> bool:
        nonlocal tries
        tries += 1
        server.backend.answers["plan"] = changes(Disturbs.JOBS)  # with half of it done
        if tries == 1:
            raise StoreUnavailable("away")
        return False

    server.backend.answers["apply"] = apply
    row = await server.store.clusters.get("lab")
    assert row is not None
    params: dict[str, Any] = {"look_again": True, "scale": {}}
    await server.store.operations.enqueue("lab", "scale", "ann", document=row.document, params=params)
    await server.work_off()
    (done,) = await later(server)
    assert (done.state, tries) == ("done", 2)


async def test_finished_operation_is_not_repeated_when_saving_its_end_fails(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.server.workers.operation_worker.AWAY_S", 0.0)
    finish, tries = server.store.operations.finish, 0

    async def finishes(*args: Any, **said: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise StoreUnavailable("away")
        return await finish(*args, **said)

    monkeypatch.setattr(server.store.operations, "finish", finishes)
    server.backend.answers["replace_machine"] = None
    asked = await server.store.operations.enqueue("lab", "replace", "ann", params={"node": "lab-1-1"})
    await server.work_off()
    done = await server.store.operations.get(asked.id)
    assert (done.state, done.attempts, tries) == ("done", 1, 2)
    assert len(server.backend.named("replace_machine")) == 1


async def test_waiting_scale_in_does_not_yield_to_a_rollout(server: Server) -> None:
    server.backend.answers["roll_nodes"] = True

    async def roll() -> None:
        await server.store.operations.enqueue("lab", "roll", "ann", params={})

    seen = waits_once(server, roll)
    await (await server.client()).post(f"{AT}/scale", json={"groups": {"": 2}, "deadline_s": 3600})
    await server.work_off()
    assert seen == [("ready", False)]


async def test_waiting_operation_does_not_block_other_clusters(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """One may be carried out at a time here: another cluster's apply goes on while this one waits for jobs."""
    monkeypatch.setattr("headway.server.workers.operation_worker.AT_ONCE", 1)
    done = asyncio.Event()

    async def apply(cluster: Any, *_: Any) -> bool:
        if cluster.name == "other":
            done.set()
        else:
            await server.backend.waiting.begin()
            await done.wait()
        return False

    server.backend.answers["apply"] = apply
    for name in ("lab", "other"):
        await server.store.operations.enqueue(name, "apply", "ann", document={"spec": {"name": name}})
    await server.work_off()
    assert server.state.waiting == set()
