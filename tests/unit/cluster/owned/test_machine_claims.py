"""Before two heads are claimed, the state folder is checked to be one shared folder that root can write."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.catalog.providers import SSH
from headway.cluster import teardown
from headway.cluster.context import ClusterContext
from headway.cluster.owned import machine_claims
from headway.domain.changeset import Change, ChangeSet
from headway.domain.machines.machine import Machine
from headway.domain.storage.folders import StorageFolders, Volume
from headway.errors import Refused
from headway.transport.process import CommandResult
from tests.support.clusters import builders


class World:
    """Two heads, whose commands run here with each its own folder as the shared one."""

    def __init__(self, folder: Path, *, same: bool = True) -> None:
        self.places = {"lab-head": folder / "one", "lab-head2": folder / ("one" if same else "two")}
        self.state = "/shared/headway"
        self.squashed = False
        self.cluster = replace(builders.cluster(provider=SSH), controllers=2, storage=StorageFolders(state=self.state))
        self.asked: list[str] = []
        both: Any = self
        self.context = ClusterContext(both, both, both, folder)

    async def remote(self, machine: Machine, argv: Sequence[str], **_: Any) -> CommandResult:
        self.asked.append(machine.name)
        words = [word.replace(self.state, str(self.places[machine.name])) for word in argv]
        if self.squashed:
            words = ["sh", "-c", "echo 'chown: Operation not permitted' >&2; exit 1"] if argv[0] == "sh" else words
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        return CommandResult(tuple(argv), done.returncode, done.stdout, done.stderr, 0.0)

    async def check(self) -> None:
        await machine_claims.check_shared_state_folder(
            self.context, self.cluster, {name: builders.machine(name) for name in self.cluster.machine_names}
        )


async def test_shared_state_folder_is_accepted_and_left_empty(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.check()
    assert list((tmp_path / "one").iterdir()) == []
    assert set(world.asked) == {"lab-head", "lab-head2"}, "nodes have no part in it"


async def test_separate_state_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="files of lab-head there do not appear on lab-head2"):
        await World(tmp_path, same=False).check()
    assert list((tmp_path / "one").iterdir()) == []


async def test_state_folder_with_root_squash_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.squashed = True
    with pytest.raises(Refused, match="lab-head: root can't change the owner of files in /shared/headway") as caught:
        await world.check()
    assert "no_root_squash" in caught.value.hint


async def test_state_folder_on_an_unmounted_volume_is_not_checked(tmp_path: Path) -> None:
    world = World(tmp_path)
    storage = StorageFolders(state=world.state, volumes=(Volume("s", "/shared", "nfs4", "filer:/srv"),))
    world.cluster = replace(world.cluster, storage=storage)
    await world.check()
    assert world.asked == []


@pytest.mark.parametrize(("unit", "stays"), [("shared.mount", False), ("models.mount", True)])
def test_volume_of_the_state_folder_cannot_be_detached(unit: str, stays: bool) -> None:
    two = replace(builders.cluster(provider=SSH), controllers=2, storage=StorageFolders(state="/shared/headway"))
    gone = Change("file.remove", "lab-head2", f"/etc/systemd/system/{unit}", "is detached")
    if stays:
        machine_claims.check_state_stays(two, ChangeSet("lab", (gone,)))
    else:
        with pytest.raises(Refused, match="Slurm's state lies on /shared, which would be detached from lab-head2"):
            machine_claims.check_state_stays(two, ChangeSet("lab", (gone,)))


def test_down_deletes_only_data_folders_of_the_cluster() -> None:
    two = replace(builders.cluster(provider=SSH), controllers=2, storage=StorageFolders(state="/shared/headway"))
    data = teardown._data_folders
    assert data(two, "lab-head2") == ("/srv/headway-state", "/scratch/.headway/lab", "/shared/headway/lab")
    assert data(two, "lab-1-1") == ("/srv/headway-state",)
