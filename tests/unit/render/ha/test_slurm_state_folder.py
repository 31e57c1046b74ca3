"""The state-folder program, run before slurmctld on owned machines, moves the queue to a new state folder and refuses
to start without its mount."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from headway.catalog.providers import SSH
from headway.domain.cluster import SLURM_STATE_FOLDER
from headway.domain.storage.folders import StorageFolders
from headway.render.ha import slurm_state_folder
from tests.support.clusters import builders

OWN = builders.cluster(provider=SSH)


class Place:
    """A machine's folders below a temporary one: `own` is the head's disk, `shared` another machine's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.own, self.shared = folder / "own", folder / "shared" / "lab" / "slurmctld"
        self.last = folder / "is-at"
        self.other_disk = True
        self.works_in: Path | None = None  # where another controller writes its heartbeat

    def start(self, now: Path, *, first: bool = True) -> subprocess.CompletedProcess[str]:
        cluster = OWN if now == self.own else replace(OWN, storage=StorageFolders(state=str(now.parent.parent)))
        text = slurm_state_folder.files(cluster, first=first)[slurm_state_folder.PROGRAM].text
        text = text.replace(slurm_state_folder.LAST, str(self.last)).replace(SLURM_STATE_FOLDER, str(self.own))
        bin_ = self.folder / "bin"
        bin_.mkdir(exist_ok=True)
        # Which disk a folder is on: all are on one here.
        (bin_ / "stat").write_text(f'#!/bin/sh\n[ "$3" = / ] && echo 1 || echo {2 if self.other_disk else 1}\n')
        # While it sleeps, a controller that works writes its heartbeat.
        beats = f"echo $$ >{self.works_in}/heartbeat" if self.works_in else ":"
        (bin_ / "sleep").write_text(f"#!/bin/sh\n{beats}\n")
        for name in ("stat", "sleep"):
            (bin_ / name).chmod(0o755)
        env = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}"}
        return subprocess.run(["sh", "-c", text], env=env, capture_output=True, text=True, timeout=60, check=False)

    def save(self, where: Path, queue: str, at: float) -> None:
        where.mkdir(parents=True, exist_ok=True)
        (where / "job_state").write_text(queue)
        os.utime(where / "job_state", (at, at))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def queue(where: Path) -> str:
    return (where / "job_state").read_text()


def test_local_cluster_has_no_state_folder_files() -> None:
    assert slurm_state_folder.files(builders.cluster(), first=True) == {}


def test_queue_moves_to_new_state_folder_and_back(place: Place) -> None:
    place.save(place.own, "of one head", 1000)
    place.shared.mkdir(parents=True)
    assert place.start(place.own).returncode == 0
    assert place.start(place.shared).returncode == 0
    assert queue(place.shared) == "of one head"
    assert queue(place.own) == "of one head"  # kept: the old files may have to come back
    place.save(place.shared, "of two heads", 2000)
    assert place.start(place.shared).returncode == 0
    assert queue(place.shared) == "of two heads"
    assert place.start(place.own).returncode == 0
    assert queue(place.own) == "of two heads"
    assert queue(Path(f"{place.own}.before")) == "of one head"


def test_moved_queue_is_kept_despite_older_timestamp(place: Place) -> None:
    place.save(place.own, "of one head", 1000)
    place.shared.mkdir(parents=True)
    place.start(place.shared)
    place.save(place.shared, "of two heads", 990)  # the clock of its file server is behind
    assert place.start(place.shared).returncode == 0
    assert queue(place.shared) == "of two heads"


def test_queue_moves_only_from_its_last_folder(place: Place) -> None:
    place.save(place.own, "of one head", 1000)
    place.shared.mkdir(parents=True)
    place.start(place.shared)
    place.save(place.shared, "of two heads", 990)
    another = place.folder / "another" / "lab" / "slurmctld"
    another.mkdir(parents=True)
    assert place.start(another).returncode == 0
    assert queue(another) == "of two heads"


@pytest.mark.parametrize("moved", [False, True])
def test_start_with_unchanged_folder_writes_nothing(place: Place, moved: bool) -> None:
    now = place.shared if moved else place.own
    place.save(place.own, "of one head", 1000)
    now.mkdir(parents=True, exist_ok=True)
    if moved:
        place.start(now)
    Path(f"{place.last}.new").mkdir()  # no disk takes it
    assert place.start(now).returncode == 0


def test_stale_state_folder_does_not_replace_current_queue(place: Place) -> None:
    place.save(place.shared, "of long ago", 500)
    place.save(place.own, "of today", 1000)
    assert place.start(place.shared).returncode == 0
    assert queue(place.shared) == "of today"
    assert queue(Path(f"{place.shared}.before")) == "of long ago"


def test_new_head_uses_existing_shared_state(place: Place) -> None:
    place.save(place.shared, "of the head that is no more", 500)
    place.own.mkdir()
    assert place.start(place.shared).returncode == 0
    assert queue(place.shared) == "of the head that is no more"


def test_refuses_start_when_state_folder_is_not_mounted(place: Place) -> None:
    place.save(place.own, "of long ago", 1000)
    done = place.start(place.shared)
    assert (done.returncode, done.stderr) == (
        1,
        f"the folder of Slurm's state, {place.shared}, does not exist: is it mounted?\n",
    )
    place.shared.mkdir(parents=True)
    place.other_disk = False
    done = place.start(place.shared)
    assert (done.returncode, done.stderr) == (1, f"{place.shared} is on this machine's own disk: is it mounted?\n")
    assert not (place.shared / "job_state").exists()


def test_refuses_start_when_previous_state_is_missing(place: Place) -> None:
    place.save(place.shared, "of two heads", 2000)
    place.start(place.shared)
    place.shared.rename(place.folder / "not mounted")
    place.own.mkdir()
    done = place.start(place.own)
    assert (done.returncode, "is to be copied from" in done.stderr) == (1, True)


def test_interrupted_move_is_completed(place: Place) -> None:
    place.save(Path(f"{place.shared}.coming"), "whole", 1000)
    assert place.start(place.shared).returncode == 0
    assert queue(place.shared) == "whole"


def test_second_head_moves_no_state(place: Place) -> None:
    place.save(place.own, "of long ago", 3000)
    place.save(place.shared, "of two heads", 2000)
    assert place.start(place.shared, first=False).returncode == 0
    assert queue(place.shared) == "of two heads"
    assert not place.last.exists()


@pytest.mark.parametrize("works", [True, False])
def test_does_not_move_state_in_use_by_another_controller(place: Place, works: bool) -> None:
    place.save(place.shared, "of two heads", 2000)
    place.start(place.shared)
    for name in ("leads", "heartbeat"):
        (place.shared / name).write_text("lab-head2\n")
    place.works_in = place.shared if works else None
    another = place.folder / "another" / "lab" / "slurmctld"
    another.mkdir(parents=True)
    done = place.start(another)
    assert done.returncode == int(works)
    assert (another / "job_state").exists() is not works
    assert (f"a controller still uses {place.shared}" in done.stderr) is works
