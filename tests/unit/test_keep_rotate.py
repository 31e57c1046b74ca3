"""Keys that change: which one is let in when, and keys that come from elsewhere."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from headway.cluster import secrets
from headway.cluster.env import Env
from headway.domain.cluster import Cluster, KeySource
from headway.domain.machine import Machine, MachineState
from headway.errors import Refused, Unreachable
from headway.keep import rotate as module
from headway.keep.rotate import rotate
from headway.store.store import Store, open_store
from tests import builders

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
        self.key = secrets.public_of(key)

    async def drop(self, name: str) -> None:
        self.log.append(f"drop {name}")

    async def wait_ready(self, machine: Machine, *, timeout_s: float) -> None:
        assert timeout_s > 0
        assert not (self.off and machine.name == "lab-1-1")
        if self.down:
            raise self.down
        assert self.key.split()[1] in self.admitted[machine.name]


async def say(*_: Any, **__: Any) -> None: ...


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    made = await open_store(tmp_path)
    yield made
    await made.close()


def env(fleet: Fleet, store: Store) -> Env:
    return cast(Env, Env(cast(Any, fleet), store, cast(Any, fleet), Path("/nowhere")))


async def test_the_new_key_is_let_in_before_the_old_one_goes(store: Store) -> None:
    fleet = Fleet()
    old = secrets.new_key()
    await store.put_secret("lab", "bootstrap_key", old)
    await rotate(LAB, env(fleet, store), say, "ssh", "r1")
    new = (await store.secrets("lab"))["bootstrap_key"]
    assert new != old
    assert fleet.log == ["lab-head 2", "lab-1-1 2", "drop lab-head", "drop lab-1-1", "lab-head 1", "lab-1-1 1"]
    assert all(keys == secrets.public_of(new) for keys in fleet.admitted.values())
    assert set(await store.secrets("lab")) == {"bootstrap_key", "rotating/r1"}, "which goes with the operation"


@pytest.mark.parametrize("error", [Unreachable("no answer"), OSError("no space left on device")])
async def test_a_machine_that_does_not_take_the_new_key_keeps_the_old_one(store: Store, error: Exception) -> None:
    fleet = Fleet()
    old = secrets.new_key()
    await store.put_secret("lab", "bootstrap_key", old)
    fleet.down = error
    with pytest.raises(type(error)):
        await rotate(LAB, env(fleet, store), say, "ssh", "r1")
    assert (await store.secrets("lab"))["bootstrap_key"] == old
    assert all(keys == secrets.public_of(old) for keys in fleet.admitted.values()), "the new one is let in nowhere"
    assert fleet.key == secrets.public_of(old)


async def test_a_machine_that_is_off_gets_the_new_key_too(store: Store) -> None:
    fleet = Fleet()
    fleet.off = True
    await store.put_secret("lab", "bootstrap_key", secrets.new_key())
    await rotate(LAB, env(fleet, store), say, "ssh", "r1")
    new = (await store.secrets("lab"))["bootstrap_key"]
    assert fleet.admitted == dict.fromkeys(("lab-head", "lab-1-1"), secrets.public_of(new))


async def test_a_rotation_that_was_killed_goes_on_with_the_same_key(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[str] = []

    async def apply(cluster: Cluster, env: Env, _: Any) -> None:
        keys.append((await env.store.secrets(cluster.name))["munge_key"])
        if len(keys) == 1:
            raise Unreachable("killed")

    monkeypatch.setattr(module, "apply", apply)
    await store.put_secret("lab", "munge_key", "b2xk")
    with pytest.raises(Unreachable):
        await rotate(LAB, env(Fleet(), store), say, "munge", "r1")
    await rotate(LAB, env(Fleet(), store), say, "munge", "r1")
    assert keys[0] == keys[1] != "b2xk"
    assert len(base64.b64decode(keys[0])) == 1024
    assert set(await store.secrets("lab")) == {"munge_key", "rotating/r1"}
    await rotate(LAB, env(Fleet(), store), say, "munge", "r2")
    assert keys[2] != keys[1]


async def test_a_munge_key_from_a_file_or_a_command(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "munge.key"
    file.write_bytes(bytes(range(128)))
    cluster = replace(LAB, munge_key=KeySource(str(file)))
    await store.put_secret("lab", "munge_key", "b2xk")
    have = await secrets.ensure(store, cluster, ("lab-head",))
    assert secrets.content(have, "munge_key") == bytes(range(128))
    assert await store.secrets("lab") == have
    file.write_bytes(b"short")
    with pytest.raises(Refused, match="gives 5 bytes"):
        await secrets.given(cluster)

    monkeypatch.setattr(secrets, "COMMANDS", tmp_path)
    program = tmp_path / "vault-munge"
    program.write_text('#!/bin/sh\nhead -c 64 /dev/zero | tr "\\0" "$1"; echo\n')
    program.chmod(0o755)
    told = await secrets.given(replace(LAB, munge_key=KeySource(command=("vault-munge", "k"))))
    assert secrets.content(told, "munge_key") == b"k" * 64
    for name in ("other", "/bin/cat", "../x", ".hidden"):
        with pytest.raises(Refused, match="there is no"):
            await secrets.given(replace(LAB, munge_key=KeySource(command=(name, "k"))))
    assert await secrets.given(LAB) == {}
