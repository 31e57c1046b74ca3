"""Jobs of two people share a GPU by shards, isolated from the other GPUs and counted and charged by their shares. The cluster has
no mail server, and says so at submission."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pytest
from tests.cluster.lab import Lab

from headway.schemas.billing.usage import RunLine

# 14,400 USD an hour for 4 GPUs: a second of a GPU costs 1 USD, of a shard 0.25.
FILE = """
name: shares
groups: {shared: {plan: l40s-4, nodes: 1, shards: 4, price: 14400}}
teams: {vision: {users: [alice, vera], limits: {gpu_parts: {shard: 6}}}}
"""
# Prints the GPUs that the job may open; there is no driver, so an allowed open fails with ENXIO.
OPENS = """
import errno, glob, os
for path in sorted(glob.glob("/dev/nvidia[0-9]")):
    try:
        os.open(path, os.O_RDWR)
    except OSError as error:
        print(path, errno.errorcode[error.errno])
"""
JOB = f"""#!/bin/bash
#SBATCH --gres=shard:1 --output=/scratch/%u.out
nvidia-smi -L
python3 -c '{OPENS}'
until [ -e /scratch/free ]; do sleep 0.2; done
"""
NO_MAIL = ": --mail-type=END: no mail will be sent, because this cluster has no mail server; an administrator sets one"


@pytest.fixture(scope="module")
def shares(node_image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("shares") / "state", name="shares")
    with lab.applied(FILE):
        yield lab


def run_of(lab: Lab, job: int) -> RunLine:
    """Returns the ended run of a job, once accounting knows it."""

    def ended() -> list[RunLine]:
        return [one for one in lab.client.billing.usage_runs(lab.name, job=job, start="2020-01-01").runs if one.end]

    return lab.wait(ended, f"accounting to know of job {job}")[0]


def printed(lab: Lab, user: str) -> list[str]:
    return lab.head("cat", f"/scratch/{user}.out", check=False).out.splitlines()


def test_two_jobs_share_one_gpu_and_open_no_other(shares: Lab) -> None:
    jobs = {user: shares.sbatch(user, script=JOB) for user in ("alice", "vera")}
    for job in jobs.values():
        shares.wait_job(job, "RUNNING")
    shares.wait(lambda: all(len(printed(shares, user)) == 5 for user in jobs), "the output of both jobs")
    # Accounting has whole seconds.
    shares.wait(lambda: min(shares.field(job, "RunTime") for job in jobs.values()) >= "00:00:04", "four seconds")
    shown = shares.head("scontrol", "-d", "show", "node", "shares-shared-1-1").out
    shares.head("touch", "/scratch/free")
    assert "shard:l40s:2(2/4,0/4,0/4,0/4)" in shown
    alice, vera = printed(shares, "alice"), printed(shares, "vera")
    assert alice == vera
    assert alice[0].startswith("GPU 0: NVIDIA L40S (simulated)")
    assert alice[1:] == ["/dev/nvidia0 ENXIO", *(f"/dev/nvidia{n} EPERM" for n in (1, 2, 3))]
    for user, job in jobs.items():
        assert shares.wait_job(job) == "COMPLETED"
        run = run_of(shares, job)
        assert (run.user, run.gpu_type, run.gpus) == (user, "l40s", 0.25)
        assert run.usd == Decimal("0.25") * run.elapsed_s > 0
    # Usage adds up whole GPU-seconds: each row may differ by half of one.
    used = shares.cli(
        "usage", "shares", "--by", "user,gpu", "--from", "2020-01-01", "--to", "2100-01-01", "-o", "json"
    ).json()
    assert [row["by"] for row in used["rows"]] == [{"user": user, "gpu": "l40s"} for user in ("alice", "vera")]
    seconds = sum(run_of(shares, job).elapsed_s for job in jobs.values())
    assert used["total"]["gpu_hours"] == pytest.approx(seconds / 4 / 3600, abs=3e-4)


def test_a_teams_limit_of_shards_holds(shares: Lab) -> None:
    job = shares.sbatch("alice", "--gres=shard:4", "--array=0-1", "--output=/dev/null", wrap="sleep 600")
    shares.wait(lambda: "QOSGrp" in shares.head("squeue", "-h", "-o", "%r", "-j", str(job)).out, "the limit")
    assert shares.head("squeue", "-h", "-t", "R", "-o", "%b", "-j", str(job)).out == "gres/shard:4\n"
    shares.head("scancel", str(job))


def test_more_shards_than_a_gpu_has_are_named(shares: Lab) -> None:
    said = shares.head("sbatch", "--parsable", "--gres=shard:5", "--output=/dev/null", "--wrap=true", user="vera")
    assert said.err == (
        "sbatch: --gres=shard:5: a job gets all its shards of a node on one GPU, which has 4: it can never start\n"
    )
    job = said.out.strip()
    shares.wait(lambda: shares.field(job, "Reason") == "Resources", "Slurm to look for the shards")
    assert "needs 5 shards of one GPU, which has 4: it can never start" in shares.cli("job", "shares", job).out
    shares.head("scancel", job)


@pytest.mark.parametrize("command", [("sbatch", "--wrap=true"), ("srun", "true"), ("salloc", "true")])
def test_mail_without_a_mail_server_is_named_at_submission(shares: Lab, command: tuple[str, ...]) -> None:
    program, *words = command
    done = shares.head(program, "--mail-type=END", "--chdir=/tmp", *words, user="vera")
    assert f"{program}{NO_MAIL}" in done.err
    assert "mail" not in shares.head(program, "--chdir=/tmp", *words, user="vera").err


def test_nvidia_smi_of_a_step_without_gpus_says_so_of_the_step(shares: Lab) -> None:
    done = shares.head("salloc", "--gpus=1", "srun", "--gres=none", "nvidia-smi", user="vera", check=False)
    assert (done.code, done.out) == (6, "No devices were found\n")
    assert "this step has no GPU: srun --gpus 1 nvidia-smi" in done.err
    on_head = shares.head("nvidia-smi", user="vera", check=False)
    assert "GPUs are on the nodes: srun --gpus 1 nvidia-smi" in on_head.err
