"""Clusters are compared with their files by the clock; differences are reported once, and repaired where the file says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.domain.changeset import Disturbs
from headway.domain.cluster import DriftRule
from headway.domain.operation_kinds import OperationKind
from headway.errors import Unreachable
from headway.server.workers.drift_check import AGAIN_S, PERSON, DriftCheck
from headway.services.cluster.cluster_to_schema import cluster_out
from headway.store import OperationAsk
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server, changes

HOUR_S = 3600


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = await server_fakes.start(tmp_path, builders.Clock())
    await made.apply()
    made.backend.answers["plan"] = changes()
    await rule(made)
    yield made
    await made.close()


async def rule(server: Server, *, every_s: int = HOUR_S, repair: bool = False) -> None:
    """Saves a file with this rule. Without another file the server would not resolve it again."""
    server.backend.whole["lab"] = replace(builders.cluster(4, name="lab"), drift=DriftRule(every_s, repair))
    row = await server.store.clusters.get("lab")
    assert row is not None
    spec = {**row.document["spec"], "drift": {"check": every_s, "repair": repair}}
    await server.store.clusters.save("lab", {**row.document, "spec": spec})


async def checked(server: Server, check: DriftCheck | None = None) -> Any:
    """Lets the worker look once, carries out what it queued, and returns the drift of the API's answer."""
    await (check or DriftCheck(server.state)).check_all()
    await server.work_off()
    row = await server.store.clusters.get("lab")
    assert row is not None
    return cluster_out(row, server.state.live.snapshot("lab")).drift


def texts(server: Server) -> list[str]:
    return [event.text for event in server.state.live.recent_events("lab") if "differs" in event.text]


async def test_cluster_is_compared_when_due_and_differences_are_reported_once(server: Server) -> None:
    clock: Any = server.state.clock
    first = await checked(server)
    assert (first.changes, texts(server)) == (0, [])
    server.backend.answers["plan"] = changes(Disturbs.RECONFIGURE)
    assert (await checked(server)).changes == 0, "it is not due"
    for _ in range(2):
        clock.now += HOUR_S
        drift = await checked(server)
        assert (drift.changes, drift.objects, drift.checked_at) == (1, ["unit0 on lab-head"], clock.now)
    assert texts(server) == ["the cluster differs from its file: unit0 on lab-head"]


async def test_apply_ends_the_drift(server: Server) -> None:
    server.backend.answers["plan"] = changes(Disturbs.RECONFIGURE)
    assert (await checked(server)).changes == 1
    await server.apply()
    row = await server.store.clusters.get("lab")
    assert row is not None
    assert row.drift is None


async def test_file_is_applied_again_only_if_no_work_is_disturbed(server: Server) -> None:
    clock: Any = server.state.clock
    await rule(server, repair=True)
    server.backend.answers["plan"] = changes(Disturbs.NODE_DRAIN)
    await checked(server)
    assert "so a person must start it" in texts(server)[0]
    applies = len(server.backend.named("apply"))
    clock.now += HOUR_S
    server.backend.answers["plan"] = changes(Disturbs.RECONFIGURE)
    await checked(server)
    assert texts(server)[0] == "the cluster differs from its file: unit0 on lab-head; its file is applied again"
    assert len(server.backend.named("apply")) == applies + 1
    (latest,) = await server.store.operations.search(OperationAsk("lab", {OperationKind.APPLY.value}), limit=1)
    assert (latest.person, latest.state) == (PERSON, "done")


async def test_changing_cluster_and_one_without_the_rule_are_not_compared(server: Server) -> None:
    await rule(server, every_s=0)
    assert await checked(server) is None
    await rule(server)
    await server.store.clusters.save("lab", state="failed")
    assert await checked(server) is None


async def test_comparison_that_failed_is_repeated_later(server: Server) -> None:
    clock: Any = server.state.clock
    check = DriftCheck(server.state)
    server.backend.answers["plan"] = Unreachable("lab-head does not answer SSH")
    assert await checked(server, check) is None
    server.backend.answers["plan"] = changes()
    assert await checked(server, check) is None
    clock.now += AGAIN_S
    assert (await checked(server, check)).changes == 0


async def test_repair_that_would_disturb_work_by_the_time_that_it_runs_changes_nothing(server: Server) -> None:
    clock: Any = server.state.clock
    clock.now += 1  # the newest operation is the repair
    await rule(server, repair=True)
    server.backend.answers["plan"] = changes(Disturbs.RECONFIGURE)
    applies = len(server.backend.named("apply"))
    await DriftCheck(server.state).check_all()
    server.backend.answers["plan"] = changes(Disturbs.NODE_DRAIN)
    await server.work_off()
    assert len(server.backend.named("apply")) == applies
    (latest,) = await server.store.operations.search(OperationAsk("lab", {OperationKind.APPLY.value}), limit=1)
    assert latest.state == "failed"
    row = await server.store.clusters.get("lab")
    assert row is not None
    assert row.state == "ready"
