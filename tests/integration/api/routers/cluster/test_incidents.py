"""Everybody can read incidents over HTTP; only admins return nodes and inject faults."""

from __future__ import annotations

import re

from headway.domain.incident import FaultAction, IncidentState
from headway.errors import Conflict, Refused
from headway.schemas.event_stream import ClusterEventOut
from headway.schemas.nodes.incidents import IncidentOut
from tests.support.servers.server_fakes import Server


async def test_incidents_are_listed_per_cluster_with_their_steps(server: Server) -> None:
    await server.apply()
    await server.apply("other")
    made = await server.store.incidents.open("lab", "lab-1-1", "XID 79", FaultAction.RMA, 5.0, {"gpu": 3})
    client = await server.client(role="viewer")
    (listed,) = (await client.get("/api/v1/clusters/lab/incidents")).json()
    assert (listed["number"], listed["state"], listed["steps"]) == (made.number, "seen", [])
    (exported,) = (await client.get("/api/v1/clusters/lab/incidents?steps=true")).json()
    assert exported == (await client.get(f"/api/v1/clusters/lab/incidents/{made.number}")).json()
    one = IncidentOut.model_validate((await client.get(f"/api/v1/clusters/lab/incidents/{made.number}")).json())
    assert one.steps[0].evidence == {"gpu": 3}
    for path in (f"other/incidents/{made.number}", "lab/incidents/99", "none/incidents"):
        assert (await client.get(f"/api/v1/clusters/{path}")).status_code == 404
    assert (await client.get(f"/api/v1/clusters/lab/incidents/{10**30}")).status_code == 422, "no such number can be"
    assert (await client.get("/api/v1/clusters/other/incidents")).json() == []


async def test_incidents_are_filtered_by_node_state_and_text(server: Server) -> None:
    await server.apply()
    gpu = await server.store.incidents.open("lab", "lab-1-1", "XID 79", FaultAction.RMA, 5.0, {})
    disk = await server.store.incidents.open("lab", "lab-1-2", "the disk is full", FaultAction.RMA, 6.0, {})
    closed = await server.store.incidents.open("lab", "lab-1-2", "XID 48", FaultAction.RMA, 7.0, {})
    await server.store.incidents.add_step(closed, IncidentState.RETURNED, "works")
    client = await server.client(role="viewer")
    for query, expected in (
        ("", [closed, disk, gpu]),
        ("node=lab-1-2", [closed, disk]),
        ("node=lab-1-1&node=lab-1-3", [gpu]),
        ("state=open", [disk, gpu]),
        ("state=returned", [closed]),
        ("q=xid", [closed, gpu]),
        ("q=xid&state=closed", [closed]),
        ("node=lab-1-4", []),
    ):
        answer = await client.get(f"/api/v1/clusters/lab/incidents?{query}")
        assert [row["number"] for row in answer.json()] == [one.number for one in expected], query


async def test_open_incidents_stay_listed_after_many_newer_ones(server: Server) -> None:
    await server.apply()
    store = server.store
    old = await store.incidents.open("lab", "lab-1-1", "row remapping failed", FaultAction.RMA, 5.0, {})
    await store.incidents.add_step(old, IncidentState.OUT, "kept out")
    for code in range(100):
        one = await store.incidents.open("lab", "lab-1-2", f"XID {code}", FaultAction.RMA, 6.0 + code, {})
        await store.incidents.add_step(one, IncidentState.RETURNED, "works")
    client = await server.client("olga", "operator")
    for path in ("/clusters/lab/incidents", "/incidents", "/clusters/lab/incidents?show=open", "/incidents?show=open"):
        page = (await client.get(path)).text
        assert "row remapping failed" in page, path
        assert re.findall(r">(All \d+|Open \d+)<", page) == ["All 101", "Open 1"]
        assert "are listed" not in page
    await store.incidents.open("lab", "lab-1-3", "XID 79", FaultAction.RMA, 200.0, {})
    page = (await client.get("/clusters/lab/incidents")).text
    assert "101 of 102 are listed" in page
    assert "row remapping failed" in page
    overview = (await client.get("/clusters/lab")).text
    assert "row remapping failed" in overview
    assert "2 open" in overview
    assert "and 98 earlier" in overview
    assert "2 open incidents" in (await client.get("/")).text


async def test_closing_an_old_incident_publishes_one_event(server: Server) -> None:
    await server.apply()
    old = await server.store.incidents.open("lab", "lab-1-1", "XID 79", FaultAction.RMA, 5.0, {})
    await server.state.readings.publish_incident_changes("lab")
    for code in range(100):
        await server.store.incidents.open("lab", "lab-1-2", f"XID {code}", FaultAction.RMA, 6.0 + code, {})
    await server.state.readings.publish_incident_changes("lab")
    seen = server.state.live.last_event_number
    await server.store.incidents.add_step(old, IncidentState.RETURNED, "works")
    await server.state.readings.publish_incident_changes("lab")
    await server.state.readings.publish_incident_changes("lab")
    told = [ClusterEventOut.model_validate_json(one.text) for one in server.state.live.events_after(seen) or ()]
    assert [(one.name, one.before, one.state) for one in told] == [(str(old.number), "seen", "returned")]


async def test_only_admins_return_incident_nodes(server: Server) -> None:
    await server.apply()
    made = await server.store.incidents.open("lab", "lab-1-1", "XID 79", FaultAction.RMA, 5.0, {})
    path = f"/api/v1/clusters/lab/incidents/{made.number}/return"
    member = await server.client("bob", "member")
    assert (await member.post(path, json={})).status_code == 403
    admin = await server.client()
    server.backend.answers["return_incident_node"] = Conflict("lab-1-1 stays out of service: no GPU")
    assert (await admin.post(path, json={})).status_code == 409
    back = await server.store.incidents.add_step(made, IncidentState.RETURNED, "works", actor="ann")
    server.backend.answers["return_incident_node"] = back
    assert (await admin.post(path, json={"false_alarm": True})).json()["state"] == "returned"
    assert server.backend.named("return_incident_node")[-1][1:] == (made.number, "ann", True)
    assert server.state.live.recent_events("lab")[0].where == "lab-1-1"


async def test_only_admins_inject_faults(server: Server) -> None:
    await server.apply()
    ask = {"kind": "xid", "node": "lab-1-1", "code": 79, "gpu": 3}
    member = await server.client("bob", "member")
    assert (await member.post("/api/v1/clusters/lab/faults", json=ask)).status_code == 403
    admin = await server.client()
    server.backend.answers["inject_fault"] = "done"
    assert (await admin.post("/api/v1/clusters/lab/faults", json=ask)).json() == {"done": "done"}
    server.backend.answers["inject_fault"] = Refused("not a local cluster")
    assert (await admin.post("/api/v1/clusters/lab/faults", json=ask)).status_code == 400
    for wrong in ({"kind": "burn"}, {"gpu": -1}, {"text": "a\nb"}, {"more": 1}):
        assert (await admin.post("/api/v1/clusters/lab/faults", json=ask | wrong)).status_code == 422
