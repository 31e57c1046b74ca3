"""Measures the bandwidth between idle nodes, round by round as `policy.fabric_plan` chooses.

The nodes are not reserved and no job is submitted, so that no job waits for the test: the prolog of a job that starts on
a measured node ends the measurement (node/agent/node_tests/end_on_job_start.py), and the node leaves the test."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from headway.domain.fabric.fabric_results import (
    FabricFinding,
    FabricGroup,
    FabricMeasurement,
    FabricMismatch,
    GroupKind,
    Suspect,
    SuspectKind,
)
from headway.domain.fabric.node_network import NodeNetwork
from headway.domain.incident import Incident
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.operation_progress import OperationWaits, ReportProgress
from headway.domain.slurm.hostlist import compress, natural_key
from headway.errors import HeadwayError, Refused, Unreachable
from headway.health.context import HealthContext, fault_text
from headway.health.fabric_test_to_schema import finding_out, how_found, measurements_out
from headway.health.incidents.slow_fabric import close_sound_links, record_findings
from headway.health.policy.fabric_evidence import REAL, SIMULATED
from headway.health.policy.fabric_mismatches import switch_mismatches
from headway.health.policy.fabric_plan import FabricPlan, PlannedRound
from headway.health.policy.nccl_mismatches import nccl_mismatches, network_from_report
from headway.render.machine_paths import agent_argv
from headway.schemas.nodes.fabric_tests import (
    FabricMismatchOut,
    FabricSkippedOut,
    FabricTestOut,
)
from headway.slurm import node_commands
from headway.transport.program_io import StreamSplitter
from headway.transport.ssh import RemoteProcess

_MEASURE_S = 1  # seconds of one measurement
_START_S = 90.0  # seconds for the start of the program on a node, which loads torch or opens the GPUs
_LIMIT_S = 100.0  # seconds for one measurement
_BUSY = ("alloc", "mix", "comp", "draining")  # states of nodes that have jobs, as sinfo writes them
_KILLED = 137  # exit code of a program that the prolog of a job has ended
_MOST_ERROR = 200  # characters of a test program's error that are shown
_REST_S = 1.0  # seconds in which the other nodes of a group answer after one has left
_ARGV = agent_argv("test", "fabric", "--json", "--seconds", str(_MEASURE_S))


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one node of a group answered. `leaves`: why the node leaves the test, "" if it stays."""

    gb_s: float = 0.0
    fault: str = ""
    leaves: str = ""


class _Member:
    """The program on one node."""

    def __init__(self, process: RemoteProcess) -> None:
        self._process = process
        self._answers = StreamSplitter(process.read)

    async def ask(self, ask: dict[str, Any]) -> dict[str, Any] | None:
        """Returns the answer; None if the program has ended."""
        with contextlib.suppress(Unreachable):
            await self._process.write(json.dumps(ask).encode() + b"\n")
        return await self.read()

    async def read(self) -> dict[str, Any] | None:
        """Returns the next line of JSON; None if the program has ended."""
        while (line := await self._answers.line()) is not None:
            if line.startswith(b"{"):
                return dict(json.loads(line))
        return None

    async def why_ended(self) -> str:
        """Returns why the program has ended by itself."""
        if not await self._process.ended():
            return "the connection to its test program broke"
        if self._process.code == _KILLED:
            return "a job started on it"
        last = (await self._process.errors()).strip().rpartition("\n")[2][-_MOST_ERROR:]
        return f"its test program ended with exit code {self._process.code}" + (f": {last}" if last else "")

    async def close(self) -> None:
        """Ends the program."""
        await self._process.close()


