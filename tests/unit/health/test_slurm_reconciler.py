"""A refused spare reservation does not stop the reconciler's other actions or an apply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.cluster import readiness
from headway.cluster.context import ClusterContext
from headway.domain.incident import FaultAction
from headway.domain.machines.machine import Machine
from headway.domain.slurm.nodes_and_jobs import NodeState
from headway.errors import CommandFailed
from headway.health.incidents.engine import IncidentEngine
from headway.health.jobs.stall_watchdog import StallWatchdog
from headway.health.slurm_reconciler import SlurmReconciler
from headway.transport.process import CommandResult
from tests.support.clusters import builders
from tests.support.clusters.slurm_cluster import FakeProvider, FakeSlurm

LAB = builders.cluster(4, 1)
OVERLAPS = "Error creating the reservation: Requested reservation overlaps"


class Slurm(FakeSlurm):
    """No reservation is there, and none can be made."""

    def __init__(self) -> None:
        super().__init__(LAB.slot_names)
        self.errors["create"] = [OVERLAPS] * 9
        self.job_states[9] = "PENDING"

    async def remote(self, machine: Machine, argv: Sequence[str], *, check: bool = True, **_: Any) -> CommandResult:
        if "show" in argv and "reservation" in argv:
            if check:
                raise CommandFailed(argv, 1, "Reservation not found")
            return CommandResult(tuple(argv), 1, "", "Reservation not found", 0.0)
        return await super().remote(machine, argv, check=check)


def provider() -> FakeProvider:
    return FakeProvider(replace(builders.machine(name), started_at=1.0) for name in LAB.machine_names)


def nodes() -> tuple[NodeState, ...]:
    return tuple(builders.node(name) for name in LAB.slot_names)


async def test_refused_reservation_does_not_stop_other_actions(tmp_path: Path) -> None:
    slurm = Slurm()
    store = await builders.store(tmp_path)
    context: Any = ClusterContext(provider(), store, slurm, Path("/nowhere"))  # type: ignore[arg-type]
    watch = SlurmReconciler(
        LAB,
        context,
        IncidentEngine(LAB, context, lambda: 1000.0),
        StallWatchdog(LAB, context, lambda: 1000.0),
        clock=lambda: 1000.0,
    )
    waits = builders.job(9, "PENDING", restarts=1, reason="BeginTime", submit_time=900, eligible_time=920)
    messages = dict(await watch.reconcile(nodes(), [waits]))
    assert messages["spares"].endswith(OVERLAPS)
    assert "job 9" in messages
    assert any("StartTime=uts901" in line and "JobId=9" in line for line in slurm.did)
    assert "spares" not in dict(await watch.reconcile(nodes(), [])), "it is said once"
    await store.close()


async def test_drain_by_slurm_is_handled_once_it_has_lasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the meantime the agent's own report may open an incident with a lighter repair."""
    clock, handled = builders.Clock(), []
    store = await builders.store(tmp_path, clock)
    context: Any = ClusterContext(provider(), store, Slurm(), Path("/nowhere"))  # type: ignore[arg-type]
    engine = IncidentEngine(LAB, context, clock)
    watch = SlurmReconciler(LAB, context, engine, StallWatchdog(LAB, context, clock), clock=clock)

    async def confirm(*_: Any) -> bool:
        return True

    async def handle(node: str, what: str, **_: Any) -> list[tuple[str, str]]:
        handled.append((node, what))
        return []

    monkeypatch.setattr(engine, "confirm_dead", confirm)
    monkeypatch.setattr(engine, "handle_dead_node", handle)
    drained = (builders.node("lab-1-3", "IDLE", "DRAIN", reason="Prolog error"), *nodes())
    for states, seconds, count in (
        (drained, 0, 0),
        (drained, 59, 0),
        (nodes(), 0, 0),
        (drained, 0, 0),
        (drained, 60, 1),
    ):
        clock.now += seconds
        await watch.reconcile({node.name: node for node in reversed(states)}.values(), [])
        assert len(handled) == count, seconds
    assert handled == [("lab-1-3", "Slurm had drained it: Prolog error")]
    await store.incidents.open("lab", "lab-1-3", "/scratch is not mounted", FaultAction.MOUNT, clock.now, {}, score=0)
    await watch.reconcile({node.name: node for node in reversed(drained)}.values(), [])
    assert len(handled) == 1, "the incident's end returns the node"
    await store.close()


async def test_refused_reservation_only_warns_during_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm, said = Slurm(), []

    async def states(*_: Any) -> dict[str, NodeState]:
        return {node.name: node for node in nodes()}

    async def report(step: str, text: str, *, level: str = "info", **_: Any) -> None:
        said.append((step, level, text.endswith(OVERLAPS)))

    monkeypatch.setattr(readiness, "read_node_states", states)
    context: Any = ClusterContext(provider(), None, slurm, Path())  # type: ignore[arg-type]
    await readiness.hold_spares(LAB, context, builders.machine(LAB.head), report)
    assert said == [("spares", "warning", True)]
