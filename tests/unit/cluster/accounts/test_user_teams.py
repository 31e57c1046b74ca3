"""A user gets an account on the machines before Slurm accepts their jobs, and loses Slurm's accounts before the sign-in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from headway.cluster.accounts import user_teams
from headway.cluster.context import ClusterContext
from headway.domain.access.user_change_results import UserUpdateResult
from headway.domain.machines.machine import Machine
from headway.domain.teams import Team, User
from headway.errors import CommandFailed, Unreachable
from headway.providers.base import Placement
from headway.transport.process import CommandResult
from tests.support.clusters import builders

LAB = builders.cluster(
    1,
    teams=(Team("red", ("ann", "zoe"), 1),),
    users=(User("ann", ("key of ann",), ("red",)), User("zoe", (), ("red",))),
)
_SHOWN = {
    "assoc": "red||root|1|red|red||||||\nred|ann|||red|red|{limit}|||||\nred|bob|||red|red||||||\n",
    "user": "ann|None|red\nbob|None|red\n",
    "qos": "red|NoDecay||00:00:00|cluster|0|1.000000|||||||||\n",
}
_FACTS: dict[str, Any] = {  # of a machine without rules
    "files": {}, "units": {}, "managed": [], "dirs": [], "missing": [], "parts": "", "hostname": "", "sessions": [],
    "quotas": {}, "texts": {},
}  # fmt: skip


class Uids:
    """Stands in for store.linux_uids."""

    def __init__(self) -> None:
        self.users = {"ann": 20000, "bob": 20001}
        self.of_lab = {"ann", "bob"}

    async def known_uids(self, names: Sequence[str]) -> dict[str, int]:
        return {name: self.users[name] for name in names if name in self.users}

    async def assign_uids(
        self, names: Sequence[str], *, give: bool = True, wishes: dict[str, int] | None = None
    ) -> dict[str, int]:
        self.users |= {name: self.users.get(name, 20002) for name in names}
        return await self.known_uids(names)

    async def add_to_cluster(self, cluster: str, names: Sequence[str]) -> None:
        self.of_lab |= set(names)

    async def of_cluster(self, cluster: str) -> set[str]:
        return self.of_lab


class Secrets:
    """Stands in for store.secrets."""

    async def of_cluster(self, cluster: str) -> dict[str, str]:
        return {}


class Cluster:
    """Machines that know the commands of a change of teams and no others. `done` is what they did, in order."""

    def __init__(self, *, limit: str = "", machines: Sequence[str] = ("lab-head", "lab-1-1"), broken: str = "") -> None:
        self.limit, self.machines, self.broken = limit, machines, broken
        self.linux_uids, self.secrets = Uids(), Secrets()
        self.done: list[str] = []
        self.calls: list[str] = []  # machines that got steps
        self.written: dict[str, dict[str, Any]] = {}  # machine and step -> the step

    async def list(self, cluster: str) -> tuple[Machine, ...]:
        return tuple(builders.machine(name) for name in self.machines)

    async def find(self, cluster: Any) -> Placement:
        site = builders.site(LAB)
        return Placement(site.subnet, site.gateway, dict(site.addresses), 8, 16000, 0, 0)

    async def remote(self, machine: Machine, argv: Sequence[str], *, check: bool = True, **more: Any) -> CommandResult:
        name, out = argv[0], ""
        match name:
            case "sacctmgr" if argv[1] == "-i":
                self.done.append(" ".join(argv[2:]))
            case "sacctmgr":
                out = _SHOWN[next(word for word in argv if word in _SHOWN)].format(limit=self.limit)
            case "squeue" if "%u|%a" in argv:
                pass
            case "sacct":
                pass
            case "python3":
                if machine.name == self.broken:
                    raise CommandFailed(argv, 1, "no space left", where=machine.name)
                request = json.loads(more["input"][more["input"].rindex(b'{"do"') :])
                if request["do"] == "observe":
                    return CommandResult(tuple(argv), 0, json.dumps(_FACTS), "", 0.0)
                steps = request["steps"]
                self.calls = sorted([*self.calls, machine.name])
                self.done += [f"{machine.name} {step['op']}" for step in steps]
                self.written |= {f"{machine.name} {step['op']}": step for step in steps}
                out = "".join(json.dumps({"i": number, "ok": True}) + "\n" for number, _ in enumerate(steps))
            case _:
                raise AssertionError(f"unexpected: {argv}")
        return CommandResult(tuple(argv), 0, out, "", 0.0)


async def update(lab: Cluster, *users: str) -> dict[str, UserUpdateResult]:
    context = ClusterContext(cast(Any, lab), cast(Any, lab), cast(Any, lab), Path("/none"))
    return await user_teams.update_users(LAB, context, users)


async def test_new_user_has_an_account_everywhere_before_slurm_accepts_their_jobs() -> None:
    lab = Cluster()
    assert await update(lab, "zoe") == {"zoe": UserUpdateResult(("zoe: joins team red",))}
    assert sorted(lab.done[:-1]) == sorted([
        "lab-head add_user", "lab-head file", "lab-head dir", "lab-head home", "lab-head managed",
        "lab-1-1 add_user", "lab-1-1 file", "lab-1-1 managed",
    ])  # fmt: skip
    assert lab.done[-1] == "add user zoe account=red"
    assert lab.written["lab-1-1 add_user"] == {"op": "add_user", "user": "zoe", "uid": 20002, "home": "/home/zoe"}
    assert lab.written["lab-1-1 managed"]["add"] == ["/etc/ssh/headway_keys/zoe"]
    assert lab.written["lab-head dir"]["path"] == "/scratch/zoe"
    assert "zoe" in lab.linux_uids.of_lab


async def test_user_who_returns_may_sign_in_and_submit() -> None:
    lab = Cluster(limit="0")
    assert (await update(lab, "ann"))["ann"].changes == ("ann: may submit in team red again",)
    assert lab.written["lab-head add_user"]["uid"] == 20000
    assert lab.done[-1] == "modify user where name=ann account=red set maxsubmitjobs=-1"


async def test_user_who_left_loses_the_account_in_slurm_and_the_sign_in() -> None:
    lab = Cluster()
    (change,) = (await update(lab, "bob"))["bob"].changes
    assert change.startswith("bob: is no longer in the cluster file")
    assert lab.done == ["delete user where name=bob", "lab-head lock_user"]


async def test_several_users_take_one_call_to_each_machine() -> None:
    lab = Cluster()
    found = await update(lab, "ann", "bob", "zoe")
    assert {user: result.fault for user, result in found.items()} == {"ann": "", "bob": "", "zoe": ""}
    assert lab.calls == ["lab-1-1", "lab-head", "lab-head"], "the second one locks bob"


async def test_user_whom_the_cluster_never_had_changes_nothing() -> None:
    lab = Cluster()
    assert await update(lab, "eve") == {"eve": UserUpdateResult()}
    assert lab.done == []


async def test_node_that_fails_keeps_nobody_else_from_work() -> None:
    lab = Cluster(broken="lab-1-1")
    assert "no space left" in (await update(lab, "zoe"))["zoe"].fault
    assert lab.done[-1] == "add user zoe account=red"


async def test_cluster_without_a_head_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="no head of"):
        await update(Cluster(machines=[]), "ann")
