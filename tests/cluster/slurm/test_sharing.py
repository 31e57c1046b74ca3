"""Many teams share one cluster by placement, gangs, fair share, caps and preemption. These tests fill the cluster,
so they run alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cluster.lab import Lab

HOLD = "while [ ! -e {} ]; do sleep 0.1; done"


@pytest.fixture(autouse=True)
def _quiet(lab: Lab) -> Iterator[None]:
    """Empties the queue before each test, where jobs of another module may end just then, and after it."""
    empty_queue(lab)
    yield
    empty_queue(lab)


def empty_queue(lab: Lab) -> None:
    lab.head("bash", "-c", "scancel $(squeue -h -o %A | sort -u) 2>/dev/null; true")
    lab.wait(lambda: not lab.head("squeue", "-h").out.strip(), "the queue to be empty")


def test_two_node_job_is_placed_under_one_leaf_switch(lab: Lab) -> None:
    """Three nodes are free, one under the first leaf switch and two under the second: the job must not span both."""
    blocker = lab.sbatch("alice", "-w", "lab-1-1", "--exclusive", wrap=HOLD.format("free1"))
    lab.wait_job(blocker, "RUNNING")
    job = lab.sbatch("alice", "-N2", "--gpus-per-node=8", wrap="true; sleep 1")
    lab.wait_job(job, "RUNNING", "COMPLETED")
    assert lab.field(job, "NodeList") == "lab-2-[1-2]"


def test_multi_node_job_waits_until_all_its_nodes_are_free(lab: Lab) -> None:
    blocker = lab.sbatch("vera", "-w", "lab-2-2", "--exclusive", wrap=HOLD.format("free2"))
    lab.wait_job(blocker, "RUNNING")
    gang = lab.sbatch("alice", "-N4", "--gpus-per-node=8", "--output=gang.txt", wrap="srun hostname")
    lab.wait(lambda: lab.field(gang, "Reason") in ("Resources", "Priority"), "the gang to wait for its fourth node")
    assert lab.field(gang, "JobState") == "PENDING"
    states = set(lab.head("sinfo", "-h", "-p", "train", "-o", "%t").out.split())
    assert states & {"idle", "plnd"}, "some are free, though backfill may have planned them for the gang"
    lab.head("touch", "/home/vera/free2", user="vera")
    assert lab.wait_job(gang) == "COMPLETED"
    assert sorted(lab.output("/home/alice/gang.txt").split()) == ["lab-1-1", "lab-1-2", "lab-2-1", "lab-2-2"]


def test_higher_tier_preempts_and_the_victim_reruns_to_completion(lab: Lab) -> None:
    wrap = "[ ${SLURM_RESTART_COUNT:-0} -ge 1 ] && exit 0; srun sleep 600"
    victim = lab.sbatch("sam", "-N4", "--exclusive", "--requeue", wrap=wrap)
    lab.wait_job(victim, "RUNNING")
    urgent = lab.sbatch("alice", "-p", "urgent", "-N4", "--exclusive", "--output=urgent.txt", wrap="echo urgent")
    assert lab.wait_job(urgent) == "COMPLETED"
    assert lab.wait_job(victim) == "COMPLETED"
    assert int(lab.field(victim, "Restarts")) >= 1


def test_only_permitted_teams_use_the_urgent_partition(lab: Lab) -> None:
    done = lab.head("sbatch", "-p", "urgent", "--wrap=true", user="sam", check=False)
    assert done.code != 0 or lab.wait(lambda: lab.field(done.out.split()[-1], "Reason"), "a reason") != "None"
    allowed = lab.head("sbatch", "--parsable", "-p", "urgent", "--wrap=true", user="alice")
    assert lab.wait_job(int(allowed.out)) == "COMPLETED"


def test_job_above_the_gpu_hour_cap_waits_with_its_reason(lab: Lab) -> None:
    """carol's team may use one GPU-hour per month and requests more in one job."""
    job = lab.sbatch("carol", "--gpus=8", "--time=1:00:00", wrap="true")
    lab.wait(
        lambda: "GRES" in lab.field(job, "Reason") or "TRES" in lab.field(job, "Reason"), "the cap to be the reason"
    )
    assert lab.field(job, "JobState") == "PENDING"
    small = lab.sbatch("carol", "--gpus=1", "--time=10", wrap="true")
    assert lab.wait_job(small) == "COMPLETED"


def test_running_jobs_per_team_are_limited(lab: Lab) -> None:
    jobs = [lab.sbatch("carol", "--time=5", wrap=HOLD.format("free3")) for _ in range(3)]
    lab.wait(lambda: sum(lab.field(j, "JobState") == "RUNNING" for j in jobs) == 2, "two to run")
    third = next(j for j in jobs if lab.field(j, "JobState") == "PENDING")
    lab.wait(lambda: "QOSGrpJobsLimit" in lab.field(third, "Reason"), "the limit to be the reason")
    lab.head("touch", "/home/carol/free3", user="carol")
    assert {lab.wait_job(j) for j in jobs} == {"COMPLETED"}


