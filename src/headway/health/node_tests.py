"""Runs the tests of a node: those of its agent, those from outside, and those between it and another node."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import Any

from headway.domain.machines.machine import Machine, MachineState
from headway.errors import HeadwayError
from headway.health.context import HealthContext, fault_text
from headway.render.machine_paths import agent_argv
from headway.slurm import node_reservations

_TESTS_S = 420.0
_MEASURE_S = 2  # seconds for each measurement
_PARTNERS = 2  # number of partners tried for a test between two nodes, one after the other


@dataclass(frozen=True, slots=True)
class NodeTestOutcome:
    """The result of one node test. A skipped test is `ok`, and its text says what is missing on the node."""

    name: str
    ok: bool
    text: str = ""
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class NodeTestReport:
    """The results of all tests of one node."""

    node: str
    results: tuple[NodeTestOutcome, ...]

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
    context: HealthContext, node: str, *, thorough: bool = False, long: bool = False, least_allreduce_gb_s: float = 0.0
) -> NodeTestReport:
    """Runs the node's tests and changes nothing. `thorough`: adds load tests, for errors that a light test does not
    find; `long`: with NVIDIA's longer diagnostic, two minutes. `least_allreduce_gb_s`: what an all-reduce with another
    node must reach; with it, the node also fails if that can't be measured."""
    results: list[NodeTestOutcome] = []
    try:
        machine = await context.running_machine(node)
        results += [await _test_daemons(context, machine), await _test_gpus(context, machine)]
        if all(result.ok for result in results):
            results += await _run_agent_tests(context, machine, thorough=thorough, long=long)
        if (thorough or least_allreduce_gb_s) and all(result.ok for result in results):
            results += await _test_with_partner(context, machine, least_allreduce_gb_s)
    except HeadwayError as error:
        results.append(NodeTestOutcome("ssh", False, fault_text(error)))
    return NodeTestReport(node, tuple(results))


async def _test_daemons(context: HealthContext, machine: Machine) -> NodeTestOutcome:
    """Tests whether slurmd and munge run."""
    argv = ["systemctl", "is-active", "slurmd", "munge"]
    ran = await context.cluster_context.connections.remote(machine, argv, timeout_s=10, check=False)
    return NodeTestOutcome("daemons", ran.code == 0, "" if ran.code == 0 else "slurmd or munge is not running")


async def _test_gpus(context: HealthContext, machine: Machine) -> NodeTestOutcome:
    """Tests whether nvidia-smi lists as many GPUs as the machine should have."""
    found = machine.found
    gpus = len(found.usable_gpus) if found else context.cluster.group_of[machine.name].plan.gpus
    if not gpus:
        return NodeTestOutcome("gpus", True)
    ran = await context.cluster_context.connections.remote(machine, ["nvidia-smi", "-L"], timeout_s=30, check=False)
    seen = sum(line.startswith("GPU ") for line in ran.stdout.splitlines())
    ok = ran.code == 0 and seen == gpus
    return NodeTestOutcome("gpus", ok, "" if ok else f"nvidia-smi lists {seen} GPUs, not {gpus}")


async def _run_agent_tests(
    context: HealthContext, machine: Machine, *, thorough: bool, long: bool
) -> list[NodeTestOutcome]:
    """Runs the tests of the node's agent: all its checks, with new results. `thorough` adds the tests of its GPUs and
    NVIDIA's diagnostic (node/agent/node_tests), `long` that of level 2."""
    argv = agent_argv("test", "all" if thorough else "checks", "--json", "--seconds", str(_MEASURE_S))
    argv += ["--dcgm-level", "2"] if long else []
    ran = await context.cluster_context.connections.remote(machine, argv, timeout_s=_TESTS_S, check=False)
    try:
        rows = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
        found = [_result(row) for row in rows]
    except (ValueError, KeyError, TypeError):
        found = []
    if (not found or ran.code != 0) and all(result.ok for result in found):
        found.append(
            NodeTestOutcome("agent", False, f"its agent's tests ended with {ran.code}: {ran.stderr.strip()[-200:]}")
        )
    return found


