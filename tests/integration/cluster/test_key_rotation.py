"""During a key rotation the new key is accepted before the old one is removed, a failure leaves a working key
everywhere, and a killed rotation continues with the same key."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest

from headway.changes.cluster_changes import DesiredState
from headway.changes.desired_accounts import desired_accounts
from headway.changes.machine_changes import DesiredMachine
from headway.cluster import remote_steps
from headway.cluster.changeset_execution import ChangeSetExecution
from headway.cluster.context import ClusterContext
from headway.cluster.keys import munge_key, secrets
from headway.cluster.keys import rotation as module
from headway.cluster.keys.rotation import rotate_key
from headway.domain.changeset import Change, ChangeSet, Disturbs
from headway.domain.cluster import Cluster, KeySource
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.machines.managed_file import File
from headway.domain.machines.observed_state import Observed, ObservedFile, ObservedMachine, ObservedUnit
from headway.errors import Refused, Unreachable
from headway.render.system.agent_config import AGENT
from headway.render.system.unit_list import MUNGE_KEY
from headway.store.store import Store
from ops.files import STAMPS
from tests.support.clusters import builders

LAB = builders.cluster(1)


class Fleet:
    """Two machines: as a provider that lets keys in, and as Connections. A connection needs a key that is let in."""

    def __init__(self) -> None:
        self.admitted: dict[str, str] = {}
        self.key = ""
        self.log: list[str] = []
        self.down: Exception | None = None
        self.off = False  # the node

    async def list(self, _: str) -> tuple[Machine, ...]:
        node = builders.machine("lab-1-1")
        return (builders.machine("lab-head"), replace(node, state=MachineState.STOPPED) if self.off else node)

    async def admit(self, machine: Machine, authorized_keys: str) -> None:
        self.admitted[machine.name] = authorized_keys
        self.log.append(f"{machine.name} {len(authorized_keys.splitlines())}")

    def use_key(self, key: str) -> None:
        self.key = secrets.public_key(key)

    async def drop(self, name: str) -> None:
        self.log.append(f"drop {name}")

    async def wait_ready(self, machine: Machine, *, timeout_s: float) -> None:
        assert timeout_s > 0
        assert not (self.off and machine.name == "lab-1-1")
        if self.down:
            raise self.down
        assert self.key.split()[1] in self.admitted[machine.name]


async def report(*_: Any, **__: Any) -> None: ...


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    made = await builders.store(tmp_path)
    yield made
    await made.close()


def context(fleet: Fleet, store: Store) -> ClusterContext:
    return cast(ClusterContext, ClusterContext(cast(Any, fleet), store, cast(Any, fleet), Path("/nowhere")))


async def begins() -> None: ...


async def test_ssh_rotation_admits_the_new_key_before_removing_the_old_one(store: Store) -> None:
    fleet = Fleet()
    old = secrets.new_key()
    await store.secrets.put_if_absent("lab", "bootstrap_key", old)
    await rotate_key(LAB, context(fleet, store), report, "ssh", "r1", begins)
    new = (await store.secrets.of_cluster("lab"))["bootstrap_key"]
    assert new != old
    assert fleet.log == ["lab-head 2", "lab-1-1 2", "drop lab-head", "drop lab-1-1", "lab-head 1", "lab-1-1 1"]
    assert all(keys == secrets.public_key(new) for keys in fleet.admitted.values())
    assert set(await store.secrets.of_cluster("lab")) == {"bootstrap_key", "rotating/r1"}, (
        "which goes with the operation"
    )


@pytest.mark.parametrize("error", [Unreachable("no answer"), OSError("no space left on device")])
async def test_failed_ssh_rotation_keeps_the_old_key_everywhere(store: Store, error: Exception) -> None:
    fleet = Fleet()
    old = secrets.new_key()
    await store.secrets.put_if_absent("lab", "bootstrap_key", old)
    fleet.down = error
    with pytest.raises(type(error)):
        await rotate_key(LAB, context(fleet, store), report, "ssh", "r1", begins)
    assert (await store.secrets.of_cluster("lab"))["bootstrap_key"] == old
    assert all(keys == secrets.public_key(old) for keys in fleet.admitted.values()), "the new one is let in nowhere"
    assert fleet.key == secrets.public_key(old)


async def test_ssh_rotation_also_updates_stopped_machines(store: Store) -> None:
    fleet = Fleet()
    fleet.off = True
    await store.secrets.put_if_absent("lab", "bootstrap_key", secrets.new_key())
    await rotate_key(LAB, context(fleet, store), report, "ssh", "r1", begins)
    new = (await store.secrets.of_cluster("lab"))["bootstrap_key"]
    assert fleet.admitted == dict.fromkeys(("lab-head", "lab-1-1"), secrets.public_key(new))


async def test_interrupted_munge_rotation_continues_with_the_same_key(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []

    async def apply(cluster: Cluster, context: ClusterContext, _: Any, *, new: dict[str, str]) -> None:
        given.append(new["munge_key"])
        if len(given) == 1:
            raise Unreachable("killed")
        await context.store.secrets.set(cluster.name, "munge_key", new["munge_key"])

    waits = Waits()
    monkeypatch.setattr(module, "apply_cluster", apply)
    monkeypatch.setattr(module, "plan_changes", waits.plan)
    begun = 0

    async def begins() -> None:
        nonlocal begun
        begun += 1

    await store.secrets.put_if_absent("lab", "munge_key", "b2xk")
    with pytest.raises(Unreachable):
        await rotate_key(LAB, context(Fleet(), store), report, "munge", "r1", begins)
    assert (await store.secrets.of_cluster("lab"))["munge_key"] == "b2xk", (
        "it is the cluster's once the machines can take it"
    )
    await rotate_key(LAB, context(Fleet(), store), report, "munge", "r1", begins)
    assert given[0] == given[1] != "b2xk"
    assert len(base64.b64decode(given[0])) == 1024
    assert set(await store.secrets.of_cluster("lab")) == {"munge_key", "rotating/r1"}
    await rotate_key(LAB, context(Fleet(), store), report, "munge", "r2", begins)
    assert given[2] != given[1]
    waits.changes = (Change("machine.restart", "lab-1-1", "lab-1-1", "does not answer", Disturbs.JOBS),)
    with pytest.raises(Refused, match=r"lab-1-1: machine\.restart, does not answer"):
        await rotate_key(LAB, context(Fleet(), store), report, "munge", "r3", begins)
    assert (len(given), begun) == (3, 3), "what was refused did not begin"
    assert (await store.secrets.of_cluster("lab"))["munge_key"] == given[2]
    await rotate_key(LAB, context(Fleet(), store), report, "munge", "r2", begins)
    assert len(given) == 4, "one that was killed half-way goes on: what it itself still has to do asks nobody anew"


class Waits:
    """What an apply would do now."""

    changes: tuple[Change, ...] = ()

    async def plan(self, cluster: Cluster, _: ClusterContext) -> ChangeSet:
        return ChangeSet(cluster.name, self.changes)


class Machines:
    """A head and two nodes: key, the one that lies beside, and what each was told, in order. As Connections and in place of
    cluster.remote_steps. `full`: takes no file; `stuck`: does not restart munged with the new key; `lost`: answers no more
    once it has it; `unread`: the head's munged has not been restarted since its file changed; `killed`: Headway ends
    there."""

    def __init__(self, **keys: bytes) -> None:
        self.key = {f"lab-{name}": key for name, key in keys.items()}
        self.beside: dict[str, bytes] = {}
        self.marked: set[str] = set()
        self.order: list[str] = []
        self.full = self.stuck = self.lost = self.killed = ""
        self.unread = False

    async def perform(self, _: Any, machine: Machine, steps: list[dict[str, Any]], **__: Any) -> None:
        name = machine.name
        for step in steps:
            if name == self.lost and self.key[name] == b"new":
                raise Unreachable(f"{name} does not answer")
            match step["op"], step.get("path"):
                case "file", munge_key.MARK:
                    assert step["mode"] == 0o644
                    self.marked.add(name)
                case "file", path if path == MUNGE_KEY:
                    assert (step["owner"], step["mode"]) == ("munge", 0o400)
                    assert name not in self.beside, "what was told before and comes late would bring the new one again"
                    self.key[name] = base64.b64decode(step["b64"])
                    self.order.append(f"{name} back")
                case "file", munge_key.NEXT:
                    assert (step["owner"], step["mode"]) == ("munge", 0o400)
                    if name == self.full:
                        raise remote_steps.RemoteStepFailed(f"{name}: {munge_key.NEXT}: No space left on device")
                    self.beside[name] = base64.b64decode(step["b64"])
                    self.order.append(f"{name} beside")
                case "rename", munge_key.NEXT:
                    self.key[name] = self.beside.pop(name, self.key[name])
                    self.order.append(f"{name} key")
                    if name == self.killed:
                        raise Killed
                case "remove", munge_key.MARK:
                    self.marked.discard(name)
                case "remove", munge_key.STAMP:
                    self.order.append(f"{name} unknown")
                case "remove", munge_key.NEXT:
                    self.beside.pop(name, None)
                case "units", _:
                    assert (step["names"], step["action"]) == (["munge.service"], "restart")
                    if name == self.stuck and self.key[name] == b"new":
                        raise remote_steps.RemoteStepFailed(f"{name}: munge.service would not start")
                case _:
                    raise AssertionError(step)

    def seen(self, name: str) -> ObservedMachine:
        file = ObservedFile(sha256(self.key[name]).hexdigest(), 0o400, "munge", "munge", 1.0)
        munged = ObservedUnit(True, True, 0.5 if self.unread and name == "lab-head" else 2.0, 7, "")
        return ObservedMachine(
            {MUNGE_KEY: file}, {AGENT: ObservedUnit(True, True, 2.0, 7, ""), munge_key.MUNGED: munged}
        )


class Killed(BaseException):
    """The server's process ends."""


