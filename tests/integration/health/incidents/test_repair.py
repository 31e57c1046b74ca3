"""The fault class selects the first repair; failed repairs escalate up to the limit, and an unreliable node stays
out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.catalog.providers import LOCAL
from headway.domain.incident import FaultAction, Incident, IncidentState
from headway.domain.storage.folders import StorageFolders, Volume
from headway.health.detection.agent_events import Heartbeats
from headway.store import StoreUnavailable
from tests.support.clusters import builders
from tests.support.clusters.incident_cluster import FOR_GOOD, LAB, NODE, Ward, symptom, ward


async def test_lost_volume_drains_the_node_and_is_remounted_without_requeue(tmp_path: Path) -> None:
    volume = Volume("models", "/models", "nfs4", "filer:/models")
    async with ward(tmp_path, replace(LAB, storage=StorageFolders(volumes=(volume,)))) as made:
        made.world.jobs, made.world.away = {7: "RUNNING"}, 3
        lost = replace(
            symptom(0, gpu=None), kind="volumes", text="volumes: /models is not mounted", action=FaultAction.MOUNT
        )
        await made.responder.handle_symptom(lost, [])
        assert made.world.reason == "headway: incident 1: volumes: /models is not mounted"
        found = await made.settle()
        assert found.state is IncidentState.RETURNED
        assert made.world.order == ["drain", *["mount models.mount"] * 4, "resume"]
        assert made.world.requeued == []
        assert found.score == 0


VOLUME = replace(LAB, storage=StorageFolders(volumes=(Volume("models", "/models", "nfs4", "filer:/models"),)))
LOST = replace(symptom(0, gpu=None), kind="volumes", text="volumes: /models is not mounted", action=FaultAction.MOUNT)


async def test_gpu_error_on_a_node_awaiting_a_volume_requeues_its_jobs(tmp_path: Path) -> None:
    async with ward(tmp_path, VOLUME) as made:
        made.world.jobs, made.world.away = {7: "RUNNING"}, FOR_GOOD
        await made.responder.handle_symptom(LOST, [])
        await made.responder.resume_open()
        assert (await made.newest()).state is IncidentState.REPAIRING
        await made.responder.handle_symptom(symptom(46), [])
        assert made.world.requeued == [7], "before anything is done to its GPUs"
        made.world.away = 0
        found = await made.settle()
        assert (found.state, found.action) == (IncidentState.RETURNED, FaultAction.RESET)
        assert [word for word in made.world.order if not word.startswith("mount")] == [
            "drain",
            "drain",
            "reset 3",
            "resume",
        ]


async def test_node_that_dies_while_awaiting_a_volume_is_fenced(tmp_path: Path) -> None:
    async with ward(tmp_path, VOLUME) as made:
        made.world.jobs, made.world.away = {7: "RUNNING"}, FOR_GOOD
        await made.responder.handle_symptom(LOST, [])
        await made.responder.resume_open()
        made.world.away = 0
        await made.responder.handle_heartbeats(Heartbeats(4, {NODE: 6.0}), made.clock.now)
        assert [word for word in made.world.order if word in ("fence", "down")] == ["fence", "down"]
        assert made.world.jobs[7] == "PENDING"
        found = await made.settle()
        assert (found.number, found.state, found.action) == (1, IncidentState.RETURNED, FaultAction.REBOOT)


@pytest.mark.parametrize(
    ("code", "begins"),
    [(46, ["drain", "reset 3", "resume"]), (48, ["drain", "reset 3", "resume"]), (54, ["drain"])],
)
async def test_xid_class_selects_the_first_repair(lab: Ward, code: int, begins: list[str]) -> None:
    await lab.responder.handle_symptom(symptom(code), [])
    await lab.settle()
    assert lab.world.order == begins


async def test_failed_repairs_escalate_until_the_node_stays_out(lab: Ward) -> None:
    lab.world.gpus, lab.world.gpus_after_reset = 7, 7
    await lab.responder.handle_symptom(symptom(46), [])
    found = await lab.settle()
    assert found.state is IncidentState.OUT
    assert lab.world.order == ["drain", "reset 3", "stop", "start"]
    assert found.steps[-1].text == "reset and reboot did not help; when the node works, run headway incident return 1"
    assert [step.text for step in found.steps if step.text.startswith("a test failed")] == [
        "a test failed: nvidia-smi lists 7 GPUs, not 8"
    ] * 2
    assert await lab.responder.resume_open() == [], "it stays so"


async def test_failed_agent_checks_keep_the_node_out(lab: Ward) -> None:
    lab.world.sound = False
    await lab.responder.handle_symptom(symptom(46), [])
    found = await lab.settle()
    assert found.state is IncidentState.OUT
    assert "a test failed: mounts: /scratch is gone" in [step.text for step in found.steps]
    assert set(lab.world.tested) == {"checks"}


@pytest.mark.parametrize("slow_with", [(), ("lab-1-4",), ("lab-1-3", "lab-1-4")])
async def test_hard_tests_compare_the_node_with_up_to_two_idle_nodes(tmp_path: Path, slow_with: Sequence[str]) -> None:
    async with ward(tmp_path, replace(LAB, health=builders.health(tries=1))) as lab:
        lab.world.idle, lab.world.slow_with = ("lab-1-1", "lab-1-3", "lab-1-4"), set(slow_with)
        await lab.responder.handle_symptom(symptom(), [])
        found = await lab.settle()
        asked = [word for word in lab.world.order if word.startswith("all-reduce")]
        assert asked == [f"all-reduce with {name}" for name in ("lab-1-4", "lab-1-3")[: 1 + bool(slow_with)]]
        assert lab.world.order.count("create lab-1-4") == lab.world.order.count("delete lab-1-4") == 1
        if len(slow_with) < 2:
            assert found.state is IncidentState.RETURNED, "one partner that is bad says nothing"
            assert "allreduce" in found.steps[-1].evidence["passed"]  # type: ignore[operator]
        else:
            assert found.state is IncidentState.OUT
            assert found.steps[-2].text == "a test failed: allreduce with lab-1-3: less than the plan expects"


@pytest.mark.parametrize(
    ("answers", "passed", "text"),
    [
        ({}, True, ""),
        ({"lab-1-4": {"ok": True, "skipped": True, "reason": "ib_write_bw is not installed (package perftest)"}},
         False, "rdma: ib_write_bw is not installed (package perftest)"),
        ({"lab-1-4": {"ok": False, "reason": "mlx5_1:1: timed out"}}, True, ""),
        ({name: {"ok": False, "reason": "mlx5_1:1: timed out"} for name in ("lab-1-3", "lab-1-4")},
         False, "a test failed: rdma with lab-1-3: mlx5_1:1: timed out"),
    ],
)  # fmt: skip
async def test_rdma_ports_are_tested_after_the_all_reduce(
    tmp_path: Path, answers: dict[str, dict[str, Any]], passed: bool, text: str
) -> None:
    async with ward(tmp_path, replace(LAB, health=builders.health(tries=1))) as lab:
        lab.world.idle, lab.world.rdma = ("lab-1-3", "lab-1-4"), answers
        await lab.responder.handle_symptom(symptom(), [])
        found = await lab.settle()
        assert found.state is (IncidentState.OUT if text.startswith("a test failed") else IncidentState.RETURNED)
        evidence = [step.evidence for step in found.steps]
        assert any("rdma" in row.get("passed", ()) for row in evidence) is passed  # type: ignore[operator]
        assert any(text in f"{step.text} {step.evidence}" for step in found.steps)


async def test_health_tries_limits_repairs(tmp_path: Path) -> None:
    async with ward(tmp_path, replace(LAB, health=builders.health(tries=1))) as lab:
        lab.world.gpus_after_reset = None
        await lab.responder.handle_symptom(symptom(46), [])
        assert (await lab.settle()).state is IncidentState.OUT
        assert lab.world.order == ["drain", "reset 3"]


async def test_last_repair_queues_a_machine_replacement(lab: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.world.gpus, lab.world.traits = 7, LOCAL
    await lab.responder.handle_symptom(symptom(79), [])
    while "delete" not in lab.world.order:
        assert lab.responder.tasks.running
        await lab.responder.sleep(0)
        await lab.responder.resume_open()
    (operation,) = await lab.store.operations.recent("lab")
    assert (operation.kind, operation.person, operation.params) == ("replace", "headway", {"node": NODE})
    await lab.responder.resume_open()
    assert (await lab.newest()).state is IncidentState.REPAIRING, "until that has ended"
    assert (await lab.newest()).score == 0, "it is another machine"
    asked, real = 0, lab.store.operations.get

    async def away(number: str) -> Any:
        nonlocal asked
        asked += 1
        if asked < 4:
            raise StoreUnavailable("the server's database did not answer in time")
        return await real(number)

    monkeypatch.setattr(lab.store.operations, "get", away)
    while asked < 5:
        assert lab.responder.tasks.running, "the repair has ended because the database was away"
        await lab.responder.sleep(0)
        await lab.responder.resume_open()
    assert (await lab.newest()).state is IncidentState.REPAIRING


async def test_repeated_faults_escalate_and_keep_an_unreliable_node_out(lab: Ward) -> None:
    lab.clock.now += 1000
    for number, (code, what) in enumerate([(48, "drain"), (48, "rma"), (79, "rma")], start=1):
        lab.clock.now += 3600
        await lab.responder.handle_symptom(symptom(code, at=lab.clock.now), [])
        found = await lab.settle()
        assert (found.number, found.action.value) == (number, what)
    assert found.state is IncidentState.OUT
    assert "fails too often: score 8 of 8 over 14 days" in found.steps[-1].text
    back = await lab.bring_back(3, "ann")
    assert back.state is IncidentState.RETURNED
    lab.clock.now += 3600
    await lab.responder.handle_symptom(symptom(46, at=lab.clock.now), [])
    assert (await lab.settle()).state is IncidentState.RETURNED, "a person has vouched for it"


async def test_flaky_node_is_reserved_before_it_stays_out(tmp_path: Path) -> None:
    async with ward(tmp_path, replace(LAB, health=builders.health(flaky_score=2, reserve_flaky_nodes=True))) as lab:
        lab.clock.now += 1000

        async def again() -> Incident:
            lab.clock.now += 3600
            await lab.responder.handle_symptom(symptom(46, at=lab.clock.now), [])
            return await lab.settle()

        assert (await again()).steps[-1].text == "tests passed; back in service"
        assert "for jobs in reservation headway_flaky only" in (await again()).steps[-1].text
        assert lab.world.order[-3:] == ["reset 3", f"flaky: {NODE}", "resume"], "no other job can start there first"
        assert "for jobs in reservation headway_flaky only" in (await again()).steps[-1].text
        found = await again()
        assert found.state is IncidentState.OUT
        assert "fails too often: score 4 of 4 over 14 days" in found.steps[-1].text
        await lab.bring_back(found.number, "ann")
        assert lab.world.flaky_nodes == "", "a person has vouched for it"


async def test_restarted_server_restarts_interrupted_repairs(lab: Ward) -> None:
    await lab.responder.handle_symptom(symptom(), [])
    assert (await lab.newest()).state is IncidentState.REPAIRING
    await lab.another_server()
    assert (await lab.settle()).state is IncidentState.RETURNED
    assert lab.world.order.count("start") == 1
