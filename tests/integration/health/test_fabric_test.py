"""A fabric test measures idle nodes, gives way to jobs, and opens incidents for what is slow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from headway.domain.fabric.fabric_results import FabricFinding, Suspect, SuspectKind
from headway.domain.incident import FaultAction, Incident, IncidentState
from headway.domain.machines.machine import Machine
from headway.domain.storage.folders import StorageFolders, Volume
from headway.errors import Refused
from headway.health.fabric_test import FabricTest
from headway.health.incidents.slow_fabric import LEAST_GB_S, close_sound_links, record_findings
from headway.schemas.nodes.fabric_tests import FabricTestOut
from tests.support.clusters.incident_cluster import FOR_GOOD, LAB, NODE, Ward, symptom, ward

IDLE = ("lab-1-1", "lab-1-3", "lab-1-4", "lab-2-1")


@dataclass
class Fabric:
    """Stands in for the test programs on the nodes. `jobs`: nodes where a job starts at their first measurement; `broken`:
    where the test can't be prepared; `crashes`: where the program ends with an error; `hangs`: where it is not ready
    when it is started a second time; `nccl_conf`: where NCCL_SOCKET_IFNAME names an interface that does not exist."""

    slow: frozenset[str] = frozenset()
    jobs: frozenset[str] = frozenset()
    without_torch: frozenset[str] = frozenset()
    broken: frozenset[str] = frozenset()
    crashes: frozenset[str] = frozenset()
    hangs: frozenset[str] = frozenset()
    nccl_conf: frozenset[str] = frozenset()
    closed: list[str] = field(default_factory=list)
    asked: list[tuple[str, ...]] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)

    async def hold(self, at: Machine, argv: Sequence[str]) -> Any:
        assert list(argv[4:6]) == ["test", "fabric"]
        return Program(self, at.name, ready=not (at.name in self.hangs and at.name in self.closed))


class Program:
    """The test program on one node."""

    def __init__(self, fabric: Fabric, node: str, *, ready: bool) -> None:
        self.fabric, self.node = fabric, node
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.code: int | None = None
        if node in fabric.without_torch:
            reason = "torch is not installed on this node"
            self._say({"test": "allreduce", "ok": True, "skipped": True, "reason": reason})
        elif node in fabric.broken:
            self._say({"test": "allreduce", "ok": False, "reason": "CUDA finds 7 GPUs, 8 expected"})
        elif ready:
            settings = [{"name": "NCCL_SOCKET_IFNAME", "value": "eth9"}] if node in fabric.nccl_conf else []
            interfaces = [{"name": "eth0", "address": node, "mbit_s": 0}]
            self._say({"ready": True, "network": {"interfaces": interfaces, "rdma_ports": [], "settings": settings}})

    def _say(self, row: dict[str, Any]) -> None:
        self.lines.put_nowait(json.dumps(row).encode() + b"\n")

    async def write(self, data: bytes) -> None:
        peers = tuple(json.loads(data)["peers"])
        if self.node in self.fabric.jobs | self.fabric.crashes:
            self.code = 137 if self.node in self.fabric.jobs else 1
            self.lines.put_nowait(b"")
        elif (self.fabric.jobs | self.fabric.crashes).isdisjoint(peers):
            if peers[0] == self.node:
                self.fabric.asked.append(peers)
            figure = 0.001 if self.fabric.slow & set(peers) else 1.0
            self._say({"test": "allreduce", "ok": True, "figure": figure})

    async def read(self) -> bytes:
        return await self.lines.get()

    async def ended(self) -> bool:
        return self.code is not None

    async def errors(self) -> str:
        assert self.code is not None
        return "Traceback (most recent call last):\nOSError: [Errno 28] No space left on device\n"

    async def close(self) -> None:
        self.fabric.closed.append(self.node)
        self.lines.put_nowait(b"")


async def never() -> bool:
    return False


async def measure(lab: Ward, fabric: Fabric, nodes: Sequence[str] = (), waits: Any = never) -> FabricTestOut:
    """Runs a fabric test with its incidents, and returns its result."""
    lab.world.idle = IDLE
    lab.world.hold = fabric.hold  # type: ignore[attr-defined]
    machines = await lab.world.list("lab")

    async def each_with_its_name_as_address(_: str) -> tuple[Machine, ...]:
        return tuple(replace(machine, address=machine.name) for machine in machines)

    lab.world.list = each_with_its_name_as_address  # type: ignore[method-assign]

    async def report(step: str, text: str, **_: Any) -> None:
        fabric.reported.append(f"{step}: {text}")

    test = FabricTest(lab.responder.context, report, waits)
    await test.run(nodes)
    await test.open_incidents(lab.responder.tasks.cancel)
    del lab.world.list  # type: ignore[method-assign]
    return test.result()


async def test_sound_fabric_opens_no_incident(lab: Ward) -> None:
    fabric = Fabric()
    found = await measure(lab, fabric)
    assert (found.findings, found.unclear, found.skipped, found.mismatches) == ([], [], [], [])
    assert set(found.leaves) == {NODE, *IDLE}
    assert sorted(fabric.closed) == sorted({NODE, *IDLE}), "every program is ended"
    assert await lab.store.incidents.search("lab") == ()


async def test_slow_node_gets_an_incident_with_the_evidence_and_is_tested_against_it(lab: Ward) -> None:
    found = await measure(lab, Fabric(slow=frozenset({NODE})))
    (finding,) = found.findings
    assert (finding.kind, finding.name, finding.incident) == ("node", NODE, 1)
    incident = await lab.store.incidents.get(1)
    assert incident.action is FaultAction.DRAIN
    assert "measured again" in incident.steps[-1].text
    assert incident.found(LEAST_GB_S) == pytest.approx(0.15)
    closed = await lab.settle()
    assert closed.state is IncidentState.OUT, "its all-reduce with another node reaches no figure"
    assert "GB/s expected" in next(step.text for step in closed.steps if "a test failed" in step.text)


async def test_wrong_setting_of_nccl_is_named_with_the_remedy(lab: Ward) -> None:
    fabric = Fabric(nccl_conf=frozenset({"lab-1-1", "lab-1-3"}))
    found = await measure(lab, fabric)
    (one,) = found.mismatches
    assert one.what == "NCCL_SOCKET_IFNAME=eth9 in /etc/nccl.conf of lab-1-[1,3] matches no interface (eth0)"
    assert f"mismatch: {one.what}; {one.remedy}" in fabric.reported
    assert found.findings == []


async def test_second_finding_is_added_to_the_open_incident(lab: Ward) -> None:
    await measure(lab, Fabric(slow=frozenset({NODE})))
    found = await measure(lab, Fabric(slow=frozenset({NODE})))
    assert found.findings[0].incident == 1
    assert len(await lab.store.incidents.search("lab")) == 1


async def test_node_where_a_job_starts_leaves_the_test(lab: Ward) -> None:
    fabric = Fabric(jobs=frozenset({"lab-1-3"}))
    found = await measure(lab, fabric)
    assert [(one.node, one.why) for one in found.skipped] == [("lab-1-3", "a job started on it")]
    assert all("lab-1-3" not in one.nodes for one in found.measurements)
    assert found.findings == []
    measured = {node for one in found.measurements for node in one.nodes}
    assert measured == {NODE, *IDLE} - {"lab-1-3"}, "its partners are measured with others"


async def test_nodes_without_the_library_are_skipped_with_the_reason(lab: Ward) -> None:
    found = await measure(lab, Fabric(without_torch=frozenset({NODE})))
    assert [(one.node, one.why) for one in found.skipped] == [(NODE, "torch is not installed on this node")]


async def test_node_where_the_test_cannot_be_prepared_is_skipped_with_the_reason(lab: Ward) -> None:
    found = await measure(lab, Fabric(broken=frozenset({NODE})))
    assert [(one.node, one.why) for one in found.skipped] == [(NODE, "CUDA finds 7 GPUs, 8 expected")]
    assert all(NODE not in one.nodes for one in found.measurements)
    assert found.findings == []


async def test_end_of_a_test_program_is_told_with_its_exit_code_and_error(lab: Ward) -> None:
    found = await measure(lab, Fabric(crashes=frozenset({NODE})))
    why = "its test program ended with exit code 1: OSError: [Errno 28] No space left on device"
    assert [(one.node, one.why) for one in found.skipped] == [(NODE, why)]


async def test_node_whose_program_starts_again_while_its_partner_leaves_stays_in_the_test(lab: Ward) -> None:
    # The first program of lab-1-1 is ended because its partner has left; its second one is not ready when the next leaves.
    fabric = Fabric(jobs=frozenset({NODE, *IDLE}) - {"lab-1-1"}, hangs=frozenset({"lab-1-1"}))
    found = await measure(lab, fabric)
    assert "lab-1-1" not in {one.node for one in found.skipped}


async def test_two_nodes_must_be_idle(lab: Ward) -> None:
    lab.world.state = "ALLOCATED"
    with pytest.raises(Refused, match="two idle nodes of one plan"):
        await measure(lab, Fabric(), ["lab-1-1"])


async def test_other_operations_go_first(lab: Ward) -> None:
    async def waits() -> bool:
        return True

    found = await measure(lab, Fabric(), waits=waits)
    assert found.stopped == "another operation of the cluster waited"
    assert found.measurements == []


async def test_slow_link_has_an_incident_that_drains_nothing_until_it_is_sound(lab: Ward) -> None:
    context = lab.responder.context
    finding = FabricFinding(Suspect(SuspectKind.LINK, "leaf1 - leaf2"), 1.0, 100.0, 70.0, (), ())
    numbers = await record_findings(context, [(finding, ["lab-1-1,lab-2-1: 1 GB/s"])], lab.responder.tasks.cancel)
    assert numbers == {finding.suspect: 1}
    await lab.responder.resume_open()
    incident = await lab.store.incidents.get(1)
    assert (incident.node, incident.action, incident.state) == ("leaf1 - leaf2", FaultAction.LINK, IncidentState.SEEN)
    assert lab.world.order == []
    await close_sound_links(context, {"leaf1 - leaf3"})
    assert not (await lab.store.incidents.get(1)).state.closed
    await close_sound_links(context, {"leaf1 - leaf2"})
    assert (await lab.store.incidents.get(1)).state is IncidentState.RETURNED


async def test_person_closes_the_incident_of_a_link(lab: Ward) -> None:
    finding = FabricFinding(Suspect(SuspectKind.LINK, "leaf1 - leaf2"), 1.0, 100.0, 70.0, (), ())
    await record_findings(lab.responder.context, [(finding, [])], lab.responder.tasks.cancel)
    found = await lab.bring_back(1, "ann")
    assert (found.state, found.steps[-1].actor) == (IncidentState.RETURNED, "ann")


async def test_recording_only_leaves_the_node_in_service(lab: Ward) -> None:
    lab.responder.cluster = replace(LAB, health=replace(LAB.health, act=False))
    await measure(lab, Fabric(slow=frozenset({NODE})))
    assert (await lab.settle()).state is IncidentState.SEEN
    assert lab.world.order == []


SLOW = FabricFinding(Suspect(SuspectKind.NODE, NODE), 0.1, 1.0, 0.8, (), ())


async def _name_slow(lab: Ward) -> Incident:
    """Records a finding about NODE, and returns its incident."""
    numbers = await record_findings(lab.responder.context, [(SLOW, ["0.1 GB/s"])], lab.responder.tasks.cancel)
    found: Incident = await lab.store.incidents.get(numbers[SLOW.suspect])
    return found


async def test_finding_raises_a_lighter_incident_to_a_drain(lab: Ward) -> None:
    lab.responder.cluster = replace(LAB, health=replace(LAB.health, act=False))
    await lab.responder.handle_symptom(symptom(46), [])
    assert (await lab.newest()).action is FaultAction.RESET
    found = await _name_slow(lab)
    assert (found.number, found.action, found.score) == (1, FaultAction.DRAIN, 2)


async def test_finding_about_a_node_that_awaits_a_volume_moves_its_jobs(tmp_path: Path) -> None:
    volumes = StorageFolders(volumes=(Volume("models", "/models", "nfs4", "filer:/models"),))
    async with ward(tmp_path, replace(LAB, storage=volumes)) as lab:
        lab.world.jobs, lab.world.away = {7: "RUNNING"}, FOR_GOOD
        lost = replace(symptom(0, gpu=None), kind="volumes", text="/models is not mounted", action=FaultAction.MOUNT)
        await lab.responder.handle_symptom(lost, [])
        await lab.responder.resume_open()
        assert lab.responder.tasks.running
        found = await _name_slow(lab)
        assert (found.action, found.state) == (FaultAction.DRAIN, IncidentState.SEEN)
        assert not lab.responder.tasks.running, "the wait for the volume is over"


async def test_finding_drains_a_node_that_a_person_returned_in_slurm(lab: Ward) -> None:
    lab.world.gpus_after_reset, lab.world.sound = None, False
    await lab.responder.handle_symptom(symptom(46), [])
    assert (await lab.settle()).state is IncidentState.OUT
    assert (await _name_slow(lab)).state is IncidentState.OUT, "it is out of service in Slurm, too"
    lab.world.state, lab.world.reason = "IDLE", ""
    assert (await _name_slow(lab)).state is IncidentState.SEEN


@pytest.mark.parametrize("skips", [(), ("lab-2-1",), IDLE])
async def test_slow_node_stays_out_until_its_all_reduce_was_measured(lab: Ward, skips: Sequence[str]) -> None:
    lab.world.idle, lab.world.skips_with, lab.world.gb_s = IDLE, set(skips), 5.0
    await _name_slow(lab)
    found = await lab.settle()
    if len(skips) < len(IDLE):
        assert found.state is IncidentState.RETURNED, "with the next partner it was fast enough"
    else:
        assert found.state is IncidentState.OUT
        failed = next(step.text for step in found.steps if step.text.startswith("a test failed"))
        assert failed == (
            "a test failed: allreduce: 0.4 GB/s with another node expected, and not measured: torch is not installed"
        )


async def test_slow_node_stays_out_while_no_other_node_is_idle(lab: Ward) -> None:
    await _name_slow(lab)
    found = await lab.settle()
    assert found.state is IncidentState.OUT
    assert any("not measured: no other node is idle" in step.text for step in found.steps)


async def test_slow_node_that_is_rebooted_for_another_fault_is_measured_too(lab: Ward) -> None:
    lab.world.idle, lab.world.gb_s = IDLE, 0.1
    await lab.responder.handle_dead_node(NODE, "its machine does not run")
    assert (await _name_slow(lab)).action is FaultAction.REBOOT
    assert (await lab.settle()).state is IncidentState.OUT
