"""A slurmctld that comes back with a state from before a job began runs the job again, and slurmdbd writes over the record of
its first run. The ledger keeps that run, because a node worked for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cluster.lab import Lab

from headway.schemas.billing.usage import RunLine

SPEC = """\
name: past
plan: h100-8
nodes: 1
teams: {vision: {users: [ann], share: 1}}
"""
STATE = "/srv/headway-state/slurmctld"
# Times in unix seconds.
SACCT = ("env", "SLURM_TIME_FORMAT=%s", "sacct", "-X", "-D", "-n", "-P", "-o", "Start,State", "-j")


@pytest.fixture(scope="module")
def past(node_image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Yields a cluster of one node."""
    made = Lab(tmp_path_factory.mktemp("past") / "state", name="past")
    try:
        with made.applied(SPEC):
            yield made
    finally:
        made.down()


def test_ledger_keeps_a_run_whose_record_slurm_has_overwritten(past: Lab) -> None:
    job = past.sbatch("ann", "--gpus=2", "--hold", wrap="sleep 2")
    past.head("scontrol", "shutdown", "slurmctld")  # writes its whole state, with the held job
    past.wait(lambda: past.head("pidof", "slurmctld", check=False).code != 0, "slurmctld to have ended")
    past.head("cp", "-a", f"{STATE}/job_state", f"{STATE}/job_state.held")
    past.head("cp", "-a", f"{STATE}/hash.{job % 10}/job.{job}", f"{STATE}/job.held")
    past.head("systemctl", "restart", "slurmctld")

    first = _run(past, job)
    past.head("systemctl", "stop", "slurmctld")
    for copy, name in (("job_state.held", "job_state"), ("job_state.held", "job_state.old")):
        past.head("cp", "-a", f"{STATE}/{copy}", f"{STATE}/{name}")
    past.head("cp", "-aT", f"{STATE}/job.held", f"{STATE}/hash.{job % 10}/job.{job}")
    past.head("systemctl", "start", "slurmctld")
    second = _run(past, job, after=first)

    (record,) = past.head(*SACCT, str(job)).out.split()
    assert record == f"{second}|COMPLETED", "Slurm has one record for a job and its time of submission"
    assert [(run.start, run.state, run.gpus) for run in _runs(past, job)] == [
        (first, "COMPLETED", 2), (second, "COMPLETED", 2),
    ]  # fmt: skip


def _runs(past: Lab, job: int) -> list[RunLine]:
    """Returns the ended runs in the ledger, but those of less than a second: slurmdbd writes one when slurmctld comes back."""
    runs = past.client.billing.usage_runs("past", job=job, start="2020-01-01", end="2100-01-01").runs
    return [run for run in runs if run.end and run.end > run.start]


def _run(past: Lab, job: int, after: int = 0) -> int:
    """Releases the job and waits until the ledger has its new run. Returns when that began, in unix seconds."""
    past.wait(lambda: past.head("scontrol", "release", str(job), check=False).code == 0, "slurmctld to have the job")

    return past.wait(
        lambda: next((run.start for run in _runs(past, job) if run.start > after), 0),
        "the ledger to have the ended run",
    )
