"""Runs the tests of a node: those of its agent, those from outside, and an all-reduce with another node."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import Any

from headway.domain.incident import FaultAction, Incident
from headway.domain.machines.machine import Machine, MachineState
from headway.errors import HeadwayError
from headway.health.context import HealthContext, fault_text
from headway.render.machine_paths import agent_argv
from headway.slurm import reservations

_TESTS_S = 300.0
_MEASURE_S = 2  # seconds for each measurement
_PARTNERS = 2  # number of partners tried for a test between two nodes, one after the other


@dataclass(frozen=True, slots=True)
class NodeTestResult:
    """The result of one node test. A skipped test is `ok`, and its text says what is missing on the node."""

    name: str
    ok: bool
    text: str = ""
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class NodeTestReport:
    """The results of all tests of one node."""

    node: str
    results: tuple[NodeTestResult, ...]

    @property
    def fault(self) -> str:
        """Returns the first failure, "" when all tests passed. A report without tests is a failure."""
        if not self.results:
            return "no test was run"
        return next((result.text or f"{result.name} failed" for result in self.results if not result.ok), "")

    @property
    def passed(self) -> list[str]:
        """Returns the names of the tests that ran and passed."""
        return [one.name for one in self.results if one.ok and not one.skipped]

    @property
    def skipped(self) -> str:
        """Returns the skipped tests with their reasons as text, "" when none was skipped."""
        return "; ".join(f"{one.name}: {one.text}" for one in self.results if one.skipped)


async def run_node_tests(
    context: HealthContext, node: str, *, thorough: bool = False, least_allreduce_gb_s: float = 0.0
) -> NodeTestReport:
    """Runs the node's tests and changes nothing. `thorough`: adds load tests, for errors that a light test does not
    find. `least_allreduce_gb_s`: what an all-reduce with another node must reach; with it, the node also fails if that
    can't be measured."""
    results: list[NodeTestResult] = []
    try:
        machine = await context.running_machine(node)
        results += [await _test_daemons(context, machine), await _test_gpus(context, machine)]
        if all(result.ok for result in results):
            results += await _run_agent_tests(context, machine, thorough=thorough)
        if (thorough or least_allreduce_gb_s) and all(result.ok for result in results):
            results += await _test_with_partner(context, machine, least_allreduce_gb_s)
    except HeadwayError as error:
        results.append(NodeTestResult("ssh", False, fault_text(error)))
    return NodeTestReport(node, tuple(results))


async def _test_daemons(context: HealthContext, machine: Machine) -> NodeTestResult:
    """Tests whether slurmd and munge run."""
    argv = ["systemctl", "is-active", "slurmd", "munge"]
    ran = await context.cluster_context.connections.remote(machine, argv, timeout_s=10, check=False)
    return NodeTestResult("daemons", ran.code == 0, "" if ran.code == 0 else "slurmd or munge is not running")


async def _test_gpus(context: HealthContext, machine: Machine) -> NodeTestResult:
    """Tests whether nvidia-smi lists as many GPUs as the machine should have."""
    found = machine.found
    gpus = len(found.usable_gpus) if found else context.cluster.group_of[machine.name].plan.gpus
    if not gpus:
        return NodeTestResult("gpus", True)
    ran = await context.cluster_context.connections.remote(machine, ["nvidia-smi", "-L"], timeout_s=30, check=False)
    seen = sum(line.startswith("GPU ") for line in ran.stdout.splitlines())
    ok = ran.code == 0 and seen == gpus
    return NodeTestResult("gpus", ok, "" if ok else f"nvidia-smi lists {seen} GPUs, not {gpus}")


async def _run_agent_tests(context: HealthContext, machine: Machine, *, thorough: bool) -> list[NodeTestResult]:
    """Runs the tests of the node's agent: all its checks, with new results. `thorough` adds the memory, burn and copy
    tests of its GPUs (node/agent/node_tests)."""
    argv = agent_argv("test", "all" if thorough else "checks", "--json", "--seconds", str(_MEASURE_S))
    ran = await context.cluster_context.connections.remote(machine, argv, timeout_s=_TESTS_S, check=False)
    try:
        rows = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
        found = [_result(row) for row in rows]
    except (ValueError, KeyError, TypeError):
        found = []
    if (not found or ran.code != 0) and all(result.ok for result in found):
        found.append(
            NodeTestResult("agent", False, f"its agent's tests ended with {ran.code}: {ran.stderr.strip()[-200:]}")
        )
    return found


