"""A hand-made Slurm site (24.11 and 22.05) with 40 partitions, nested accounts and QOS is imported over SSH. The imported
cluster runs in local containers. `headway import --compare` finds a reason for each difference between both, and `headway
rehearse` submits the site's jobs to it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.lab import Lab
from tests.cluster.providers.bare_machines import Bare
from tests.cluster.slurm import old_site

SLURM = {"debian13": "24.11", "debian12": "22.05"}


@pytest.fixture(params=["debian13", "debian12"])  # Slurm 24.11 and 22.05
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bare]:
    made = Bare(tmp_path / "bare", request.param, shared=False, packages=old_site.PACKAGES)
    try:
        made.up(10)
        made.sudo([10], password=False)
        old_site.stand_up(made)
        yield made
    finally:
        made.down()


def searched_path(site: Bare, folder: Path, lab: Lab) -> str:
    """Returns a PATH on which ssh uses the key of the site."""
    ssh = folder / "bin" / "ssh"
    ssh.parent.mkdir()
    known = f"-o StrictHostKeyChecking=accept-new -o UserKnownHostsFile={folder}/known_hosts"
    ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -i {site.key} {known} "$@"\n')
    ssh.chmod(0o755)
    return f"{ssh.parent}:{lab.env['PATH']}"


def test_imported_cluster_is_the_old_site(site: Bare, tmp_path: Path) -> None:
    lab = Lab(tmp_path / "state", name=old_site.NAME)
    folder = tmp_path / "imported"
    path, source = searched_path(site, tmp_path, lab), f"ssh://ops@{site.address(10)}"
    digests = "find /etc /home /root /tmp /var/tmp -xdev -type f -exec sha256sum {} + | sort"
    before = site.inside(10, "sh", "-c", digests)

    told = lab.cli("import", "--from", source, "--to", str(folder), "--rehearse", "-o", "json", PATH=path).json()

    assert (told["nodes"], told["users"], told["unread"], told["notes"]) == (52, 5, {}, [])
    assert len(told["cluster"]["partitions"]) == old_site.PARTITIONS
    assert sum(told["counts"].values()) == len(told["verdicts"])
    assert old_site.PASSWORD not in "".join(file.read_text() for file in folder.iterdir())
    assert site.inside(10, "sh", "-c", digests) == before  # nothing was written there

    try:
        lab.cli("apply", str(folder / "rehearsal.yaml"), "--yes", timeout_s=900)
        done = lab.cli("import", "--from", source, "--compare", old_site.NAME, PATH=path)
        sys.stdout.write(done.out)
        assert f"Slurm {SLURM[site.system]}" in done.out.splitlines()[0]
        assert done.out.splitlines()[-1].endswith(" with a reason, 0 without")

        for limit in (
            "0:10:00",
            "10-00:00:00",
        ):  # the site accepts jobs that exceed the partition's limit, and lets them wait
            argv = ["sbatch", "--chdir=/", "--output=/dev/null", "--partition=Work01", f"--time={limit}", "--wrap=true"]
            site.inside(10, "runuser", "-u", "alice", "--", *argv)
        site.wait(lambda: site.inside(10, "sacct", "-a", "-X", "-n").count("Work01") == 2)
        rehearsed = lab.cli(
            "rehearse", old_site.NAME, "--from", source, "--minutes", "0.1", "-o", "json", check=False, PATH=path
        )
        assert (rehearsed.code, rehearsed.json()["read"], rehearsed.json()["submitted"]) == (1, 2, 2)
        ((reason, jobs),) = rehearsed.json()["refused"].items()
        assert (reason.startswith("Requested time limit is invalid"), len(jobs)) == (True, 1)
        assert rehearsed.json()["partitions"]["Work01"]["started"] == 1

        lab.head("scontrol", "update", "PartitionName=gpu", "MaxTime=1-00:00:00")
        lab.head("sacctmgr", "-i", "modify", "account", "it", "set", "fairshare=1")
        found = lab.cli("import", "--from", source, "--compare", old_site.NAME, "-o", "json", check=False, PATH=path)
        assert found.code == 1
        unexplained = {(d["name"], d["key"]) for d in found.json()["differences"] if not d["reason"]}
        assert unexplained == {("gpu", "MaxTime"), *((name, "NormShares") for name in old_site.ACCOUNTS)}
        assert found.json()["not_compared"] == {}
        assert found.json()["equal"]["partition"] > 1000
    finally:
        lab.down()


def test_site_whose_daemons_do_not_answer_is_imported_from_its_files(site: Bare, tmp_path: Path) -> None:
    lab = Lab(tmp_path / "state", name=old_site.NAME)
    path, source = searched_path(site, tmp_path, lab), f"ssh://ops@{site.address(10)}"
    # slurmctld accepts connections and is silent; slurmdbd is gone.
    site.inside(10, "sh", "-c", "systemctl kill --signal=STOP slurmctld; systemctl stop slurmdbd")
    told = lab.cli("import", "--from", source, "--to", str(tmp_path / "half"), "-o", "json", PATH=path).json()
    assert (told["nodes"], len(told["cluster"]["partitions"])) == (52, old_site.PARTITIONS)
    unread = {name: why for name, why in told["unread"].items() if why}
    assert {"scontrol-reservations.txt", "sacctmgr.qos", "sacctmgr.dump"} <= set(unread)
    page = (tmp_path / "half" / "report.md").read_text()
    assert all(name in page for name in unread)
    assert old_site.PASSWORD not in page
