"""The activity of a cluster is one paged list over HTTP, merged from three stored sources."""

from __future__ import annotations

import pytest

from headway.domain.incident import FaultAction, IncidentState
from headway.schemas.activity import ActivityPage
from headway.services.cursors import encode_cursor
from tests.support.servers.server_fakes import Server

API = "/api/v1/clusters/lab/activity"


async def furnish(server: Server) -> None:
    """An apply, an incident of a node that came back, and a drain."""
    await server.apply()
    made = await server.store.incidents.open("lab", "lab-1-1", "XID 79: fell off the bus", FaultAction.RMA, 5.0, {})
    made = await server.store.incidents.add_step(made, IncidentState.DRAINING, "drained")
    await server.store.incidents.add_step(made, IncidentState.RETURNED, "tests passed", evidence={"passed": ["gpus"]})
    await server.store.audit.record("olga", "node.drain", "lab/lab-1-2", {"reason": "disk swap"})


async def read_page(server: Server, query: str = "") -> ActivityPage:
    client = await server.client(role="viewer")
    return ActivityPage.model_validate((await client.get(f"{API}{query}")).json())


async def test_activity_merges_applies_incidents_and_admin_actions(server: Server) -> None:
    await furnish(server)
    found = {(one.kind, one.level, one.node, one.person, one.text) for one in (await read_page(server)).activity}
    assert found == {
        ("operation", "info", "", "setup", "apply: done in 0 s"),
        ("incident", "warning", "lab-1-1", "", "XID 79: fell off the bus"),
        ("incident", "info", "lab-1-1", "", "returned: tests passed"),
        ("action", "info", "lab-1-2", "olga", "drained: disk swap"),
    }
    assert [one.node for one in (await read_page(server, "?kind=action")).activity] == ["lab-1-2"]


async def test_activity_excludes_other_clusters_refusals_and_exec(server: Server) -> None:
    await server.apply()
    await server.apply("lab2")
    await server.store.audit.record("olga", "node.drain", "lab2/lab2-1-1", {"reason": "x"})
    await server.store.audit.record("victor", "node.drain", "lab/lab-1-1", {}, result="refused", address="192.0.2.1")
    await server.store.audit.record("ann", "exec", "lab", {"program": "id"})
    assert [one.kind for one in (await read_page(server)).activity] == ["operation"]


async def test_failed_operation_shows_its_reason_in_activity(server: Server) -> None:
    await server.apply()
    made = await server.store.operations.enqueue("lab", "apply", "ann")
    await server.store.operations.claim("one", 1e9, 1e9)
    error = {"kind": "command_failed", "message": "lab-1-1: no space left\nmore", "hint": ""}
    await server.store.operations.finish(made.id, "one", "failed", error=error)
    (latest,) = [one for one in (await read_page(server)).activity if one.operation == made.id]
    assert (latest.level, latest.text, latest.operation) == (
        "error",
        "apply: failed; lab-1-1: no space left",
        made.id,
    )


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
async def test_pages_of_mixed_events_at_one_moment_lose_and_repeat_none(server: Server, limit: int) -> None:
    await server.apply()
    for number in range(4):
        await server.store.operations.enqueue("lab", "backup", f"p{number}")
        one = await server.store.incidents.open("lab", f"lab-1-{number}", f"XID {number}", FaultAction.RMA, 5.0, {})
        await server.store.incidents.add_step(
            one, IncidentState.RETURNED, "tests passed", evidence={"passed": ["gpus"]}
        )
        await server.store.audit.record("olga", "node.test", f"lab/lab-1-{number}", {})
    whole = (await read_page(server)).activity
    seen, cursor = [], ""
    while True:
        page = await read_page(server, f"?limit={limit}&cursor={cursor}")
        seen += page.activity
        cursor = page.next
        if not cursor:
            break
    assert len(whole) == 1 + 4 + 8 + 4
    assert seen == whole


async def test_activity_pages_handle_equal_times_and_refuse_bad_cursors(server: Server) -> None:
    await server.apply()
    for number in range(7):
        await server.store.audit.record("olga", "node.test", f"lab/lab-1-{number}", {})
    seen, cursor = [], ""
    while True:
        page = await read_page(server, f"?kind=action&limit=3&cursor={cursor}")
        seen += [one.node for one in page.activity]
        cursor = page.next
        if not cursor:
            break
    assert sorted(seen) == [f"lab-1-{number}" for number in range(7)]
    client = await server.client(role="viewer")
    places = [(1,), (1, "action", 1, 1), (-1.0, "action", 1, 0), (float("inf"), "action", 1, 0), (float("nan"), "action", 1, 0),
              (1.0, "x", 1, 0), (1.0, "action", 2**31, 0), (1.0, "action", "1", 0)]  # fmt: skip
    for wrong in ("x", "1", *(encode_cursor(place) for place in places)):
        assert (await client.get(f"{API}?cursor={wrong}")).status_code == 400, wrong
    assert (await client.get("/api/v1/clusters/none/activity")).status_code == 404
