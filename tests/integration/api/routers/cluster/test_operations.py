"""The event stream of an operation is complete and live."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from sqlalchemy import update

from headway.api.routers.cluster import operations
from headway.domain.changeset import Disturbs
from headway.domain.operation_kinds import OperationKind
from headway.store.db import cluster_schema
from tests.support.servers.server_fakes import Server, changes, document


def ask(name: str = "lab", **more: Any) -> dict[str, Any]:
    return {"document": document(name).model_dump(), **more}


def parse(text: str) -> list[dict[str, str]]:
    """Server-sent events -> fields."""
    events = []
    for block in text.replace("\r\n", "\n").strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if fields:
            events.append(fields)
    return events


async def test_event_stream_sends_all_events_before_the_end(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "EVENTS_BATCH", 3)
    server.backend.answers |= {"plan": changes(Disturbs.NOTHING), "apply": None}
    client = await server.client()
    operation = (await client.post("/api/v1/clusters/lab/apply", json=ask())).json()
    for number in range(7):
        await server.store.operations.add_event(operation["id"], "machines", f"machine {number}")
    await server.work_off()
    events = parse((await client.get(f"/api/v1/operations/{operation['id']}/events")).text)
    assert [e.get("id") for e in events] == [*map(str, range(1, 8)), None]


async def test_event_stream_sends_events_of_a_running_operation_live(server: Server) -> None:
    go_on, spoken = asyncio.Event(), asyncio.Event()

    async def work(cluster: Any, report: Any) -> None:
        await report("machines", "first")
        spoken.set()
        await go_on.wait()
        await report("machines", "second")

    server.backend.answers |= {"plan": changes(Disturbs.NOTHING), "apply": work}
    client = await server.client()
    operation = (await client.post("/api/v1/clusters/lab/apply", json=ask())).json()
    working = asyncio.create_task(server.work_off())
    await spoken.wait()
    following = asyncio.create_task(client.get(f"/api/v1/operations/{operation['id']}/events"))
    go_on.set()
    texts = [json.loads(e["data"]).get("text") for e in parse((await following).text)]
    await working
    assert texts == ["first", "second", None]


@pytest.mark.parametrize("kind", [OperationKind.BACKUP, OperationKind.RESTORE, OperationKind.DOWN])
async def test_only_admins_see_where_the_server_keeps_backups(server: Server, kind: OperationKind) -> None:
    await server.apply()
    path = "/srv/secret folder/x/lab-20261126.hwb"
    operation = (await server.store.operations.recent("lab"))[0]
    await server.store.operations.add_event(operation.id, "backup", f"wrote {path}: 3 MB, 1/2 done")
    async with server.store.database.write() as db:
        change = update(cluster_schema.operations).where(cluster_schema.operations.c.id == operation.id)
        error = {"kind": "error", "message": f"{path} is not readable", "hint": f"see {path}"}
        await db.execute(change.values(kind=kind.value, kept=[path], error=error, state="failed"))
    for role, seen in (("viewer", False), ("member", False), ("operator", False), ("admin", True)):
        client = await server.client(f"p{role}", role)
        answers = {
            url: (await client.get(url)).text
            for url in (
                "/api/v1/operations",
                f"/api/v1/operations/{operation.id}",
                f"/api/v1/operations/{operation.id}/events",
                f"/operations/{operation.id}",
                f"/operations/{operation.id}/live",
            )
        }
        for url, text in answers.items():
            assert ("/srv/" in text or "secret folder" in text) is seen, (role, url)
            assert "lab-20261126.hwb" in text, (role, url)