async def turned(
    store: Store, monkeypatch: pytest.MonkeyPatch, machines: Machines, new: bytes = b"new", heads: int = 1
) -> tuple[ChangeSetExecution, str]:
    """One key change of an apply; what it raised."""
    monkeypatch.setattr(remote_steps, "run_steps", machines.perform)
    text = base64.b64encode(new).decode()
    names = tuple(machines.key)
    desired = DesiredMachine.build(
        {MUNGE_KEY: File("", 0o400, "munge", "munge", secret="munge_key")},
        secrets.secret_digests({"munge_key": text}),
        (),
    )
    cluster = builders.cluster(len(names) - heads, controllers=heads)
    goal = DesiredState(cluster, {cluster.role_of(name): desired for name in names}, desired_accounts(cluster))
    there = {name: builders.machine(name) for name in names}
    observed = Observed(there, {name: machines.seen(name) for name in names})
    place: Any = None
    kept = await store.secrets.put_if_absent("lab", "munge_key", OLD) == text
    run = ChangeSetExecution(
        goal, context(Fleet(), store), report, place, {"munge_key": text}, observed, ChangeSet("lab", ()),
        new={} if kept else {"munge_key": text},
    )  # fmt: skip

    async def look(name: str) -> ObservedMachine:
        return machines.seen(name)

    monkeypatch.setattr(run, "_observe", look)
    try:
        await run.replace_munge_key()
    except Refused as error:
        return run, f"{error}\n{error.hint}"
    return run, ""


