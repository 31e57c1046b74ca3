"""What a machine one owns is given before anything else, and in which order."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace

from headway.changes.machine import Wanted, machine_changes
from headway.cluster.steps import DAEMONS, by_stage
from headway.domain.files import File
from headway.domain.observed import NOT_SEEN, SeenFile, SeenMachine, SeenUnit
from headway.domain.unit import Unit
from headway.machines import image

HOSTS = "/etc/hosts"
WANTED = Wanted.make(
    {HOSTS: File("10.0.0.1 lab-head\n", block=True)},
    {},
    (Unit("slurmd.service", stage="node"),),
    packages=("slurmd", "munge"),
    parts="new",
)
SEEN = SeenMachine(
    files={HOSTS: SeenFile(WANTED.digests[HOSTS], 0o644, "root", "root", 1.0)},
    units={"slurmd.service": SeenUnit(True, True, 2.0, 7, WANTED.loaded["slurmd.service"])},
    managed=(HOSTS,),
    hostname="lab-1-1",
    parts="new",
)


def kinds(seen: SeenMachine) -> list[str]:
    return [change.kind for change in machine_changes("lab-1-1", WANTED, seen)]


def test_one_that_is_set_up_needs_nothing() -> None:
    assert kinds(SEEN) == []


def test_a_bare_one_is_kept_then_installed_then_made() -> None:
    assert kinds(NOT_SEEN)[:4] == ["file.keep", "package.install", "parts.make", "machine.name"]
    stages = by_stage(machine_changes("lab-1-1", WANTED, NOT_SEEN), WANTED, {}, fresh=True)
    assert [step["op"] for step in stages["software"]] == ["keep", "packages", "parts"]
    assert next(iter(stages)) == "software"
    packages = stages["software"][1]
    assert packages["names"] == ["slurmd", "munge"]
    assert set(packages["keep_off"]) == set(DAEMONS) - {"slurmd.service"}
    ops = [step["op"] for step in stages["base"]]
    assert ops.index("file") < ops.index("name")  # sudo looks names up


def test_what_stands_where_a_file_is_to_come_is_kept_first_also_later() -> None:
    more = replace(
        WANTED, files={**WANTED.files, "/etc/motd": File("hello\n")}, digests={**WANTED.digests, "/etc/motd": "d"}
    )
    assert "file.keep" in [change.kind for change in machine_changes("lab-1-1", more, SEEN)]


def test_what_is_missing_is_told_by_number() -> None:
    (change,) = machine_changes("lab-1-1", WANTED, replace(SEEN, missing=("munge",)))
    assert (change.kind, change.why) == ("package.install", "1 of 2 are missing")


def test_parts_of_another_headway_are_made_anew() -> None:
    assert kinds(replace(SEEN, parts="old")) == ["parts.make"]


def test_a_machine_that_lost_its_name_gets_it_back() -> None:
    assert kinds(replace(SEEN, hostname="rack7")) == ["machine.name"]


def test_images_machines_need_none_of_it() -> None:
    wanted = replace(WANTED, packages=(), parts="")
    seen = replace(SEEN, hostname="", parts="")
    assert list(machine_changes("lab-1-1", wanted, seen)) == []


def test_packages_are_the_images_own_list_by_role() -> None:
    head, node = (set(image.packages_of("debian13", role, nfs=False)) for role in ("head", "node"))
    listed = set(image.recipe("debian12").packages)  # that of debian13 has JupyterLab's too
    assert listed <= head
    assert {"slurmd", "munge", "libpam-slurm-adopt", "nftables"} <= node
    assert not node & {"mariadb-server", "slurmctld", "slurmdbd", "prometheus"}
    assert "nfs-kernel-server" in image.packages_of("debian12", "head", nfs=True)
    assert "nfs-common" in image.packages_of("debian12", "node", nfs=True)


def test_the_parts_are_whole_and_their_digest_is_of_what_is_in_them() -> None:
    archive, digest = image.parts()
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        names = set(packed.getnames())
    assert {
        "parts.sh",
        "spank/container.c",
        "pam/job_tmp.c",
        "container/__main__.py",
        "torch-without-libuv.sh",
    } <= names
    assert image.parts()[1] == digest
