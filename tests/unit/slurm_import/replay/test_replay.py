"""Jobs of a site become fewer and smaller submissions in less time, and what Slurm said of them is an outcome."""

from __future__ import annotations

from dataclasses import replace

from headway.slurm_import.replay.accounted_jobs import MOST_JOBS, AccountedJob, read_jobs
from headway.slurm_import.replay.outcome import read_outcome
from headway.slurm_import.replay.submissions import MOST_SUBMISSIONS, Capacity, Replay, plan_replay

HEADER = "JobID|User|Account|Partition|Submit|Start|ElapsedRaw|TimelimitRaw|NNodes|ReqCPUS|ReqTRES|State\n"
LINE = "7|alice|physics|GPU_long|1000|1090|3600|60|2|16|billing=16,cpu=16,gres/gpu=8,mem=250G,node=2|COMPLETED\n"
JOB = AccountedJob("7", "alice", "physics", "GPU_long", 1000, 1090, 3600, 60, 2, 16, 256000, 8)
SITE = Capacity(
    site_nodes={"gpu_long": 8, "cpu": 40}, nodes={"gpu_long": 1, "cpu": 1}, partitions={"gpu_long": "gpu_long", "cpu": "cpu"},
    teams={"physics": "phys"}, users=frozenset({"alice"}),
)  # fmt: skip


def test_line_of_sacct_is_a_job() -> None:
    assert read_jobs(HEADER + LINE) == ([JOB], 0)
    assert JOB.wait_s == 90


def test_jobs_that_never_started_and_times_as_text_are_read() -> None:
    line = "8|alice|physics|cpu,gpu|2026-11-28T23:00:00|Unknown|0|Partition_Limit|1|1|cpu=1,mem=4000M,node=1|PENDING\n"
    (job,), odd = read_jobs(HEADER + line + "9||physics|cpu|1000|1|1|1|1|1||FAILED\nnothing\n")
    assert (job.submit, job.start, job.limit_min, job.partition, job.memory_mib) == (1795906800.0, 0, 0, "cpu", 4000)
    assert (odd, job.wait_s) == (2, 0)


def test_at_most_ten_thousand_jobs_are_read_the_latest() -> None:
    lines = "".join(f"{n}|alice|physics|cpu|{1000 + n}|0|0|60|1|1||PENDING\n" for n in range(MOST_JOBS + 5))
    jobs, _ = read_jobs(HEADER + lines)
    assert (len(jobs), jobs[0].job_id) == (MOST_JOBS, "5")


def test_submission_asks_of_a_node_what_the_job_asked() -> None:
    late = replace(JOB, job_id="8", submit=1600, nodes=8, gpus=32, cpus=64, memory_mib=8 * 128000)
    replay = plan_replay([JOB, late], SITE, seconds=60)
    assert (replay.factor, [s.at_s for s in replay.submissions], [s.sleep_s for s in replay.submissions]) == (
        10,
        [0, 60],
        [360, 360],
    )
    assert replay.submissions[0].user == "alice"
    for submission in replay.submissions:
        assert submission.argv[4:] == (
            "--partition=gpu_long", "--account=phys", "--nodes=1", "--ntasks-per-node=1", "--cpus-per-task=8", "--mem=128000M",
            "--gpus-per-node=4", "--time=60",
        )  # fmt: skip


def test_small_jobs_are_thinned_out_and_each_kind_stays() -> None:
    small = [replace(JOB, job_id=str(n), submit=1000.0 + n, partition="cpu", nodes=1, gpus=0) for n in range(80)]
    odd_one = replace(small[0], job_id="long", limit_min=99999)
    replay = plan_replay([*small, odd_one], SITE, seconds=60)
    assert [s.job.job_id for s in replay.submissions] == ["0", "40", "long"]
    assert sum(replay.left_out.values()) == 78


def test_jobs_that_the_file_does_not_know_are_counted() -> None:
    jobs = [replace(JOB, user="eve"), replace(JOB, account="old"), replace(JOB, partition="gone")]
    assert dict(plan_replay(jobs, SITE, 60).left_out) == {
        "user eve is not in the file": 1, "account old is no team of the file": 1, "partition gone is not in the file": 1,
    }  # fmt: skip


def test_replay_is_bounded() -> None:
    jobs = [replace(JOB, job_id=str(n), limit_min=n + 1) for n in range(MOST_SUBMISSIONS + 3)]
    replay = plan_replay(jobs, SITE, 60)
    assert (len(replay.submissions), replay.factor) == (MOST_SUBMISSIONS, 1)
    assert replay.left_out[f"a replay has at most {MOST_SUBMISSIONS} jobs"] == 3
    assert plan_replay([], SITE, 60) == Replay([], 1.0, 0)


def test_outcome_has_refusals_limits_and_waits() -> None:
    jobs = [replace(JOB, job_id=str(n), submit=1000.0 + 300 * n, limit_min=n + 1, nodes=8) for n in range(3)]
    replay = plan_replay(jobs, SITE, 60)
    refusal = "sbatch: error: hint\nsbatch: error: Batch job submission failed: Requested time limit is invalid\n"
    events = [
        {"kind": "submitted", "job": 0}, {"kind": "submitted", "job": 1}, {"kind": "refused", "job": 2, "why": refusal},
        {"kind": "waits", "job": 1, "why": "Priority"}, {"kind": "waits", "job": 1, "why": "QOSMaxGRESPerUser"},
        {"kind": "waits", "job": 1, "why": "QOSMaxGRESPerUser"}, {"kind": "ended", "job": 0, "state": "COMPLETED", "wait": 3},
        {"kind": "ended", "job": 1, "state": "CANCELLED", "wait": None},
    ]  # fmt: skip
    found = read_outcome(replay, events)
    assert found.refused == {"Requested time limit is invalid": ["2"]}
    assert found.limited == {"QOSMaxGRESPerUser": ["1"]}
    part = found.partitions["GPU_long"]
    assert (part.submitted, part.refused, part.started, part.waits_s, part.site_waits_s) == (2, 1, 1, [30.0], [90.0])
