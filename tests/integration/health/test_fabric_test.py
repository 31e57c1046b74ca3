"""A fabric test measures idle nodes, gives way to jobs, and opens incidents for what is slow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from headway.domain.fabric import FabricFinding, Suspect, SuspectKind
from headway.domain.incident import FaultAction, IncidentState
from headway.domain.machines.machine import Machine
from headway.errors import Refused
from headway.health.fabric_test import FabricTest
from headway.health.incidents.slow_fabric import LEAST_GB_S, close_sound_links, record_findings
from headway.schemas.fabric_tests import FabricTestOut
from tests.support.incident_cluster import LAB, NODE, Ward

IDLE = ("lab-1-1", "lab-1-3", "lab-1-4", "lab-2-1")


@dataclass
class Fabric:
    """Stands in for the test programs on the nodes. `jobs`: nodes where a job starts at their first measurement; `broken`:
    where the test can't be prepared; `crashes`: where the program ends with an error; `hangs`: where it is not ready
    when it is started a second time."""

    slow: frozenset[str] = frozenset()
    jobs: frozenset[str] = frozenset()
    without_torch: frozenset[str] = frozenset()
    broken: frozenset[str] = frozenset()
    crashes: frozenset[str] = frozenset()
    hangs: frozenset[str] = frozenset()
    closed: list[str] = field(default_factory=list)
    asked: list[tuple[str, ...]] = field(default_factory=list)

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
            self._say({"ready": True})

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

    async def report(step: str, text: str, **_: Any) -> None: ...

    test = FabricTest(lab.responder.context, report, waits)
    await test.run(nodes)
    await test.open_incidents()
    del lab.world.list  # type: ignore[method-assign]
    return test.result()


async def test_sound_fabric_opens_no_incident(lab: Ward) -> None:
    fabric = Fabric()
    found = await measure(lab, fabric)
    assert (found.findings, found.unclear, found.skipped) == ([], [], [])
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
    numbers = await record_findings(context, [(finding, ["lab-1-1,lab-2-1: 1 GB/s"])])
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
    await record_findings(lab.responder.context, [(finding, [])])
    found = await lab.bring_back(1, "ann")
    assert (found.state, found.steps[-1].actor) == (IncidentState.RETURNED, "ann")


async def test_recording_only_leaves_the_node_in_service(lab: Ward) -> None:
    lab.responder.cluster = replace(LAB, health=replace(LAB.health, act=False))
    await measure(lab, Fabric(slow=frozenset({NODE})))
    assert (await lab.settle()).state is IncidentState.SEEN
    assert lab.world.order == []