OLD = base64.b64encode(b"old").decode()
NEW = base64.b64encode(b"new").decode()
NODES = {"head": b"old", "1-1": b"old", "1-2": b"old"}


async def test_munge_key_is_staged_on_all_machines_before_any_switches(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = Machines(**NODES)
    run, error = await turned(store, monkeypatch, machines)
    assert error == ""
    assert [row.split()[1] for row in machines.order] == ["beside"] * 3 + ["unknown", "key"] * 3
    assert machines.order[3:5] == ["lab-head unknown", "lab-head key"], "nodes with another key are heard no more"
    assert f"{STAMPS}/{munge_key.MUNGED}" == munge_key.STAMP
    assert set(machines.key.values()) == {b"new"}
    assert (await store.secrets.of_cluster("lab"))["munge_key"] == base64.b64encode(b"new").decode()
    assert run.observed.seen["lab-1-2"].files[MUNGE_KEY].digest == sha256(b"new").hexdigest()


async def test_node_that_cannot_stage_the_munge_key_aborts_the_rotation(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.secrets.put_if_absent("lab", "munge_key", "b2xk")
    machines = Machines(**NODES)
    machines.full = "lab-1-2"
    _, error = await turned(store, monkeypatch, machines)
    assert "1 machine can't install the new MUNGE key, so all machines keep the old one:\n  lab-1-2: " in error
    assert "No space left" in error
    assert set(machines.key.values()) == {b"old"}
    assert machines.beside == {}
    assert (await store.secrets.of_cluster("lab"))["munge_key"] == "b2xk"


async def test_failing_node_stops_no_other_once_the_head_has_the_new_key(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = Machines(**{**NODES, "head": b"new"})
    machines.full = "lab-1-1"
    run, error = await turned(store, monkeypatch, machines)
    assert error == ""
    assert machines.key == {"lab-head": b"new", "lab-1-1": b"old", "lab-1-2": b"new"}
    assert run.observed.seen["lab-1-1"].files[MUNGE_KEY].digest == sha256(b"old").hexdigest(), "the apply says why"


async def test_node_that_fails_after_staging_does_not_stop_the_rotation(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = Machines(**NODES)
    machines.stuck = "lab-1-1"
    _, error = await turned(store, monkeypatch, machines)
    assert error == ""
    assert set(machines.key.values()) == {b"new"}


async def test_head_that_fails_with_the_new_munge_key_is_reverted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.secrets.put_if_absent("lab", "munge_key", OLD)
    machines = Machines(**NODES)
    machines.stuck = "lab-head"
    _, error = await turned(store, monkeypatch, machines)
    assert (
        "1 machine can't install the new MUNGE key, so all machines keep the old one:\n  lab-head: munge.service would"
        in error
    )
    assert machines.order[3:] == ["lab-head unknown", "lab-head key", "lab-head unknown", "lab-head back"]
    assert set(machines.key.values()) == {b"old"}
    assert (machines.beside, machines.marked) == ({}, set())
    assert (await store.secrets.of_cluster("lab"))["munge_key"] == OLD


async def test_head_lost_during_the_key_change_blocks_nodes_until_the_next_apply(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.secrets.put_if_absent("lab", "munge_key", OLD)
    machines = Machines(**NODES)
    machines.lost = "lab-head"
    _, error = await turned(store, monkeypatch, machines)
    assert "lab-head may have the new key" in error
    assert machines.key == {"lab-head": b"new", "lab-1-1": b"old", "lab-1-2": b"old"}
    assert machines.beside == {}
    assert machines.marked == {"lab-head", "lab-1-1", "lab-1-2"}, "its nodes keep their leases meanwhile"
    assert (await store.secrets.of_cluster("lab"))["munge_key"] == OLD
    machines.lost = ""
    _, error = await turned(store, monkeypatch, machines, b"old")
    assert error == "", "the next apply takes it back"
    assert set(machines.key.values()) == {b"old"}


async def test_late_rename_on_a_stalled_head_does_not_restore_the_new_key(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stalls(Machines):
        late: tuple[Machine, list[dict[str, Any]]] | None = None

        async def perform(self, _: Any, machine: Machine, steps: list[dict[str, Any]], **__: Any) -> None:
            if self.late is None and any(step["op"] == "rename" for step in steps):
                self.late = machine, steps
                raise Unreachable(f"{machine.name}: no end after 60 s")
            await super().perform(_, machine, steps)

    machines = Stalls(**NODES)
    _, error = await turned(store, monkeypatch, machines)
    assert "all machines keep the old one:\n  lab-head: no end" in error
    assert machines.late
    await machines.perform(None, *machines.late)
    assert set(machines.key.values()) == {b"old"}


async def test_two_heads_switch_munge_keys_together_or_not_at_all(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.secrets.put_if_absent("lab", "munge_key", OLD)
    machines = Machines(**{"head": b"old", "head2": b"old", "1-1": b"old", "1-2": b"old"})
    machines.stuck = "lab-head2"
    _, error = await turned(store, monkeypatch, machines, heads=2)
    assert "so all machines keep the old one:\n  lab-head2: " in error
    assert set(machines.key.values()) == {b"old"}
    await store.secrets.set("lab", "munge_key", NEW)
    machines.key["lab-head"] = b"new"
    _, error = await turned(store, monkeypatch, machines, heads=2)
    assert error == "", "the cluster has that key already: the others follow the head"
    assert machines.key["lab-1-1"] == b"new"


async def test_head_that_cannot_take_the_cluster_key_blocks_its_nodes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.secrets.put_if_absent("lab", "munge_key", NEW)
    machines = Machines(**{**NODES, "1-2": b"new"})
    machines.full = "lab-head"
    _, error = await turned(store, monkeypatch, machines)
    assert "lab-head: " in error
    assert "so no node got it" in error
    assert machines.key == {"lab-head": b"old", "lab-1-1": b"old", "lab-1-2": b"new"}
    assert machines.beside == {}


async def test_key_change_interrupted_on_the_head_can_continue(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.secrets.put_if_absent("lab", "munge_key", OLD)
    machines = Machines(**NODES)
    machines.killed = "lab-head"
    with pytest.raises(Killed):
        await turned(store, monkeypatch, machines)
    assert (await store.secrets.of_cluster("lab"))["munge_key"] == OLD, "a machine that comes up now is heard"
    assert {machines.key[name] for name in ("lab-1-1", "lab-1-2")} == {b"old"}
    machines.killed, machines.unread, machines.stuck = "", True, "lab-head"
    _, error = await turned(store, monkeypatch, machines)
    assert "all machines keep the old one" in error, (
        "its munged had not read the new file yet, and then does not take it"
    )
    assert set(machines.key.values()) == {b"old"}
    machines.key["lab-head"], machines.stuck, machines.full = b"new", "", "lab-1-1"
    _, error = await turned(store, monkeypatch, machines)
    assert error == "", "the head has it: no way back"
    assert machines.key == {"lab-head": b"new", "lab-1-1": b"old", "lab-1-2": b"new"}
    assert (await store.secrets.of_cluster("lab"))["munge_key"] == NEW


async def test_key_change_interrupted_on_nodes_keeps_the_new_cluster_key(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.secrets.put_if_absent("lab", "munge_key", OLD)
    machines = Machines(**NODES)
    machines.killed = "lab-1-1"
    with pytest.raises(Killed):
        await turned(store, monkeypatch, machines)
    assert (await store.secrets.of_cluster("lab"))["munge_key"] == NEW
    assert machines.key["lab-head"] == b"new"


async def test_machines_with_the_new_munge_key_are_left_unchanged(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = Machines(**dict.fromkeys(NODES, b"new"))
    await turned(store, monkeypatch, machines)
    assert machines.order == []
    assert (await store.secrets.of_cluster("lab"))["munge_key"] == base64.b64encode(b"new").decode()


async def test_munge_key_is_read_from_a_file_or_an_allowed_command(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "munge.key"
    file.write_bytes(bytes(range(128)))
    cluster = replace(LAB, munge_key=KeySource(str(file)))
    outside = await secrets.read_given_secrets(cluster)
    assert secrets.secret_content(outside, "munge_key") == bytes(range(128))
    have = await secrets.ensure_secrets(store, cluster, ("lab-head",), outside)
    assert have["munge_key"] == outside["munge_key"]
    assert await store.secrets.of_cluster("lab") == have
    later = await secrets.ensure_secrets(store, cluster, ("lab-head",), {"munge_key": "b2xk"})
    assert later == have, "machines that work have this one, until they have taken the other"
    file.write_bytes(b"short")
    with pytest.raises(Refused, match="gives 5 bytes"):
        await secrets.read_given_secrets(cluster)

    monkeypatch.setattr(secrets, "COMMANDS", tmp_path)
    program = tmp_path / "vault-munge"
    program.write_text('#!/bin/sh\nhead -c 64 /dev/zero | tr "\\0" "$1"; echo\n')
    program.chmod(0o755)
    told = await secrets.read_given_secrets(replace(LAB, munge_key=KeySource(command=("vault-munge", "k"))))
    assert secrets.secret_content(told, "munge_key") == b"k" * 64
    for name in ("other", "/bin/cat", "../x", ".hidden"):
        with pytest.raises(Refused, match="does not exist"):
            await secrets.read_given_secrets(replace(LAB, munge_key=KeySource(command=(name, "k"))))
    assert await secrets.read_given_secrets(LAB) == {}
