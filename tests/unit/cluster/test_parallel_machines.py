"""When machines are set up in parallel, the failure of one is reported for that one and does not fail the others."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headway.changes.cluster_changes import DesiredState, Observed
from headway.changes.desired_accounts import desired_accounts
from headway.cluster.changeset_execution import ChangeSetExecution
from headway.domain.changeset import Change, ChangeSet
from headway.errors import Unreachable
from headway.server.workers.operation_worker import stopping
from headway.store import StoreUnavailable
from tests.support.clusters import builders

LAB = builders.cluster(2, 0)
HEAD, ONE, TWO = LAB.head, *LAB.slot_names
AWAY = StoreUnavailable("the server's database does not answer")


class Fleet:
    """Each machine's bring-up is a word: what it raises, or "waits" until it is cut short."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **words: Any) -> None:
        self.words, self.did = {name.replace("_", "-"): word for name, word in words.items()}, list[str]()
        monkeypatch.setattr(ChangeSetExecution, "bring", lambda _, name, __: self._bring(name))

    async def _bring(self, name: str) -> None:
        word = self.words.get(name, "")
        if isinstance(word, Exception):
            await asyncio.sleep(0)
            raise word
        try:
            if word == "waits":
                await asyncio.sleep(60)
        finally:
            self.did.append(f"{name} lets go")

    async def run(self) -> ChangeSetExecution:
        async def report(*_: Any, **__: Any) -> None: ...

        changes = ChangeSet("lab", tuple(Change("units", name, "slurmd", "restart") for name in (HEAD, ONE, TWO)))
        goal = DesiredState(LAB, {}, desired_accounts(LAB), LAB.slot_names)
        context: Any = SimpleNamespace()
        made = ChangeSetExecution(goal, context, report, None, {}, Observed({}), changes)  # type: ignore[arg-type]
        await made.execute()
        return made


async def test_database_outage_cancels_the_setup_of_all_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What begins anew when it is back must not work beside what began before."""
    fleet = Fleet(monkeypatch, **{ONE: AWAY, TWO: "waits"})
    with pytest.raises(StoreUnavailable):
        await fleet.run()
    assert fleet.did == [f"{HEAD} lets go", f"{TWO} lets go"]


async def test_failure_of_one_machine_lets_the_others_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch, **{HEAD: Unreachable(f"{HEAD} does not answer")})
    with pytest.raises(Unreachable, match=HEAD):
        await fleet.run()
    assert sorted(fleet.did) == [f"{ONE} lets go", f"{TWO} lets go"]


async def test_setup_that_begins_again_after_an_outage_fails_by_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker begins again in the same task. It takes the error of a cancelled task for the end of the server."""
    with pytest.raises(StoreUnavailable):
        await Fleet(monkeypatch, **{ONE: AWAY}).run()
    with pytest.raises(Unreachable, match=HEAD):
        await Fleet(monkeypatch, **{HEAD: Unreachable(f"{HEAD} does not answer")}).run()
    assert not stopping()
