"""A person who is disabled or removed is locked on all clusters that know their user, and a lock that fails is tried again,
also by the next server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headway.domain.access.user_change_results import UserLockResult, UserUpdateResult
from headway.domain.teams import Team, User
from headway.errors import Unreachable
from headway.server.workers.user_changes import AGAIN_S, UserChanges
from headway.store import AuditAsk
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server, reading

PEOPLE = "/api/v1/people"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = await server_fakes.start(
        tmp_path, builders.Clock(), read=reading(), lock_user=UserLockResult(), update_users=UserUpdateResult()
    )
    for name in ("lab", "other"):
        users = tuple(User(user, (), ("red",)) for user in ("ann", "bob", *(["eve"] if name == "lab" else [])))
        made.backend.clusters[name] = {"teams": (Team("red", tuple(u.name for u in users), 1),), "users": users}
        await made.apply(name)
        await made.store.linux_uids.add_to_cluster(name, [user.name for user in users])
    yield made
    await made.close()


def locked(server: Server) -> list[tuple[str, str]]:
    return sorted((cluster.name, user) for cluster, user in server.backend.named("lock_user"))


async def tried(worker: UserChanges, now: float) -> None:
    """Waits for everything that the worker starts at this time."""
    await asyncio.gather(*await worker.start_due(now))


async def lines(server: Server, action: str) -> list[tuple[str, str, str, Any]]:
    found = await server.store.audit.search(AuditAsk(action=action))
    return sorted((line.person, line.target, line.result, line.detail) for line in found)


async def test_disabled_person_is_locked_on_each_cluster_of_theirs(server: Server) -> None:
    server.backend.answers["lock_user"] = lambda cluster, _: UserLockResult((7, 9) if cluster.name == "lab" else ())
    ann, bob = await server.client("ann", "admin"), await server.client("bob", "member")
    answer = (await ann.post(f"{PEOPLE}/bob/disable")).json()
    assert (answer["disabled"], sorted(answer["changes_due"])) == (True, ["lab", "other"])
    assert (await bob.get("/api/v1/me")).status_code == 401
    assert (await ann.post("/api/v1/tokens", json={"person": "bob"})).status_code == 400
    await tried(UserChanges(server.state), 0.0)
    assert locked(server) == [("lab", "bob"), ("other", "bob")]
    done = {"user": "bob", "seconds": 0.0}
    assert await lines(server, "user.lock") == [
        ("ann", "lab", "ok", {**done, "jobs": 2, "job_ids": [7, 9]}),
        ("ann", "other", "ok", {**done, "jobs": 0, "job_ids": []}),
    ]
    assert [user.name for user in (await server.state.clusters.cached("lab")).users] == ["ann", "eve"]
    assert (await ann.get(f"{PEOPLE}/bob")).json()["changes_due"] == {}
    await tried(UserChanges(server.state), 100.0)
    assert len(locked(server)) == 2, "what is done is not repeated"


async def test_person_who_returns_is_unlocked_with_the_role_they_had(server: Server) -> None:
    ann, _ = await server.client("ann", "admin"), await server.client("eve", "operator")
    await ann.post(f"{PEOPLE}/eve/disable")
    await tried(UserChanges(server.state), 0.0)
    answer = (await ann.post(f"{PEOPLE}/eve/enable")).json()
    assert (answer["disabled"], answer["role"]) == (False, "operator")
    await tried(UserChanges(server.state), 1.0)
    assert [(cluster.name, users) for cluster, users in server.backend.named("update_users")] == [("lab", ("eve",))]
    assert "eve" in {user.name for user in (await server.state.clusters.cached("lab")).users}
    assert [line[:3] for line in await lines(server, "user.unlock")] == [("ann", "lab", "ok")]


async def test_cluster_that_does_not_answer_is_tried_again_by_the_next_server(server: Server) -> None:
    server.backend.answers["lock_user"] = Unreachable("no head of lab runs")
    ann, _ = await server.client("ann", "admin"), await server.client("eve", "member")
    await ann.delete(f"{PEOPLE}/eve")
    worker = UserChanges(server.state)
    for now in (0.0, 1.0, AGAIN_S):
        await tried(worker, now)
    assert len(locked(server)) == 2, "once at once, once after AGAIN_S"
    assert [line[:3] for line in await lines(server, "user.lock")] == [("ann", "lab", "failed")]
    (row,) = await server.store.user_changes.due()
    assert (row.user, row.error) == ("eve", "no head of lab runs")
    server.backend.answers["lock_user"] = UserLockResult((3,))
    await tried(UserChanges(server.state), 0.0)
    assert await server.store.user_changes.due() == ()
    assert [line[2] for line in await lines(server, "user.lock")] == ["failed", "ok"]


async def test_lock_is_repeated_until_no_older_operation_runs(server: Server) -> None:
    """An apply that began before the lock may write the user again."""
    ann, _ = await server.client("ann", "admin"), await server.client("eve", "member")
    operation = await server.store.operations.enqueue("lab", "apply", "ann")
    claimed = await server.store.operations.claim("worker", server.state.clock(), 60.0)
    assert claimed is not None
    assert claimed.id == operation.id
    await ann.post(f"{PEOPLE}/eve/disable")
    worker = UserChanges(server.state)
    await tried(worker, 0.0)
    await tried(worker, AGAIN_S)
    assert len(locked(server)) == 2
    assert len(await lines(server, "user.lock")) == 1
    assert (await ann.get(f"{PEOPLE}/eve")).json()["changes_due"] == {}
    await server.store.operations.finish(claimed.id, "worker", "done")
    await tried(worker, 2 * AGAIN_S)
    await tried(worker, 3 * AGAIN_S)
    assert len(locked(server)) == 3


async def test_cluster_that_was_taken_down_has_nothing_due(server: Server) -> None:
    ann, _ = await server.client("ann", "admin"), await server.client("eve", "member")
    await ann.post(f"{PEOPLE}/eve/disable")
    await server.store.clusters.delete("lab")
    await tried(UserChanges(server.state), 0.0)
    assert locked(server) == []
    assert await server.store.user_changes.due() == ()


async def test_last_admin_cannot_be_disabled(server: Server) -> None:
    ann, bob = await server.client("ann", "admin"), await server.client("bob", "admin")
    for other in await server.store.people.all():
        if other.name not in ("ann", "bob"):
            await server.store.people.delete(other.name)
    assert (await ann.post(f"{PEOPLE}/bob/disable")).status_code == 200
    for request in (ann.post(f"{PEOPLE}/ann/disable"), ann.delete(f"{PEOPLE}/ann")):
        assert (await request).status_code == 409
    assert (await bob.get("/api/v1/me")).status_code == 401
    assert (await ann.post(f"{PEOPLE}/nobody/disable")).status_code == 404


async def test_person_added_again_is_unlocked(server: Server) -> None:
    ann, _ = await server.client("ann", "admin"), await server.client("eve", "member")
    await ann.delete(f"{PEOPLE}/eve")
    assert await server.store.user_changes.locked() == {"eve"}
    await ann.put(f"{PEOPLE}/eve", json={"role": "member"})
    assert await server.store.user_changes.locked() == frozenset()


async def test_change_of_a_disabled_person_does_not_unlock_them(server: Server) -> None:
    ann, _ = await server.client("ann", "admin"), await server.client("eve", "member")
    await ann.post(f"{PEOPLE}/eve/disable")
    assert (await ann.put(f"{PEOPLE}/eve", json={"role": "lead"})).json()["disabled"] is True
    assert await server.store.user_changes.locked() == {"eve"}


async def test_plan_warns_of_a_locked_user_in_the_file(server: Server) -> None:
    ann, _ = await server.client("ann", "admin"), await server.client("eve", "member")
    await ann.delete(f"{PEOPLE}/eve")
    answer = await ann.post("/api/v1/plan", json=server_fakes.document("lab").model_dump())
    (warning,) = answer.json()["warnings"]
    assert warning["message"] == "eve is left out: this user's person is disabled or was removed"


async def test_jobs_that_a_failed_try_cancelled_are_audited(server: Server) -> None:
    server.backend.answers["lock_user"] = UserLockResult((3, 4), "lab-head2 does not run")
    ann, _ = await server.client("ann", "admin"), await server.client("eve", "member")
    await ann.post(f"{PEOPLE}/eve/disable")
    worker = UserChanges(server.state)
    await tried(worker, 0.0)
    await tried(worker, AGAIN_S)
    assert (await ann.get(f"{PEOPLE}/eve")).json()["changes_due"] == {"lab": "lab-head2 does not run"}
    server.backend.answers["lock_user"] = UserLockResult()
    await tried(worker, 10 * AGAIN_S)
    found = [(result, detail["job_ids"]) for _, _, result, detail in await lines(server, "user.lock")]
    assert found == [("failed", [3, 4]), ("failed", [3, 4]), ("ok", [])]


async def test_cluster_that_does_not_answer_delays_no_other(server: Server) -> None:
    answers = asyncio.Event()

    async def of_other() -> UserLockResult:
        await answers.wait()
        return UserLockResult()

    server.backend.answers["lock_user"] = lambda cluster, _: of_other() if cluster.name == "other" else UserLockResult()
    ann, _ = await server.client("ann", "admin"), await server.client("bob", "member")
    await ann.post(f"{PEOPLE}/bob/disable")
    worker = UserChanges(server.state)
    tasks = await worker.start_due(0.0)
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await server.client("eve", "member")
    await ann.post(f"{PEOPLE}/eve/disable")
    await tried(worker, 1.0)
    assert [(row.cluster, row.user) for row in await server.store.user_changes.due()] == [("other", "bob")]
    assert await worker.start_due(100.0) == [], "a try that still runs is not started again"
    answers.set()
    await asyncio.gather(*tasks)
    assert await server.store.user_changes.due() == ()


async def test_teams_of_the_provider_reach_each_cluster_that_they_name(server: Server) -> None:
    server.backend.answers["update_users"] = lambda cluster, users: {
        user: UserUpdateResult((f"{user}: joins team red",) * (cluster.name == "lab")) for user in users
    }
    await server.client("bob", "member")
    await server.store.people.set_provider_teams("bob", ["red"])
    worker = UserChanges(server.state)
    await tried(worker, 0.0)
    assert sorted((cluster.name, users) for cluster, users in server.backend.named("update_users")) == [
        ("lab", ("bob",)), ("other", ("bob",)),
    ]  # fmt: skip
    done = {"user": "bob", "seconds": 0.0, "changes": ["bob: joins team red"]}
    assert await lines(server, "user.teams") == [("bob", "lab", "ok", done)], "nothing changed on the other cluster"
    await server.store.people.set_provider_teams("bob", ["red", "other/blue"])
    assert [(row.cluster, row.cause) for row in await server.store.user_changes.due()] == [("other", "teams")]
    await tried(worker, AGAIN_S)
    await server.store.people.set_provider_teams("bob", ["other/blue", "red"])
    assert await server.store.user_changes.due() == (), "the same teams in another order are no change"


async def test_teams_are_tried_again_until_the_cluster_answers(server: Server) -> None:
    server.backend.answers["update_users"] = Unreachable("no head of lab runs")
    ann, _ = await server.client("ann", "admin"), await server.client("eve", "member")
    await server.store.people.set_provider_teams("eve", ["lab/red"])
    worker = UserChanges(server.state)
    for now in (0.0, 1.0, AGAIN_S):
        await tried(worker, now)
    assert len(server.backend.named("update_users")) == 2
    assert (await ann.get(f"{PEOPLE}/eve")).json()["changes_due"] == {"lab": "no head of lab runs"}
    server.backend.answers["update_users"] = UserUpdateResult()
    await tried(UserChanges(server.state), 0.0)
    assert await server.store.user_changes.due() == ()
    assert [line[2] for line in await lines(server, "user.teams")] == ["failed", "ok"]


async def test_another_linux_user_takes_the_teams_of_the_person(server: Server) -> None:
    ann, _ = await server.client("ann", "admin"), await server.client("eve", "member")
    await server.store.people.set_provider_teams("eve", ["lab/red"])
    await tried(UserChanges(server.state), 0.0)
    await ann.put(f"{PEOPLE}/eve", json={"role": "member", "user": "eva"})
    due = await server.store.user_changes.due()
    assert [(row.cluster, row.user, row.cause, row.person) for row in due] == [
        ("lab", "eva", "teams", "ann"), ("lab", "eve", "teams", "ann"),
    ]  # fmt: skip


async def test_users_who_come_while_others_are_changed_are_changed_together_after_them(server: Server) -> None:
    """Rules of machines name all users: two texts that are written at the same time would leave out users."""
    ends, began = asyncio.Event(), asyncio.Event()

    async def slowly(cluster: Any, users: tuple[str, ...]) -> dict[str, UserUpdateResult]:
        began.set()
        await ends.wait()
        return {user: UserUpdateResult(fault="no space left" if user == "eve" else "") for user in users}

    server.backend.answers["update_users"] = slowly
    worker = UserChanges(server.state)
    await server.client("ann", "member")
    await server.store.people.set_provider_teams("ann", ["lab/red"])
    (first,) = await worker.start_due(0.0)
    await began.wait()
    for user in ("bob", "eve"):
        await server.client(user, "member")
        await server.store.people.set_provider_teams(user, ["lab/red"])
    assert await worker.start_due(1.0) == []
    ends.set()
    await first
    await tried(worker, 2.0)
    assert [users for _, users in server.backend.named("update_users")] == [("ann",), ("bob", "eve")]
    (row,) = await server.store.user_changes.due()
    assert (row.user, row.error) == ("eve", "no space left"), "a fault of one user is not that of the others"


async def test_user_is_locked_after_the_update_that_runs(server: Server) -> None:
    """The update would open the account again."""
    ends, began = asyncio.Event(), asyncio.Event()

    async def slowly(cluster: Any, users: tuple[str, ...]) -> dict[str, UserUpdateResult]:
        began.set()
        await ends.wait()
        return dict.fromkeys(users, UserUpdateResult())

    clock = server.state.clock
    assert isinstance(clock, builders.Clock)
    server.backend.answers["update_users"] = slowly
    worker = UserChanges(server.state)
    ann, _ = await server.client("ann", "admin"), await server.client("eve", "member")
    await server.store.people.set_provider_teams("eve", ["lab/red"])
    (first,) = await worker.start_due(0.0)
    await began.wait()
    clock.now += 1.0
    await ann.post(f"{PEOPLE}/eve/disable")
    assert await worker.start_due(1.0) == []
    ends.set()
    await first
    await tried(worker, 2.0)
    assert locked(server) == [("lab", "eve")]