@dataclass
class FabricTest:
    """One fabric test of a cluster. `waits`: returns whether another operation must run."""

    context: HealthContext
    report: ReportProgress
    waits: OperationWaits
    plans: list[FabricPlan] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # node -> why it was not measured, or not to the end
    stopped: str = ""
    _incidents: dict[Suspect, int] = field(default_factory=dict)
    _members: dict[str, _Member] = field(default_factory=dict)
    _machines: dict[str, Machine] = field(default_factory=dict)
    _networks: dict[str, NodeNetwork] = field(default_factory=dict)  # what NCCL finds on the nodes
    _began: float = field(default_factory=time.monotonic)
    _rounds: int = 0

    async def run(self, nodes: Sequence[str]) -> None:
        """Measures these nodes, or all idle ones for (). Nodes of different plans are not compared with each other.
        Raises Refused if no two nodes of a plan can be measured, or if they lack what the test needs."""
        self._machines = await self.context.machines()
        chosen = await self._choose(nodes)
        self.plans = list(self._plans(chosen))
        if not self.plans:
            why = "; ".join(f"{node}: {why}" for node, why in list(self.skipped.items())[:8])
            raise Refused(
                "a fabric test needs two idle nodes of one plan" + (f" ({why})" if why else ""),
                hint=f"headway nodes {self.context.cluster.name}",
            )
        left = f"; left out: {_reasons(self.skipped)}" if self.skipped else ""
        await self.report("nodes", f"{compress(chosen)}{left}")
        try:
            began = time.monotonic()
            await asyncio.gather(*(self._start(node) for plan in self.plans for node in plan.leaf_of))
            await self.report("nodes", f"{compress(chosen)}{left}", done=True, seconds=time.monotonic() - began)
            for plan in self.plans:
                for node in plan.leaf_of:
                    if node in self.skipped:
                        plan.drop(node)
                await self._measure_all(plan)
        finally:
            await self._close()
        await self._report_verdict()

    async def _measure_all(self, plan: FabricPlan) -> None:
        while not self.stopped and (planned := plan.next_round()) is not None:
            if await self.waits():
                self.stopped = "another operation of the cluster waited"
                await self.report("test", f"ends early: {self.stopped}", level="warning", done=True)
                return
            await self._measure_round(plan, planned)

    async def open_incidents(self, cancel: Callable[[Incident], Awaitable[None]]) -> None:
        """Opens an incident for each finding, and closes those of links that are sound again. `cancel`: cancels the
        running repair or test of an incident."""
        sound = {part.name for plan in self.plans for part in plan.evidence.cleared if part.kind is SuspectKind.LINK}
        await close_sound_links(self.context, sound)
        found = [(finding, list(how_found(finding))) for finding in self.findings]
        self._incidents = await record_findings(self.context, found, cancel)
        for suspect, number in self._incidents.items():
            await self.report(suspect.name, f"incident {number}", done=True)

    def result(self) -> FabricTestOut:
        """Returns what was measured and found."""
        cluster = self.context.cluster
        return FabricTestOut(
            cluster=cluster.name,
            operation="",
            at=self.context.clock(),
            seconds=round(time.monotonic() - self._began, 1),
            simulated=cluster.simulated_gpus,
            leaves={node: leaf for plan in self.plans for node, leaf in plan.leaf_of.items()},
            measurements=[out for plan in self.plans for out in measurements_out(plan)],
            findings=[finding_out(finding, self._incidents.get(finding.suspect)) for finding in self.findings],
            unclear=[words for plan in self.plans for words in plan.verdict().unclear],
            mismatches=[FabricMismatchOut(what=one.what, remedy=one.remedy) for one in self.mismatches],
            skipped=[FabricSkippedOut(node=node, why=why) for node, why in self.skipped.items()],
            stopped=self.stopped,
        )

    @property
    def findings(self) -> list[FabricFinding]:
        """The nodes and links that are slow."""
        return [finding for plan in self.plans for finding in plan.verdict().findings]

    @property
    def mismatches(self) -> list[FabricMismatch]:
        """Where figures and nodes differ from the declared leaf switches and NCCL's settings."""
        return [one for plan in self.plans for one in self._mismatches(plan)]

    def _mismatches(self, plan: FabricPlan) -> Iterator[FabricMismatch]:
        simulated = plan.bands is SIMULATED
        yield from switch_mismatches(plan.evidence, simulated=simulated)
        best: dict[str, float] = {}
        for group, gb_s in plan.evidence.best.items() if not simulated else ():
            if len(group.nodes) == 2:
                best.update({node: max(gb_s, best.get(node, 0.0)) for node in group.nodes})
        networks = {node: self._networks[node] for node in plan.leaf_of if node in self._networks}
        yield from nccl_mismatches(networks, best)

    async def _choose(self, names: Sequence[str]) -> list[str]:
        """Returns the nodes that can be measured. A named node may also be drained, as long as it has no job."""
        connections, head = self.context.cluster_context.connections, await self.context.head()
        idle = set(await self.context.idle_nodes())
        states = await node_commands.read_node_reasons(connections, head)
        chosen = []
        for name in names or self.context.cluster.slot_names:
            machine = self._machines.get(name)
            if machine is None or machine.state is not MachineState.RUNNING:
                why = "its machine does not run"
            elif name in idle:
                why = ""
            else:
                state = states.get(name, ("", ""))[0]
                without_jobs = names and state.startswith("drained")
                why = "it runs jobs" if state.startswith(_BUSY) else "" if without_jobs else "it is out of service"
            if not why:
                chosen.append(name)
            elif names or machine is not None:
                self.skipped[name] = why
        return sorted(chosen, key=natural_key)

    def _plans(self, chosen: Sequence[str]) -> Iterator[FabricPlan]:
        """Yields the course for the nodes of each plan of which there are two or more."""
        cluster = self.context.cluster
        leaf_of = {slot.name: slot.leaf for slot in cluster.slots}
        by_plan: dict[str, list[str]] = {}
        for name in chosen:
            by_plan.setdefault(cluster.group_of[name].plan.name, []).append(name)
        for names in by_plan.values():
            if len(names) < 2:
                self.skipped.update(dict.fromkeys(names, "no other node of its plan is idle"))
                continue
            plan = cluster.group_of[names[0]].plan
            simulated = cluster.simulated_gpus or not plan.gpus
            yield FabricPlan(
                {name: leaf_of[name] for name in names},
                SIMULATED if simulated else REAL,
                frozenset() if simulated or plan.gpus < 2 else frozenset(names),
                0.0 if simulated else plan.expects.get("allreduce_gb_s", 0.0),
            )

    async def _measure_round(self, plan: FabricPlan, planned: PlannedRound) -> None:
        self._rounds += 1
        step, began = f"round {self._rounds}", time.monotonic()
        await self.report(step, _round_text(planned))
        answers = await asyncio.gather(*(self._measure(group) for group in planned.groups))
        measured = [
            one
            for group, of_nodes in zip(planned.groups, answers, strict=True)
            for one in self._evaluate(plan, group, of_nodes, again=planned.again)
        ]
        plan.record(measured)
        await self.report(step, _figures_text(plan, measured), done=True, seconds=time.monotonic() - began)

    def _evaluate(
        self, plan: FabricPlan, group: FabricGroup, answers: Sequence[_Answer], *, again: bool
    ) -> Iterator[FabricMeasurement]:
        """Yields the measurement of a group; nothing if one of its nodes left the test."""
        leaving = {node: answer.leaves for node, answer in zip(group.nodes, answers, strict=True) if answer.leaves}
        for node, why in leaving.items():
            plan.drop(node)
            self.skipped[node] = why
        if not leaving:
            fault = next((answer.fault for answer in answers if answer.fault), "")
            yield FabricMeasurement(group, 0.0 if fault else min(answer.gb_s for answer in answers), fault, again)

    async def _measure(self, group: FabricGroup) -> list[_Answer]:
        addresses = [self._machines[node].address for node in group.nodes]
        asks = {
            asyncio.create_task(self._ask(node, {"peers": addresses, "rank": rank})): node
            for rank, node in enumerate(group.nodes)
        }
        try:
            for done in asyncio.as_completed(asks):
                if (await done).leaves:
                    break
            # The others wait in vain for a node that has left: their programs are started again when they are needed.
            _, waiting = await asyncio.wait(asks, timeout=_REST_S)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            await asyncio.gather(*(self._close_member(asks[task]) for task in waiting))
            return [_Answer() if task in waiting else task.result() for task in asks]
        finally:
            for task in asks:
                task.cancel()

    async def _close_member(self, node: str) -> None:
        if member := self._members.pop(node, None):
            await member.close()

    async def _ask(self, node: str, ask: dict[str, Any]) -> _Answer:
        member = self._members.get(node) or await self._start(node)
        if member is None:
            return _Answer(leaves=self.skipped[node])
        try:
            async with asyncio.timeout(_LIMIT_S):
                row = await member.ask(ask)
        except TimeoutError:
            await self._close_member(node)  # its answer would be taken for that of the next round
            return _Answer(fault=f"no figure after {_LIMIT_S:.0f} s")
        return _answer(row) if row is not None else _Answer(leaves=await member.why_ended())

    async def _start(self, node: str) -> _Member | None:
        """Starts the program on a node and returns it. A node where it can't start leaves the test."""
        run = self.context.cluster_context.connections
        try:
            async with asyncio.timeout(_START_S):
                member = self._members[node] = _Member(await run.hold(self._machines[node], _ARGV))
                row = await member.read()
            if row and row.get("ready"):
                self._networks[node] = network_from_report(self._machines[node].address, row.get("network"))
                return member
            answer = _answer(row) if row else _Answer(leaves=await member.why_ended())
            why = answer.leaves or answer.fault
        except TimeoutError:
            why = f"its test program did not start within {_START_S:.0f} s"
        except HeadwayError as error:
            why = fault_text(error)
        self.skipped[node] = why
        return None

    async def _close(self) -> None:
        members, self._members = self._members, {}
        await asyncio.gather(*(member.close() for member in members.values()), return_exceptions=True)

    async def _report_verdict(self) -> None:
        for finding in self.findings:
            await self.report(finding.suspect.name, finding.what, level="error", done=True)
        for plan in self.plans:
            for words in plan.verdict().unclear:
                await self.report("unclear", words, level="warning", done=True)
        for mismatch in self.mismatches:
            await self.report("mismatch", f"{mismatch.what}; {mismatch.remedy}", level="warning", done=True)


