"""The SSH users that Headway signs in as on owned machines get their authorized keys outside of /home."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headway.catalog.providers import SSH
from headway.cluster.desired_state import read_site
from headway.cluster.keys import secrets
from headway.domain.cluster import Cluster, Host
from headway.domain.machines.site import Site
from headway.providers.ssh.provider import SshProvider
from headway.render.system.login import sshd
from headway.render.system.login.users import KEYS, people
from tests.support.clusters import builders

LAB = builders.cluster(nodes=2, spares=0, provider=SSH)
PERSON = LAB.users[0]


class Secrets:
    def __init__(self, key: str) -> None:
        self.key = key

    async def get(self, _: str, name: str) -> str | None:
        assert name == "bootstrap_key"
        return self.key or None

    async def of_cluster(self, _: str) -> dict[str, str]:
        return {"bootstrap_key": self.key} if self.key else {}


class LinuxUids:
    def __init__(self, gone: Sequence[str]) -> None:
        self.gone = set(gone)

    async def of_cluster(self, _: str) -> set[str]:
        return self.gone

    async def assign_uids(self, names: Sequence[str], **_: Any) -> dict[str, int]:
        return {name: 20000 + n for n, name in enumerate(names)}


class FakeStore:
    """The parts of the store that a site reads."""

    def __init__(self, key: str = "", gone: Sequence[str] = ()) -> None:
        self.secrets, self.linux_uids = Secrets(key), LinuxUids(gone)


def key_file(folder: Path, name: str) -> tuple[str, str]:
    """Its path, and its public half."""
    private = secrets.new_key()
    path = folder / name
    path.write_text(private)
    path.chmod(0o600)
    return str(path), " ".join(secrets.public_key(private).split()[:2])


async def site(folder: Path, hosts: Sequence[tuple[str, str]], store: FakeStore) -> tuple[Cluster, Site]:
    """`hosts`: (user, path of the key) of the head and two nodes."""
    names = (LAB.head, *LAB.slot_names)
    rows = tuple(
        Host(name, f"127.0.0.{n}", user=user, key=key)
        for n, (name, (user, key)) in enumerate(zip(names, hosts, strict=True), 1)
    )
    cluster = replace(LAB, hosts=rows)
    provider = SshProvider(folder, rows)
    context = cast(Any, SimpleNamespace(provider=provider, store=store))
    return cluster, await read_site(cluster, context, await provider.place(cluster))


def keys_of(cluster: Cluster, at: Site, user: str) -> list[str]:
    file = people(cluster, at).get(f"{KEYS}/{user}")
    return file.text.splitlines()[1:] if file else []


async def test_all_keys_of_an_ssh_user_are_authorized(tmp_path: Path) -> None:
    (one, first), (two, second) = key_file(tmp_path, "a"), key_file(tmp_path, "b")
    missing = str(tmp_path / "none")
    made = await site(tmp_path, [("ops", one), ("ops", two), ("ops", missing)], FakeStore(secrets.new_key()))
    assert sorted(keys_of(*made, "ops")) == sorted([first, second])


@pytest.mark.parametrize("made", [False, True])
async def test_ssh_user_without_a_key_uses_the_cluster_key(tmp_path: Path, made: bool) -> None:
    own = secrets.new_key()
    cluster, at = await site(tmp_path, [("root", ""), ("ops", ""), ("ops", "")], FakeStore(own if made else ""))
    lines = [" ".join(line.split()[:2]) for line in keys_of(cluster, at, "ops")]
    assert lines == ([" ".join(secrets.public_key(own).split()[:2])] if made else [])
    assert sshd.operators(at) == ("ops",)
    assert keys_of(cluster, at, "root") == [], "its home is its own"


async def test_cluster_user_may_also_be_the_ssh_user_of_headway(tmp_path: Path) -> None:
    path, public = key_file(tmp_path, "a")
    user = replace(PERSON, ssh_keys=("ssh-ed25519 AAAAmine laptop",))
    cluster, at = await site(tmp_path, [(user.name, path)] * 3, FakeStore())
    cluster = replace(cluster, users=(user, *cluster.users[1:]))
    assert keys_of(cluster, at, user.name) == ["ssh-ed25519 AAAAmine laptop", public]


async def test_departed_user_that_headway_signs_in_as_keeps_access(tmp_path: Path) -> None:
    path, public = key_file(tmp_path, "a")
    cluster, at = await site(tmp_path, [("ops", path)] * 3, FakeStore(gone=("ops", "bob")))
    assert keys_of(cluster, at, "ops") == [public]
    assert [line for line in sshd.sshd_conf(at).splitlines() if line.startswith("DenyUsers")] == ["DenyUsers bob"]
