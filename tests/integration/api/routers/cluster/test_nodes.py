"""Operators can drain, return and reboot nodes over HTTP."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from headway.domain.incident import FaultAction, IncidentState
from headway.domain.slurm.node_reasons import REBOOTS
from headway.errors import Conflict, Unreachable
from headway.services.nodes.node_actions import resume_reboots
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server, reading

NODE = "/api/v1/clusters/lab/nodes/lab-1-1"


async def ready(server: Server) -> Any:
    await server.apply()
    server.backend.answers |= {"read": reading(), "machines": (builders.machine("lab-1-1"),)}
    return await server.client("olga", "operator")


async def test_drain_requires_a_one_line_reason_and_is_audited(server: Server) -> None:
    olga = await ready(server)
    server.backend.answers["drain_node"] = "drained by olga: disk swap"
    assert (await olga.post(f"{NODE}/drain", json={"reason": " disk   swap "})).json() == {
        "done": "drained by olga: disk swap"
    }
    assert server.backend.named("drain_node")[0][1:] == ("lab-1-1", "disk swap", "olga")
    for wrong in ({}, {"reason": ""}, {"reason": "   "}, {"reason": "a\nb"}, {"reason": "x" * 201}):
        assert (await olga.post(f"{NODE}/drain", json=wrong)).status_code == 422, wrong
    assert (await olga.post("/api/v1/clusters/lab/nodes/lab-head/drain", json={"reason": "x"})).status_code == 404
    assert "node.drain" in {row.action for row in await server.store.audit.search()}
    assert "drained by olga: disk swap" in [event.text for event in server.state.live.recent_events("lab")]


async def test_suspended_slot_answers_404_as_a_node(server: Server) -> None:
    whole = builders.cluster(2, 0)
    server.backend.whole["lab"] = replace(whole, groups=(replace(whole.groups[0], nodes=1, most=2),))
    olga = await ready(server)
    assert (await olga.get(NODE)).status_code == 200
    told = await olga.get("/api/v1/clusters/lab/nodes/lab-1-2")
    assert told.status_code == 404
    assert "lab-1-2 has no machine now" in told.text


async def test_return_of_a_node_with_an_incident_runs_its_tests(server: Server) -> None:
    olga = await ready(server)
    server.backend.answers["return_node"] = "returned to service by olga"
    assert (await olga.post(f"{NODE}/return")).json()["done"] == "returned to service by olga"
    made = await server.store.incidents.open("lab", "lab-1-1", "XID 79", FaultAction.RMA, 5.0, {})
    assert (await olga.get(NODE)).json()["incident"]["number"] == made.number
    server.backend.answers["return_incident_node"] = Conflict("lab-1-1 stays out of service: no GPU")
    assert (await olga.post(f"{NODE}/return")).status_code == 409
    over = await server.store.incidents.add_step(made, IncidentState.RETURNED, "tests passed", actor="olga")
    server.backend.answers["return_incident_node"] = over
    again = await server.store.incidents.open("lab", "lab-1-1", "XID 79", FaultAction.RMA, 5.0, {})
    assert "tests passed" in (await olga.post(f"{NODE}/return")).json()["done"]
    assert server.backend.named("return_incident_node")[-1][1] == again.number


async def test_reboot_continues_after_the_response_and_runs_once(server: Server) -> None:
    olga = await ready(server)
    gate: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def asked(*_: Any) -> Any:
        return gate

    server.backend.answers["reboot_node"] = asked
    answer = await olga.post(f"{NODE}/reboot", json={"busy": True})
    assert (answer.status_code, answer.json()["ended_at"]) == (202, None)
    assert server.backend.named("reboot_node")[0][1:] == ("lab-1-1", "olga", True)
    assert (await olga.post(f"{NODE}/reboot", json={})).status_code == 409
    assert (await olga.post(f"{NODE}/test", json={})).status_code == 409
    gate.set_result("it has not registered with Slurm")
    await asyncio.gather(*server.state.background_tasks)
    action = (await olga.get(NODE)).json()["action"]
    assert (action["fault"], action["ended_at"]) == ("it has not registered with Slurm", 1000.0)


async def test_restarted_server_resumes_an_interrupted_reboot_once(server: Server) -> None:
    olga = await ready(server)
    name, cluster, end = "lab-1-1", builders.cluster(), asyncio.Event()

    async def going() -> str:
        await end.wait()
        return ""

    snapshot = server.state.live.snapshot("lab")
    node = replace(builders.node(name), states=("DOWN", "DRAIN"), reason=f"olga: {REBOOTS}")
    server.state.live.store_snapshot(replace(snapshot, nodes=(node, builders.node("lab-1-2"))))
    server.backend.answers["resume_reboot"] = None
    await resume_reboots(server.state, cluster)
    assert server.state.node_actions == {}, "another server is at it"
    server.backend.answers["resume_reboot"] = ("olga", going())
    for _ in range(2):
        await resume_reboots(server.state, cluster)
    assert [args[1] for args in server.backend.named("resume_reboot")] == [name, name]
    action = (await olga.get(NODE)).json()["action"]
    assert (action["kind"], action["person"], action["ended_at"]) == ("reboot", "olga", None)
    end.set()
    await asyncio.gather(*server.state.background_tasks)


async def test_refuses_to_reboot_a_node_under_repair(server: Server) -> None:
    olga = await ready(server)
    await server.store.incidents.open("lab", "lab-1-1", "XID 79", FaultAction.RMA, 5.0, {})
    answer = await olga.post(f"{NODE}/reboot", json={"busy": True})
    assert answer.status_code == 409
    assert "under incident 1" in answer.json()["detail"]


async def test_node_test_reports_each_check_and_refuses_busy_nodes(server: Server) -> None:
    olga = await ready(server)
    server.backend.answers["test_node"] = (("gpus", True, ""), ("mounts", False, "/scratch is gone"))
    assert (await olga.post(f"{NODE}/test", json={})).status_code == 202
    await asyncio.gather(*server.state.background_tasks)
    action = (await olga.get(NODE)).json()["action"]
    assert (action["fault"], [one["ok"] for one in action["tests"]]) == ("/scratch is gone", [True, False])
    server.backend.answers["test_node"] = Unreachable("lab-1-1 does not run")
    await olga.post(f"{NODE}/test", json={})
    await asyncio.gather(*server.state.background_tasks)
    assert (await olga.get(NODE)).json()["action"]["fault"] == "lab-1-1 does not run"
    busy = "/api/v1/clusters/lab/nodes/lab-1-2/test"
    assert (await olga.post(busy, json={"hard": True})).status_code == 409, "a job runs there"