async def _test_with_partner(context: HealthContext, machine: Machine, least_gb_s: float) -> list[NodeTestResult]:
    """Runs an all-reduce with an idle node. If it fails, it is repeated with another partner, because one failure does not
    tell which of the two nodes is bad. Without a result ([] if no node is idle, or a skipped test) the node passes,
    unless it has to reach `least_gb_s`: an incident has named it slow."""
    partners = [name for name in await context.idle_nodes() if name != machine.name][-_PARTNERS:]
    results = []
    for name in reversed(partners):
        if (result := await _allreduce(context, machine, name, least_gb_s)) is None:
            continue
        if result.ok and not (result.skipped and least_gb_s):
            return [result]
        results.append(result)
    if failed := [result for result in results if not result.ok]:
        return failed[-1:]
    if not least_gb_s:
        return []
    why = results[-1].text if results else "no other node is idle"
    words = f"allreduce: {least_gb_s:.3g} GB/s with another node expected, and not measured: {why}"
    return [NodeTestResult("allreduce", False, words)]


async def _allreduce(context: HealthContext, machine: Machine, name: str, least_gb_s: float) -> NodeTestResult | None:
    """Runs an all-reduce between the machine and the node `name`. Returns None if that node is not available.
    Raises HeadwayError if the machine itself does not answer."""
    run, head = context.cluster_context.connections, await context.head()
    other = (await context.machines()).get(name)
    if other is None or other.state is not MachineState.RUNNING:
        return None
    peers = f"{machine.address},{other.address}"
    argv = agent_argv("test", "allreduce", "--json", "--seconds", "1", "--peers", peers, "--rank")
    try:
        await reservations.reserve_for_test(run, head, name)
        if await context.jobs_on(name):
            return None
        both = [
            run.remote(at, [*argv, str(n)], timeout_s=_TESTS_S, check=False) for n, at in ((0, machine), (1, other))
        ]
        first, second = await asyncio.gather(*both, return_exceptions=True)
    except HeadwayError:
        return None
    finally:
        with contextlib.suppress(HeadwayError):
            await reservations.end_test_reservation(run, head, name)
    if isinstance(first, BaseException):
        raise first
    if isinstance(second, HeadwayError):
        return None
    if isinstance(second, BaseException):
        raise second
    lines = [line for line in (*first.stdout.splitlines(), *second.stdout.splitlines()) if line.startswith("{")]
    answers = [json.loads(line) for line in lines]
    rows = [_result(answer) for answer in answers]
    if skipped := next((one for one in rows if one.skipped), None):
        return skipped
    if first.code == second.code == 0:
        reached = min((float(answer.get("figure") or 0) for answer in answers), default=0.0)
        if reached < least_gb_s:
            words = f"allreduce with {name}: {reached:.3g} GB/s, at least {least_gb_s:.3g} GB/s expected"
            return NodeTestResult("allreduce", False, words)
        return NodeTestResult("allreduce", True)
    failed = next((one.text.removeprefix("allreduce: ") for one in rows if not one.ok), "")
    why = failed or (first.stderr or second.stderr).strip()[-200:] or "the agent's program failed"
    return NodeTestResult("allreduce", False, f"allreduce with {name}: {why}")


def _result(row: dict[str, Any]) -> NodeTestResult:
    """Returns the result in one line of the agent."""
    name, reason = str(row["test"]), str(row.get("reason") or "")
    if row.get("skipped") is True:
        return NodeTestResult(name, True, reason, skipped=True)
    if row["ok"] is True:
        return NodeTestResult(name, True)
    return NodeTestResult(name, False, f"{name}: {reason or 'below the figure that the plan expects'}")


def needs_thorough_tests(incident: Incident) -> bool:
    """Returns whether the incident's action requires load tests."""
    return incident.action in {FaultAction.DRAIN, FaultAction.RMA, FaultAction.HANDS_ON}