async def _test_with_partner(context: HealthContext, machine: Machine, least_gb_s: float) -> list[NodeTestOutcome]:
    """Runs the tests between two nodes with an idle node. If one fails, they are repeated with another partner, because
    one failure does not tell which of the two nodes is bad. Without a result ([] if no node is idle, or a skipped test)
    the node passes, unless it has to reach `least_gb_s`: an incident has named it slow."""
    partners = [name for name in await context.idle_nodes() if name != machine.name][-_PARTNERS:]
    found: list[list[NodeTestOutcome]] = []
    for name in reversed(partners):
        if (results := await _test_with(context, machine, name, least_gb_s)) is None:
            continue
        if all(result.ok for result in results) and not (results[0].skipped and least_gb_s):
            return results
        found.append(results)
    if failed := [result for results in found for result in results if not result.ok]:
        return failed[-1:]
    if not least_gb_s:
        return []
    why = found[-1][0].text if found else "no other node is idle"
    words = f"allreduce: {least_gb_s:.3g} GB/s with another node expected, and not measured: {why}"
    return [NodeTestOutcome("allreduce", False, words)]


async def _test_with(
    context: HealthContext, machine: Machine, name: str, least_gb_s: float
) -> list[NodeTestOutcome] | None:
    """Runs an all-reduce between the machine and the node `name`, then a test of their RDMA ports if they have any.
    Returns None if that node is not available. Raises HeadwayError if the machine itself does not answer."""
    run, head = context.cluster_context.connections, await context.head()
    other = (await context.machines()).get(name)
    if other is None or other.state is not MachineState.RUNNING:
        return None
    try:
        try:
            await node_reservations.reserve_for_test(run, head, name)
            if await context.jobs_on(name):
                return None
        except HeadwayError:
            return None
        if (answers := await _run_on_both(context, machine, other, "allreduce")) is None:
            return None
        results = [_allreduce_result(answers, name, least_gb_s)]
        if results[0].ok and (answers := await _run_on_both(context, machine, other, "rdma")) and answers.rows:
            results.append(_pair_result("rdma", answers, name))
        return results
    finally:
        with contextlib.suppress(HeadwayError):
            await node_reservations.end_test_reservation(run, head, name)


@dataclass(frozen=True, slots=True)
class _Answers:
    """The lines of a test between two nodes, and what went wrong with the programs, "" if nothing."""

    rows: tuple[dict[str, Any], ...]
    trouble: str


async def _run_on_both(context: HealthContext, machine: Machine, other: Machine, test: str) -> _Answers | None:
    """Runs a test on two nodes at the same time. Returns None if the other one does not answer, and raises HeadwayError
    if the machine itself does not."""
    run = context.cluster_context.connections
    peers = f"{machine.address},{other.address}"
    argv = agent_argv("test", test, "--json", "--seconds", "1", "--peers", peers, "--rank")
    both = [run.remote(at, [*argv, str(n)], timeout_s=_TESTS_S, check=False) for n, at in ((0, machine), (1, other))]
    first, second = await asyncio.gather(*both, return_exceptions=True)
    if isinstance(first, BaseException):
        raise first
    if isinstance(second, HeadwayError):
        return None
    if isinstance(second, BaseException):
        raise second
    lines = [line for line in (*first.stdout.splitlines(), *second.stdout.splitlines()) if line.startswith("{")]
    trouble = ""
    if first.code or second.code:
        trouble = (first.stderr or second.stderr).strip()[-200:] or "the agent's program failed"
    return _Answers(tuple(json.loads(line) for line in lines), trouble)


def _pair_result(test: str, answers: _Answers, name: str) -> NodeTestOutcome:
    """Returns the result of a test with the node `name`."""
    rows = [_result(row) for row in answers.rows]
    if skipped := next((one for one in rows if one.skipped), None):
        return skipped
    failed = next((one.text.removeprefix(f"{test}: ") for one in rows if not one.ok), "") or answers.trouble
    return NodeTestOutcome(test, not failed, f"{test} with {name}: {failed}" if failed else "")


def _allreduce_result(answers: _Answers, name: str, least_gb_s: float) -> NodeTestOutcome:
    """Returns the result of an all-reduce, which must reach `least_gb_s`."""
    result = _pair_result("allreduce", answers, name)
    reached = min((float(row.get("figure") or 0) for row in answers.rows), default=0.0)
    if result.ok and not result.skipped and reached < least_gb_s:
        words = f"allreduce with {name}: {reached:.3g} GB/s, at least {least_gb_s:.3g} GB/s expected"
        return NodeTestOutcome("allreduce", False, words)
    return result


def _result(row: dict[str, Any]) -> NodeTestOutcome:
    """Returns the result in one line of the agent."""
    name, reason = str(row["test"]), str(row.get("reason") or "")
    if row.get("skipped") is True:
        return NodeTestOutcome(name, True, reason, skipped=True)
    if row["ok"] is True:
        return NodeTestOutcome(name, True)
    return NodeTestOutcome(name, False, f"{name}: {reason or 'below the figure that the plan expects'}")
