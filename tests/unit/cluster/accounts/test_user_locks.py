"""A lock refuses new jobs before it cancels the present ones, does all it can when a part fails, and names what is not done."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from headway.cluster.accounts import user_locks
from headway.cluster.context import ClusterContext
from headway.domain.access.user_change_results import UserLockResult
from headway.domain.cluster import Host
from headway.domain.machines.machine import Machine
from headway.domain.teams import Team, User
from headway.errors import CommandFailed, Unreachable
from headway.transport.process import CommandResult
from tests.support.clusters import builders

LAB = builders.cluster(
    1, teams=(Team("red", ("ann", "bob"), 1),), users=(User("ann", (), ("red",)), User("bob", (), ("red",)))
)
_SHOWN = {
    "assoc": "red||root|1|red|red||||||\nred|ann|||red|red|{limit}|||||\nred|bob|||red|red||||||\n",
    "user": "ann|None|red\nbob|None|red\n",
    "qos": "red|NoDecay||00:00:00|cluster|0|1.000000|||||||||\n",
}


class Cluster:
    """Machines that know the commands of a lock and no others. `done` is what they did, in order."""

    def __init__(
        self, *, limit: str = "", heads: Sequence[str] = ("lab-head",), queue: Sequence[str] = ("7\n9\n", "")
    ) -> None:
        self.limit, self.heads, self.queue = limit, heads, list(queue)
        self.done: list[str] = []
        self.broken = ""  # the program that fails

    async def list(self, cluster: str) -> tuple[Machine, ...]:
        return tuple(builders.machine(name) for name in self.heads)

    async def remote(self, machine: Machine, argv: Sequence[str], *, check: bool = True, **more: Any) -> CommandResult:
        name, out = argv[0], ""
        if name == self.broken:
            raise CommandFailed(argv, 1, f"{name} is broken", where=machine.name)
        match name:
            case "sacctmgr" if argv[1] == "-i":
                self.done.append(" ".join(argv[2:]))
            case "sacctmgr":
                kind = next(word for word in argv if word in _SHOWN)
                out = _SHOWN[kind].format(limit=self.limit)
            case "sacct":
                pass
            case "squeue":
                out = "" if "%u|%a" in argv else self.queue.pop(0) if len(self.queue) > 1 else self.queue[0]
            case "scancel":
                self.done.append(" ".join(argv))
            case "python3":
                steps = json.loads(more["input"][more["input"].rindex(b'{"do"') :])["steps"]
                self.done += [f"{machine.name} {step['op']} {step['user']}" for step in steps]
                out = "".join(json.dumps({"i": number, "ok": True}) + "\n" for number, _ in enumerate(steps))
            case _:
                raise AssertionError(f"unexpected: {argv}")
        return CommandResult(tuple(argv), 0, out, "", 0.0)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_locks, "_LOOK_S", 0.0)


def context(cluster: Cluster) -> ClusterContext:
    return ClusterContext(cast(Any, cluster), cast(Any, None), cast(Any, cluster), Path("/none"))


async def test_new_jobs_are_refused_first_then_sessions_then_the_jobs_end() -> None:
    lab = Cluster()
    assert await user_locks.lock_user(LAB, context(lab), "ann") == UserLockResult((7, 9))
    assert lab.done == [
        "modify user where name=ann account=red set maxsubmitjobs=0",
        "lab-head lock_user ann",
        "scancel --cron --user=ann",
    ]


async def test_lock_that_is_done_changes_nothing() -> None:
    lab = Cluster(limit="0", queue=[""])
    assert await user_locks.lock_user(LAB, context(lab), "ann") == UserLockResult()
    assert lab.done == ["lab-head lock_user ann"]


@pytest.mark.parametrize(("broken", "others"), [("sacctmgr", 2), ("scancel", 2), ("python3", 2), ("squeue", 2)])
async def test_the_rest_is_done_when_a_part_fails(broken: str, others: int) -> None:
    lab = Cluster()
    lab.broken = broken
    assert (await user_locks.lock_user(LAB, context(lab), "ann")).fault
    assert len(lab.done) == others


async def test_head_that_does_not_run_is_named_and_the_other_is_locked() -> None:
    two = builders.cluster(1, teams=LAB.teams, users=LAB.users, controllers=2)
    lab = Cluster(heads=[two.heads[0]])
    found = await user_locks.lock_user(two, context(lab), "ann")
    assert found == UserLockResult((7, 9), f"{two.heads[1]} does not run")
    assert f"{two.heads[0]} lock_user ann" in lab.done


async def test_cluster_without_a_head_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="no head of"):
        await user_locks.lock_user(LAB, context(Cluster(heads=[])), "ann")


async def test_jobs_that_do_not_end_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_locks, "JOBS_END_S", -1.0)
    found = await user_locks.lock_user(LAB, context(Cluster(queue=["7\n"])), "ann")
    assert found == UserLockResult((7,), "1 jobs of ann are not cancelled yet: 7")


async def test_headway_does_not_lock_the_user_that_it_signs_in_as() -> None:
    owned = builders.cluster(1, teams=LAB.teams, users=LAB.users, hosts=(Host("lab-head", "10.0.0.9", user="ann"),))
    lab = Cluster()
    await user_locks.lock_user(owned, context(lab), "ann")
    assert lab.done == ["modify user where name=ann account=red set maxsubmitjobs=0", "scancel --cron --user=ann"]