def test_each_user_of_a_team_has_limits(lab: Lab) -> None:
    """quinn may hold 12 GPUs and have 10 jobs in the queue."""
    ask = ("--nodes=1", "--gpus-per-node=8", "--time=1")
    holds = lab.sbatch("quinn", *ask, wrap=HOLD.format("free5"))
    lab.wait_job(holds, "RUNNING")
    waits = lab.sbatch("quinn", *ask, wrap="true")
    lab.wait(lambda: "MaxGRESPerUser" in lab.field(waits, "Reason"), "the limit to be the reason")
    lab.wait(lambda: "quinn holds 8 of 12 GPUs" in lab.cli("job", "lab", str(waits)).out, "the server to explain it")
    many = lab.head("sbatch", "--array=1-10", "--wrap=true", user="quinn", check=False)
    assert "QOSMaxSubmitJobPerUserLimit" in many.err
    lab.head("touch", "/home/quinn/free5", user="quinn")
    assert {lab.wait_job(job) for job in (holds, waits)} == {"COMPLETED"}


def test_each_user_has_limits_in_a_partition(lab: Lab) -> None:
    """In debug a user may hold 4 GPUs, run 2 jobs, and have 5 in the queue; elsewhere the same user may have more."""
    ask = ("-p", "debug", "--nodes=1", "--time=1")
    holds = lab.sbatch("sonia", *ask, "--gpus-per-node=3", wrap=HOLD.format("free6"))
    lab.wait_job(holds, "RUNNING")
    waits = lab.sbatch("sonia", *ask, "--gpus-per-node=2", wrap="true")
    lab.wait(lambda: "MaxGRESPerUser" in lab.field(waits, "Reason"), "the limit to be the reason")
    told = "sonia holds 3 of 4 GPUs in partition debug"
    lab.wait(lambda: told in lab.cli("job", "lab", str(waits)).out, "the server to explain it")
    elsewhere = lab.sbatch("sonia", "--gpus-per-node=8", "--nodes=1", "--time=1", wrap="true")
    assert lab.wait_job(elsewhere) == "COMPLETED"
    second = lab.sbatch("sonia", *ask, wrap=HOLD.format("free6"))
    lab.wait_job(second, "RUNNING")
    third = lab.sbatch("sonia", *ask, wrap="true")
    lab.wait(lambda: "QOSMaxJobsPerUserLimit" in lab.field(third, "Reason"), "the number of jobs to be the reason")
    many = lab.head("sbatch", *ask, "--array=1-2", "--wrap=true", user="sonia", check=False)
    assert "QOSMaxSubmitJobPerUserLimit" in many.err
    lab.head("touch", "/home/sonia/free6", user="sonia")
    assert {lab.wait_job(job) for job in (holds, waits, second, third)} == {"COMPLETED"}


def test_recent_gpu_hours_of_each_user_are_limited(lab: Lab) -> None:
    """quinn may use 2 recent GPU-hours."""
    waits = lab.sbatch("quinn", "--gpus=8", "--time=1:00:00", wrap="true")
    lab.wait(lambda: lab.field(waits, "Reason") == "AssocGrpGRESMinutes", "the limit to be the reason")
    told = "it may use 8 GPU hours and quinn may use 2 recent GPU hours in team quota"
    lab.wait(lambda: told in lab.cli("job", "lab", str(waits)).out, "the server to explain it")
    assert lab.wait_job(lab.sbatch("quinn", "--gpus=8", "--time=1", wrap="true")) == "COMPLETED"


@pytest.mark.soak
def test_team_with_less_usage_starts_first(lab: Lab) -> None:
    """Slurm counts usage once a minute; the test waits until sshare shows it, not for a fixed time."""
    usage = ["sshare", "-a", "-n", "-P", "-o", "Account,User,RawUsage"]

    def used(team: str) -> int:
        rows = [line.split("|") for line in lab.head(*usage).out.splitlines()]
        return max((int(row[2]) for row in rows if row[0].strip() == team and not row[1]), default=0)

    teams = {"vision": "alice", "speech": "sam"}
    (light, light_user), (heavy, heavy_user) = sorted(teams.items(), key=lambda team: used(team[0]))
    hog = lab.sbatch(heavy_user, "-N4", "--exclusive", wrap=HOLD.format("free4"))
    lab.wait_job(hog, "RUNNING")
    lab.wait(lambda: used(heavy) > used(light) * 1.05 + 1000, "Slurm to count the usage", patience_s=240)
    first = lab.sbatch(heavy_user, "-N4", "--exclusive", "--output=/dev/null", wrap="true")
    second = lab.sbatch(light_user, "-N4", "--exclusive", "--output=/dev/null", wrap="true")
    lab.wait(
        lambda: int(lab.field(second, "Priority")) > int(lab.field(first, "Priority")),
        "the lighter team to come first",
        patience_s=240,
    )
    lab.head("touch", f"/home/{heavy_user}/free4", user=heavy_user)
    lab.wait_job(first)
    lab.wait_job(second)
    start = {j: lab.head("sacct", "-X", "-n", "-P", "-o", "Start", "-j", str(j)).out.strip() for j in (first, second)}
    assert start[second] <= start[first]
