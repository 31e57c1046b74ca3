"""Signals are kept once; an incident remembers every state, who brought it there and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.domain.incident import IncidentState, Signal, XidClass
from headway.errors import NotFound
from tests.support import builders
from tests.support.builders import Clock


async def test_a_signal_that_is_reported_again_is_not_new(tmp_path: Path) -> None:
    store = await builders.store(tmp_path)
    signal = Signal("boot-1", 100.0, "lab-1-1", 79, 3, "fallen off the bus", 7)
    assert not await store.has_signal("lab", signal.id)
    await store.add_signal("lab", signal)
    await store.add_signal("lab", signal)
    assert await store.has_signal("lab", signal.id)
    assert not await store.has_signal("other", signal.id)
    assert await store.signals("lab", "lab-1-1", 50.0) == (signal,)
    assert await store.signals("lab", "lab-1-1", 101.0) == ()
    await store.close()


async def test_an_incident_goes_from_state_to_state(tmp_path: Path) -> None:
    clock = Clock()
    store = await builders.store(tmp_path, clock)
    seen = await store.open_incident("lab", "lab-1-1", "XID 79", XidClass.RMA, 999.0, {"gpu": 3})
    clock.now += 2
    moved = await store.move_incident(seen, IncidentState.DRAINING, "drained", drained=True)
    assert [(s.at, s.state, s.actor, s.text) for s in moved.steps] == [
        (1000.0, "seen", "headway", "XID 79"),
        (1002.0, "draining", "headway", "drained"),
    ]
    assert moved.steps[0].evidence == {"gpu": 3}
    assert moved.drained
    assert [one.number for one in await store.incidents("lab", unfinished=True)] == [seen.number]
    with pytest.raises(ValueError, match="untested"):
        await store.move_incident(moved, IncidentState.RETURNED, "works", actor="ann")
    await store.move_incident(moved, IncidentState.RETURNED, "works", actor="ann", evidence={"passed": ["gpus"]})
    assert await store.incidents("lab", unfinished=True) == ()
    assert len(await store.incidents("lab")) == 1
    assert await store.incidents("other") == ()
    with pytest.raises(NotFound, match="no incident 99"):
        await store.incident(99)
    await store.close()


async def test_jobs_are_followed_and_a_score_is_forgiven(tmp_path: Path) -> None:
    clock = Clock()
    store = await builders.store(tmp_path, clock)
    made = await store.open_incident("lab", "lab-1-1", "XID 79", XidClass.RMA, 999.0, {}, score=3)
    await store.note_moved(made.number, [7, 8], 1001.0)
    await store.note_moved(made.number, [8, 9], 1005.0)
    found = {one.job: one for one in await store.recovering("lab", 1000.0)}
    assert {job: one.requeued_at for job, one in found.items()} == {7: 1001.0, 8: 1001.0, 9: 1005.0}
    await store.note_recovered(found[7], running_at=1010.0)
    await store.note_recovered(found[7], step_at=1012.0)
    assert {one.job for one in await store.recovering("lab", 1000.0)} == {8, 9}
    assert await store.recovering("lab", 1002.0) == (found[9],)
    assert await store.recovering("other", 0.0) == ()
    told = (await store.incident(made.number)).jobs
    assert (told[0].running_at, told[0].step_at) == (1010.0, 1012.0)
    await store.forgive("lab", "lab-1-1")
    assert [one.score for one in await store.incidents("lab", node="lab-1-1")] == [0]
    assert await store.incidents("lab", node="lab-1-2") == ()
    await store.close()


async def test_incidents_end_with_their_cluster_and_go_with_its_data(tmp_path: Path) -> None:
    store = await builders.store(tmp_path)
    made = await store.open_incident("lab", "lab-1-1", "XID 79", XidClass.RMA, 999.0, {})
    await store.end_incidents("lab")
    assert (await store.incident(made.number)).steps[-1].text == "the cluster was taken down"
    assert await store.incidents("lab", unfinished=True) == ()
    await store.forget_cluster("lab", delete_data=True)
    assert await store.incidents("lab") == ()
    await store.close()