def _answer(row: dict[str, Any]) -> _Answer:
    """Returns the answer in the agent's line. A figure below the plan's is a figure, too: the evidence judges it."""
    reason = str(row.get("reason") or "")
    if row.get("skipped"):
        return _Answer(leaves=reason)
    figure = row.get("figure")
    return _Answer(float(figure)) if isinstance(figure, int | float) else _Answer(fault=reason or "no figure")


_KIND_WORDS = {
    GroupKind.NODE: "GPUs of single nodes",
    GroupKind.LEAF: "pairs within leaf switches",
    GroupKind.LEAVES: "pairs across leaf switches",
    GroupKind.ALL: "nodes together",
}


def _round_text(planned: PlannedRound) -> str:
    kinds = dict.fromkeys(_KIND_WORDS[group.kind] for group in planned.groups)
    count = len(planned.groups)
    what = f"{' and '.join(kinds)}: {count} {'group' if count == 1 else 'groups'}"
    return f"measures again what was slow: {what}" if planned.again else what


def _figures_text(plan: FabricPlan, measured: Sequence[FabricMeasurement]) -> str:
    if not measured:
        return "no figure: jobs started on its nodes"
    evidence = plan.evidence
    slow = [one for one in measured if evidence.is_slow(one.group)]
    figures = sorted(one.gb_s for one in measured)
    text = f"{figures[0]:.3g} GB/s" if len(figures) == 1 else f"{figures[0]:.3g} to {figures[-1]:.3g} GB/s"
    shown = ", ".join(f"{one.group.label} {one.fault or f'{one.gb_s:.3g}'}" for one in slow[:4])
    more = f" and {len(slow) - 4} more" if len(slow) > 4 else ""
    return f"{text}; slow: {shown}{more}" if slow else text


def _reasons(skipped: dict[str, str]) -> str:
    by_reason: dict[str, list[str]] = {}
    for node, why in skipped.items():
        by_reason.setdefault(why, []).append(node)
    return ", ".join(f"{compress(nodes)} ({why})" for why, nodes in by_reason.items())
