"""A disk filled by jobs is waited for without a repair; a disk that stays full after its jobs is repaired; the disk of a host
that all machines share drains no node."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.checks import disk_checks
from headway.domain.incident import FaultAction, IncidentState
from headway.health.incidents.storage import host_disk
from tests.support.clusters import builders
from tests.support.clusters.incident_cluster import FOR_GOOD, LAB, Ward, symptom, ward

SAYS = "100 MiB free in /, held by job 7"
FULL = replace(symptom(0, gpu=None), kind="disk", text=f"disk: {SAYS}", action=FaultAction.MOUNT)


async def test_disk_filled_by_a_job_costs_no_other_job_and_no_repair(lab: Ward) -> None:
    lab.world.jobs = {7: "RUNNING", 8: "RUNNING"}
    lab.world.unfit = [SAYS, SAYS, "", SAYS]
    await lab.responder.handle_symptom(FULL, [])
    assert lab.world.reason == f"headway: incident 1: disk: {SAYS}"
    found = await lab.settle()
    assert found.state is IncidentState.RETURNED
    assert lab.world.order == ["drain", *["look for room"] * 9, "resume"], "room has to stay"
    assert (lab.world.requeued, found.score) == ([], 0)
    assert "files of running jobs fill its disk until the jobs end" in [step.text for step in found.steps]


async def test_disk_that_stays_full_after_its_jobs_is_repaired(lab: Ward) -> None:
    lab.world.jobs, lab.world.away = {7: "RUNNING"}, FOR_GOOD
    lab.world.unfit = [SAYS] * 10**6
    await lab.responder.handle_symptom(FULL, [])
    await lab.responder.resume_open()
    assert ((await lab.newest()).state, lab.world.requeued) == (IncidentState.REPAIRING, [])
    lab.world.unfit = []
    drains = replace(FULL, id="later", text="disk: 100 MiB free in /", action=FaultAction.DRAIN)
    await lab.responder.handle_symptom(drains, [])
    assert lab.world.requeued == [7]
    found = await lab.settle()
    assert (found.state, found.action) == (IncidentState.RETURNED, FaultAction.DRAIN)


async def test_job_filling_the_disk_during_tests_does_not_keep_the_node_out(lab: Ward) -> None:
    lab.world.unfit = [SAYS]
    await lab.responder.handle_symptom(FULL, [])
    while (await lab.newest()).state is not IncidentState.TESTING:
        await lab.responder.resume_open()
        for task in lab.responder.tasks.running.values():
            await task
    again = replace(FULL, id="again", at=FULL.at + 100)
    await lab.responder.handle_symptom(again, [])
    found = await lab.settle()
    assert found.state is IncidentState.RETURNED


HOST_SAYS = "disk: the disk of the host is full, 100 MiB free in /; free space on the host"
HOST_FULL = replace(symptom(0, gpu=None), kind="disk", text=HOST_SAYS, action=FaultAction.HOST_DISK)


def df(root: str = "5000 900000 5000", state: str = "5000 900000 5000", tmp: str = "ext4 5000 900000 5000") -> str:
    """Returns the lines of df: free MiB, inodes and free inodes of each folder."""
    return f"/ ext4 {root}\n/var/lib/headway xfs {state}\n/tmp {tmp}\n"


async def test_full_disk_of_the_host_is_one_incident_and_drains_no_node(lab: Ward) -> None:
    full = [replace(HOST_FULL, id=f"disk {node}", node=node) for node in ("lab-1-1", "lab-1-2")]
    messages = [await lab.responder.handle_symptom(one, []) for one in (*full, full[0])]
    assert messages == [[("host", HOST_SAYS)], [], []], "it is said once"
    lab.world.df = [df(root="100 900000 5000"), df()]
    assert await lab.responder.resume_open() == []
    assert (await lab.newest()).node == "host"
    await lab.responder.resume_open()
    found = await lab.newest()
    assert (found.number, found.state) == (1, IncidentState.RETURNED)
    assert found.steps[-1].text == "the host's disk has 5000 MiB free again"
    assert lab.world.order == ["df", "df"]


@pytest.mark.parametrize(
    ("lines", "state"),
    [
        pytest.param(df(root="5000 900000 1500"), IncidentState.SEEN, id="no inodes"),
        pytest.param(df(state="700 900000 5000"), IncidentState.SEEN, id="another file system is full"),
        pytest.param(df(tmp="ext4 300 900000 5000"), IncidentState.SEEN, id="/tmp is full"),
        pytest.param(df(tmp="tmpfs 10 900 900"), IncidentState.RETURNED, id="/tmp is in memory"),
        pytest.param(df(root="5000 0 0", state="5000 - -"), IncidentState.RETURNED, id="without fixed inodes"),
    ],
)
async def test_host_has_room_again_when_all_that_agents_check_has(lab: Ward, lines: str, state: IncidentState) -> None:
    await lab.responder.handle_symptom(HOST_FULL, [])
    lab.world.df = [lines]
    await lab.responder.resume_open()
    assert (await lab.newest()).state is state


async def test_watch_only_cluster_leaves_the_incident_of_the_host_to_a_person(tmp_path: Path) -> None:
    async with ward(tmp_path, replace(LAB, health=builders.health(act=False))) as lab:
        await lab.responder.handle_symptom(HOST_FULL, [])
        await lab.responder.resume_open()
        assert ((await lab.newest()).state, lab.world.order) == (IncidentState.SEEN, [])
        await lab.responder.return_node(1, "ann", false_alarm=False)
        assert (await lab.newest()).state is IncidentState.RETURNED


def test_incident_closes_with_more_room_than_it_opens() -> None:
    assert [*host_disk.FREE_MIB] == [*disk_checks.FREE_MIB]
    assert all(host_disk.FREE_MIB[place] > least_mib for place, least_mib in disk_checks.FREE_MIB.items())
    assert host_disk.FREE_INODES > disk_checks.FREE_INODES
