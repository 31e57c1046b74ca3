"""A node's tests, and the only way back to service: through a report of tests that passed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import Any

from headway.domain.incident import Incident, IncidentState, XidClass, own
from headway.domain.machine import Machine, MachineState
from headway.domain.slots import LEAVES
from headway.errors import CommandFailed, HeadwayError
from headway.health.context import Tools, fault_of
from headway.health.incidents import flaky_nodes
from headway.render.system.agent_config import PROGRAM
from headway.slurm import commands

_TESTS_S = 300.0
_MEASURE_S = 2  # for each figure
_PARTNERS = 2  # for a test between two nodes, one after the other


@dataclass(frozen=True, slots=True)
class Result:
    """One test."""

    name: str
    ok: bool
    text: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    node: str
    results: tuple[Result, ...]

    @property
    def fault(self) -> str:
        """What is wrong; "" when all tests passed, which needs at least one."""
        if not self.results:
            return "no test was run"
        return next((one.text or f"{one.name} failed" for one in self.results if not one.ok), "")


async def prove(tools: Tools, node: str, *, hard: bool = False) -> Report:
    """Runs the node's tests; changes nothing. `hard`: after errors that a light test may not find."""
    results: list[Result] = []
    try:
        machine = await tools.machine(node)
        results += [await _daemons(tools, machine), await _gpus(tools, machine)]
        if all(one.ok for one in results):
            results += await _agent(tools, machine, hard=hard)
        if hard and all(one.ok for one in results):
            results += await _between_two(tools, machine)
    except HeadwayError as error:
        results.append(Result("ssh", False, fault_of(error)))
    return Report(node, tuple(results))


async def _daemons(tools: Tools, machine: Machine) -> Result:
    argv = ["systemctl", "is-active", "slurmd", "munge"]
    ran = await tools.env.connections.remote(machine, argv, timeout_s=10, check=False)
    return Result("daemons", ran.code == 0, "" if ran.code == 0 else "slurmd or munge does not run")


async def _gpus(tools: Tools, machine: Machine) -> Result:
    found = machine.found
    gpus = len(found.usable_gpus) if found else tools.cluster.group_of[machine.name].plan.gpus
    if not gpus:
        return Result("gpus", True)
    ran = await tools.env.connections.remote(machine, ["nvidia-smi", "-L"], timeout_s=30, check=False)
    seen = sum(line.startswith("GPU ") for line in ran.stdout.splitlines())
    ok = ran.code == 0 and seen == gpus
    return Result("gpus", ok, "" if ok else f"nvidia-smi lists {seen} GPUs, not {gpus}")


async def _agent(tools: Tools, machine: Machine, *, hard: bool) -> list[Result]:
    """The agent's own: all its checks, anew; hard: memory, burn and copy too (node/agent/checks/node_tests.py)."""
    argv = ["python3", "-I", "-S", PROGRAM, "test", "all" if hard else "checks", "--json", "--seconds", str(_MEASURE_S)]
    ran = await tools.env.connections.remote(machine, argv, timeout_s=_TESTS_S, check=False)
    try:
        rows = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
        found = [Result(str(row["test"]), row["ok"] is True, _words(row)) for row in rows]
    except (ValueError, KeyError, TypeError):
        found = []
    if (not found or ran.code != 0) and all(one.ok for one in found):
        found.append(Result("agent", False, f"its agent's tests ended with {ran.code}: {ran.stderr.strip()[-200:]}"))
    return found


async def _between_two(tools: Tools, machine: Machine) -> list[Result]:
    """An all-reduce with another node that has nothing to do; [] where there is none. One that fails says nothing about which
    of the two is bad: with another partner it does."""
    partners = [name for name in await tools.idle_nodes() if name != machine.name][-_PARTNERS:]
    found: list[Result] = []
    for name in reversed(partners):
        result = await _allreduce(tools, machine, name)
        found = [result] if result else found
        if result and result.ok:
            break
    return found


async def _allreduce(tools: Tools, machine: Machine, name: str) -> Result | None:
    """None for a partner that was not to be had."""
    run, head = tools.env.connections, await tools.head()
    other = (await tools.machines()).get(name)
    if other is None or other.state is not MachineState.RUNNING:
        return None
    peers = f"{machine.address},{other.address}"
    argv = ["python3", "-I", "-S", PROGRAM, "test", "allreduce", "--json", "--seconds", "1", "--peers", peers, "--rank"]
    try:
        await commands.hold_for_test(run, head, name)
        if await tools.jobs_on(name):
            return None
        both = [
            run.remote(at, [*argv, str(n)], timeout_s=_TESTS_S, check=False) for n, at in ((0, machine), (1, other))
        ]
        first, second = await asyncio.gather(*both)
    except HeadwayError:
        return None
    finally:
        with contextlib.suppress(HeadwayError):
            await commands.end_hold(run, head, name)
    ok = first.code == second.code == 0
    rows = [line for line in (*first.stdout.splitlines(), *second.stdout.splitlines()) if '"ok": false' in line]
    why = json.loads(rows[0]).get("reason", "") if rows else (first.stderr or second.stderr).strip()[-200:]
    return Result("allreduce", ok, "" if ok else f"allreduce with {name}: {why or 'below what the plan expects'}")


def _words(row: dict[str, Any]) -> str:
    return "" if row["ok"] is True else f"{row['test']}: {row.get('reason') or 'below what the plan expects'}"


def needs_hard_tests(incident: Incident) -> bool:
    return incident.action in {XidClass.DRAIN, XidClass.RMA, XidClass.HANDS_ON}


async def give_back(tools: Tools, incident: Incident, report: Report, state: IncidentState, actor: str) -> Incident:
    """Ends the incident, and the node's drain where it is Headway's and the node does not leave. Nothing else returns a node
    of an incident to service. ValueError for a report that does not say so."""
    if report.fault or report.node != incident.node:
        raise ValueError(f"incident {incident.number}: {report.fault or f'tests of {report.node}'}")
    words = "tests passed; its drain is somebody else's and stays"
    if incident.drained:
        _, reason = await tools.node_now(incident.node)
        if reason.startswith(LEAVES):  # should it stay after all, it is returned then (`return_again`)
            words = "tests passed; it stays drained, for it leaves"
        elif own(reason):
            spare_work = incident.node in await flaky_nodes.names(tools)
            if tools.cluster.health.lemon_spare_work:
                # One that the reservation is to hold waits for it; for others the watch tries it again.
                with contextlib.nullcontext() if spare_work else contextlib.suppress(CommandFailed):
                    await flaky_nodes.hold(tools)
            if not await commands.return_own(tools.env.connections, await tools.head(), incident.node, own):
                words = "tests passed; back in service"
                words += " for spare work only: it fails too often" if spare_work else ""
    passed = {"passed": [one.name for one in report.results]}
    return await tools.go(incident, state, words, actor=actor, evidence=passed)


async def return_again(tools: Tools, node: str) -> str:
    """Returns a node that is out for an incident which has ended with tests passed; "" where nothing was to be done. None while
    an incident of it is open, and for no reason but that incident's very own: numbers may be those of another server."""
    store, name = tools.env.store, tools.cluster.name
    if await store.incidents(name, node=node, unfinished=True):
        return ""
    _, reason = await tools.node_now(node)
    for incident in await store.with_steps(await store.incidents(name, node=node)):
        if incident.drained and reason in incident.reasons:
            if await commands.return_own(
                tools.env.connections, await tools.head(), node, incident.reasons.__contains__
            ):
                return ""
            return f"incident {incident.number} is over, which the controller had forgotten: back in service"
    return ""
