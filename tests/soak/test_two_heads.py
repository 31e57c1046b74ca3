"""Two heads on owned machines (bare Debian containers) with Slurm's state on a shared mount: the first head is cut
off, frozen and switched off; jobs continue, exactly one head leads, and every record remains."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.lab import Lab
from tests.cluster.providers.bare_machines import Bare

pytestmark = pytest.mark.soak
HEAD, NODE, SECOND = 10, 11, 12
STATE = "/home/.headway"
TAKEN_OVER_S = 60


class Twin:
    """A head, a node, and a machine that becomes the second head."""

    def __init__(self, folder: Path) -> None:
        self.bare = Bare(folder / "bare")
        self.lab = Lab(folder / "state", name="own")
        self.bare.up(HEAD, NODE, SECOND)
        self.alone = self.spec("one", 1, "")
        self.file = self.spec("two", 1, f"controllers: 2\nstorage: {{state: {STATE}}}\n")

    def spec(self, title: str, nodes: int, more: str) -> Path:
        rows = "".join(f"  - {{address: {self.bare.address(n)}, key: {self.bare.key}}}\n" for n in (HEAD, NODE, SECOND))
        text = f"name: own\nprovider: ssh\nplan: cpu-64\nnodes: {nodes}\nhosts:\n{rows}teams: {{vision: {{users: [ann]}}}}\n"
        file = self.bare.folder / f"{title}.yaml"
        file.write_text(f"{text}{more}")
        return file

    def close(self) -> None:
        self.lab.cli("down", "own", "--yes", "--delete-data", check=False, timeout_s=300)
        self.lab.cli("server", "stop", check=False)
        self.bare.down()

    def leads(self, number: int) -> bool:
        said = self.bare.inside(number, "sh", "-c", f"cat {STATE}/own/slurmctld/leads", check=False)
        return said.startswith({HEAD: "own-head ", SECOND: "own-head2 "}[number])

    def submit(self, wrap: str) -> int:
        done = self.lab.cli("submit", "own", "--as", "ann", "--parsable", "--wrap", wrap, check=False)
        return int(done.out) if done.code == 0 else 0

    def hold(self) -> int:
        """Starts a job that runs until `let_go`, and returns its id."""
        self.bare.inside(HEAD, "rm", "-f", "/scratch/go")
        job = self.lab.wait(lambda: self.submit("while [ ! -e /scratch/go ]; do sleep 0.2; done"), "a submission")
        self.lab.wait_job(job, "RUNNING")
        time.sleep(6)  # a controller may not have saved what it accepted within the last five seconds
        return job

    def let_go(self, *jobs: int) -> None:
        self.bare.inside(NODE, "touch", "/scratch/go")
        for job in jobs:
            self.lab.wait_job(job, "COMPLETED", patience_s=120)
            records = ["sacct", "-XnD", "-o", "State", "-j", str(job)]
            self.lab.wait(
                lambda r=records: self.lab.head(*r, check=False).out.split() == ["COMPLETED"],  # type: ignore[misc]
                f"one record of job {job}",
            )


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    if os.geteuid() != 0 or shutil.which("podman") is None:
        pytest.fail("this test makes real machines: run it as root after `make setup`")
    made = Twin(tmp_path_factory.mktemp("twin"))
    try:
        yield made
    finally:
        made.close()


def test_apply_refuses_state_folder_on_local_disk_of_head(twin: Twin) -> None:
    twin.lab.cli("server", "start")
    file = twin.spec("bad", 1, "controllers: 2\nstorage: {state: /var/lib/headway-state}\n")
    done = twin.lab.cli("apply", str(file), "--yes", check=False)
    assert "has /var/lib/headway-state on its own disk" in done.err
    assert twin.bare.inside(HEAD, "sh", "-c", "ls /etc/headway 2>/dev/null || true") == ""


def test_adding_second_head_keeps_running_and_queued_jobs(twin: Twin) -> None:
    twin.lab.cli("apply", str(twin.alone), "--yes", timeout_s=1800)
    job = twin.hold()
    held = twin.lab.sbatch("ann", "--hold", "-o", "/dev/null", wrap="true")
    twin.lab.cli("apply", str(twin.file), "--yes", timeout_s=1800)
    assert "nothing to change" in twin.lab.cli("apply", str(twin.file), "--yes").out
    twin.lab.wait(lambda: twin.leads(HEAD), "the first head to lead")
    assert f"StateSaveLocation       = {STATE}/own/slurmctld" in twin.lab.head("scontrol", "show", "config").out
    twin.lab.head("scontrol", "release", str(held))
    twin.let_go(job, held)


def test_second_head_takes_over_until_first_returns(twin: Twin) -> None:
    job = twin.hold()
    twin.bare.power_cut(HEAD)
    meanwhile = twin.lab.wait(lambda: twin.submit("true"), "a submission while the first head is away")
    twin.lab.wait(lambda: twin.leads(SECOND), "the second head to lead")
    assert "own-head does not answer and own-head2 is the active head" in twin.lab.cli("status", "own", check=False).out
    twin.bare.power_on(HEAD)
    twin.lab.wait(lambda: twin.leads(HEAD), "the first head to lead again", TAKEN_OVER_S)
    twin.let_go(job, meanwhile)


def test_frozen_head_steps_down_when_it_resumes(twin: Twin) -> None:
    job = twin.hold()
    twin.bare.stand_still(HEAD)
    meanwhile = twin.lab.wait(lambda: twin.submit("true"), "a submission while the first head stands still")
    twin.bare.go_on(HEAD)
    said = lambda: twin.bare.inside(HEAD, "journalctl", "-u", "headway-agent", "--no-pager")  # noqa: E731
    twin.lab.wait(lambda: "own-head2 is the active head now" in said(), "the controller that slept to be ended")
    twin.lab.wait(lambda: twin.leads(HEAD), "the first head to lead again", TAKEN_OVER_S)
    twin.let_go(job, meanwhile)


def test_removing_second_head_moves_queue_back_to_local_disk(twin: Twin) -> None:
    job = twin.hold()
    twin.lab.cli("apply", str(twin.alone), "--yes", timeout_s=600)
    assert "StateSaveLocation       = /srv/headway-state/slurmctld" in twin.lab.head("scontrol", "show", "config").out
    twin.let_go(job)
