"""A cluster is upgraded from Slurm 24.11 to 26.05 under running and waiting jobs: none is lost and every record remains.
Heads do not return to the old version; the whole cluster does, by a restore of its backup."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.lab import Lab, frozen_mirrors_will_do

pytestmark = pytest.mark.soak
HELD = "while [ ! -e /scratch/go ]; do sleep 0.2; done; srun hostname"


class Hop:
    """The cluster, its file before the upgrade and the one after."""

    def __init__(self, folder: Path) -> None:
        self.lab = Lab(folder / "state", name="hop")
        frozen_mirrors_will_do(self.lab)
        self.backups = folder / "backups"
        self.backups.mkdir()
        self.key = folder / "key"
        self.key.write_text("a passphrase of a test\n")
        self.before = self.spec("before", "debian13")
        self.after = self.spec("after", "debian14")

    def spec(self, title: str, image: str, backup: bool = True) -> Path:
        text = f"name: hop\nimage: {image}\nplan: h100-8\nnodes: 3\nteams: {{vision: {{users: [ann]}}}}\n"
        if backup:
            text += f"backup: {{to: {self.backups}, key_file: {self.key}}}\n"
        file = self.backups.parent / f"{title}.yaml"
        file.write_text(text)
        return file

    def versions(self) -> list[str]:
        said = self.lab.head("sinfo", "-hN", "-o", "%v").out.split()
        return [version.rpartition(".")[0] for version in said]

    def begins(self, *args: str) -> subprocess.Popen[str]:
        """Starts the headway command without waiting for its end."""
        argv = [sys.executable, "-m", "headway", *args]
        return subprocess.Popen(argv, env=self.lab.env, stdout=subprocess.PIPE, text=True)

    def way_back(self) -> Path:
        """Returns the first backup; later ones come from the schedule."""
        return min(self.backups.glob("hop-*.headway-backup"))

    def held(self, *flags: str) -> int:
        job = self.lab.sbatch("ann", "--no-requeue", "--output=%j.txt", *flags, wrap=HELD)
        self.lab.wait_job(job, "RUNNING")
        return job


@pytest.fixture(scope="module")
def hop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hop]:
    made = Hop(tmp_path_factory.mktemp("hop"))
    try:
        made.lab.cli("image", "build", "debian14", timeout_s=1800)
        made.lab.cli("apply", str(made.before), "--yes", timeout_s=600)
        yield made
    finally:
        made.lab.down()


def test_plan_refuses_slurm_upgrade_without_backup_and_downgrade(hop: Hop) -> None:
    refused = hop.lab.cli("plan", str(hop.spec("bare", "debian14", backup=False)), check=False)
    assert refused.code == 2
    assert "backup: Slurm 24.11 becomes 26.05 only after a backup" in refused.err
    refused = hop.lab.cli("plan", str(hop.spec("older", "debian12")), check=False)
    assert "no downgrade" in refused.err


def test_jobs_survive_slurm_upgrade_with_server_killed_midway(hop: Hop) -> None:
    lab = hop.lab
    first = lab.sbatch("ann", "--output=%j.txt", wrap="true")
    assert lab.wait_job(first) == "COMPLETED"
    runs = hop.held("-N2", "-w", "hop-1-[1-2]")
    waits = lab.sbatch("ann", "-N3", "--exclusive", "--output=%j.txt", wrap="srun hostname && srun --version")
    assert "Slurm 24.11 becomes 26.05" in lab.cli("plan", str(hop.after)).out
    apply = hop.begins("apply", str(hop.after), "--yes")
    assert apply.stdout is not None
    for line in apply.stdout:
        if "is recreated" in line:
            break
    os.kill(lab.cli("server", "status", "-o", "json").json()["pid"], signal.SIGKILL)
    lab.forget_client()
    lab.cli("server", "start")
    lab.wait(lambda: lab.client.operations.list("hop")[0].kind == "roll", "the nodes to follow", patience_s=600)
    assert "26.05" in lab.head("sinfo", "--version").out
    # From the head, with its new srun: nothing starts on a node with the old version.
    assert lab.head("srun", "-t1", "hostname", user="ann").out.strip() == "hop-1-3"
    assert sorted(hop.versions()) == ["24.11", "24.11", "26.05"]
    assert (lab.state_of(runs), lab.state_of(waits)) == ("RUNNING", "PENDING")
    assert hop.way_back().is_file()
    lab.head("touch", "/scratch/go")
    assert lab.wait_job(runs) == "COMPLETED", lab.output(f"/home/ann/{runs}.txt")
    assert lab.wait_job(waits, patience_s=300) == "COMPLETED", lab.output(f"/home/ann/{waits}.txt")
    assert "26.05" in lab.output(f"/home/ann/{waits}.txt")
    assert hop.versions() == ["26.05"] * 3
    assert lab.head("salloc", "-N3", "srun", "hostname", user="ann").out.count("hop-1-") == 3
    lab.wait(lambda: lab.client.operations.list("hop")[0].state == "done", "the roll to end")
    apply.communicate(timeout=300)
    assert "already match the file" in lab.cli("plan", str(hop.after)).out
    states = lab.head("sacct", "-X", "-n", "-P", "-o", "State", "-u", "ann").out.split()
    assert states == ["COMPLETED"] * 5


def test_slurm_upgrade_reverts_only_by_restoring_backup(hop: Hop) -> None:
    lab = hop.lab
    refused = lab.cli("roll", "hop", "--back", "--head", "--yes", check=False)
    assert "can't read the state of Slurm 26.05" in refused.err
    assert "no downgrade" in lab.cli("plan", str(hop.before), check=False).err
    lab.cli("down", "hop", "--yes", "--delete-data")
    passphrase = hop.key.read_text().strip()
    lab.cli(
        "restore", "hop", "--from", str(hop.way_back()), "--yes", timeout_s=600, HEADWAY_BACKUP_PASSPHRASE=passphrase
    )
    assert hop.versions() == ["24.11"] * 3
    assert lab.head("sacct", "-X", "-n", "-P", "-o", "State", "-u", "ann").out.split()[0] == "COMPLETED"
