"""Symptoms are stored once, and incidents keep each state with its actor and evidence."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.domain.incident import FaultAction, IncidentState, Symptom
from headway.errors import NotFound
from tests.support.clusters import builders
from tests.support.clusters.builders import Clock


async def test_repeated_symptom_is_stored_once(tmp_path: Path) -> None:
    store = await builders.store(tmp_path)
    symptom = Symptom("boot-1", 100.0, "lab-1-1", 79, 3, "fallen off the bus", 7)
    assert not await store.symptoms.exists("lab", symptom.id)
    await store.symptoms.add("lab", symptom)
    await store.symptoms.add("lab", symptom)
    assert await store.symptoms.exists("lab", symptom.id)
    assert not await store.symptoms.exists("other", symptom.id)
    assert await store.symptoms.of_node("lab", "lab-1-1", 50.0) == (symptom,)
    assert await store.symptoms.of_node("lab", "lab-1-1", 101.0) == ()
    await store.close()


async def test_incident_records_each_state_with_actor_and_evidence(tmp_path: Path) -> None:
    clock = Clock()
    store = await builders.store(tmp_path, clock)
    seen = await store.incidents.open("lab", "lab-1-1", "XID 79", FaultAction.RMA, 999.0, {"gpu": 3})
    clock.now += 2
    moved = await store.incidents.add_step(seen, IncidentState.DRAINING, "drained", drained=True)
    assert [(s.at, s.state, s.actor, s.text) for s in moved.steps] == [
        (1000.0, "seen", "headway", "XID 79"),
        (1002.0, "draining", "headway", "drained"),
    ]
    assert moved.steps[0].evidence == {"gpu": 3}
    assert moved.drained
    assert [one.number for one in await store.incidents.search("lab", unfinished=True)] == [seen.number]
    with pytest.raises(ValueError, match="untested"):
        await store.incidents.add_step(moved, IncidentState.RETURNED, "works", actor="ann")
    await store.incidents.add_step(moved, IncidentState.RETURNED, "works", actor="ann", evidence={"passed": ["gpus"]})
    assert await store.incidents.search("lab", unfinished=True) == ()
    assert len(await store.incidents.search("lab")) == 1
    assert await store.incidents.search("other") == ()
    with pytest.raises(NotFound, match="incident 99 does not exist"):
        await store.incidents.get(99)
    await store.close()


async def test_tracks_requeued_jobs_and_resets_a_node_score(tmp_path: Path) -> None:
    clock = Clock()
    store = await builders.store(tmp_path, clock)
    made = await store.incidents.open("lab", "lab-1-1", "XID 79", FaultAction.RMA, 999.0, {}, score=3)
    await store.incidents.record_requeued_jobs(made.number, [7, 8], 1001.0)
    await store.incidents.record_requeued_jobs(made.number, [8, 9], 1005.0)
    found = {one.job: one for one in await store.incidents.jobs_recovering("lab", 1000.0)}
    assert {job: one.requeued_at for job, one in found.items()} == {7: 1001.0, 8: 1001.0, 9: 1005.0}
    await store.incidents.record_job_recovery(found[7], running_at=1010.0)
    await store.incidents.record_job_recovery(found[7], step_at=1012.0)
    assert {one.job for one in await store.incidents.jobs_recovering("lab", 1000.0)} == {8, 9}
    assert await store.incidents.jobs_recovering("lab", 1002.0) == (found[9],)
    assert await store.incidents.jobs_recovering("other", 0.0) == ()
    told = (await store.incidents.get(made.number)).jobs
    assert (told[0].running_at, told[0].step_at) == (1010.0, 1012.0)
    await store.incidents.reset_score("lab", "lab-1-1")
    assert [one.score for one in await store.incidents.search("lab", node="lab-1-1")] == [0]
    assert await store.incidents.search("lab", node="lab-1-2") == ()
    await store.close()


async def test_incidents_close_on_down_and_are_deleted_with_the_data(tmp_path: Path) -> None:
    store = await builders.store(tmp_path)
    made = await store.incidents.open("lab", "lab-1-1", "XID 79", FaultAction.RMA, 999.0, {})
    await store.incidents.close_all("lab")
    assert (await store.incidents.get(made.number)).steps[-1].text == "the cluster was taken down"
    assert await store.incidents.search("lab", unfinished=True) == ()
    await store.clusters.delete("lab", delete_data=True)
    assert await store.incidents.search("lab") == ()
    await store.close()
