"""Recorded answers of a real slurmrestd and sacct become domain objects, with the right requests and errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from headway.domain.slurm.nodes_and_jobs import MOST_SIBLINGS, JobState
from headway.errors import NotFound, Refused, Unreachable
from headway.slurm.adapters import adapter_for, v0_0_42
from headway.slurm.adapters.base import gpu_count, gpu_indexes, gpus_of_tres, parse_program
from headway.slurm.reader import FULL_READ_S, MANY_JOBS, MAX_CHANGED, MAX_DETAILS_PER_READ, SlurmReader
from headway.transport.process import CommandResult
from tests.support.clusters.builders import job, machine
from tests.support.clusters.fake_slurmrestd import RECORDED, FakeRest, FakeSacct, reader


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
    return found


async def test_reads_nodes_with_gpus_and_reservation() -> None:
    first, second = await reader(FakeRest(nodes=recorded("nodes"))).nodes()
    assert (first.name, first.gpus, first.gpus_used) == ("lab-1-1", 8, 5)
    assert first.gpu_types == ("h100",)
    assert (first.states, first.reason, first.usable) == (("MIXED", "DRAIN"), "checked by hand", False)
    assert (first.cpus, first.cpus_used, first.memory_mib, first.memory_used_mib) == (64, 40, 20000, 5000)
    assert first.partitions == ("train", "debug")
    assert (second.reservation, second.usable, second.gpus_used) == ("headway_spares", True, 3)
    assert second.boot_time > 1_700_000_000


def named(jobs: Any, name: str, state: str) -> Any:
    return next(job for job in jobs if job.name == name and job.state == state)


async def test_reads_running_job_with_gpu_indexes_and_log_path() -> None:
    jobs = await reader(
        FakeRest(jobs=recorded("jobs_plain"), jobs_detailed=recorded("jobs_detailed"), **details())
    ).jobs()
    running = next(job for job in jobs if job.state == "RUNNING" and job.node_count == 2)
    assert running.gpu_indexes == {"lab-1-1": (0, 1, 2), "lab-1-2": (0, 1, 2)}
    assert (running.user, running.account, running.partition, running.qos) == ("alice", "vision", "train", "vision")
    assert (running.gpus, running.nodes, running.time_limit_s) == (6, ("lab-1-1", "lab-1-2"), 1800)
    assert running.stdout == f"/home/alice/logs/train.sbatch-{running.id}.out"
    assert running.stderr.endswith(".err")
    assert running.end_time == 0, "Slurm foretells an end; it is none yet"


async def test_reads_pending_failed_and_array_jobs() -> None:
    jobs = await reader(
        FakeRest(jobs=recorded("jobs_plain"), jobs_detailed=recorded("jobs_detailed"), **details())
    ).jobs()
    failed = named(jobs, "fails.sbatch", "FAILED")
    assert (failed.exit_code, failed.gpus, failed.nodes) == (3, 0, ("lab-1-1",))
    assert failed.end_time >= failed.start_time > 0
    waits = named(jobs, "waits.sbatch", "PENDING")
    assert waits.reason
    assert (waits.gpus, waits.nodes, waits.start_time) == (16, (), 0)
    sweep = named(jobs, "sweep.sbatch", "PENDING")
    assert (sweep.array_job_id, sweep.array_task) == (sweep.id, "1-1000%4")
    tasks = [job for job in jobs if job.array_job_id and job.state == "RUNNING"]
    assert {job.array_task for job in tasks} == {"1", "2"}


async def test_answer_without_requested_list_raises_unreachable() -> None:
    one = reader(FakeRest(jobs={"meta": {}}, nodes={"nodes": None}, reservations={"errors": []}, job_7={}))
    for asked in (one.jobs, one.nodes, one.reservations, partial(one.job, 7), partial(one.array_tasks, 7)):
        with pytest.raises(
            Unreachable, match=r"slurmrestd on lab-head answered /slurm/.* without (jobs|nodes|reservations)"
        ):
            await asked()
    assert await reader(FakeRest(jobs={"jobs": []})).jobs() == ()


def details() -> dict[str, Any]:
    """/job/ID of each running job, cut from the recorded list."""
    rows = recorded("jobs_detailed")["jobs"]
    return {f"job_{row['job_id']}_detailed": {"jobs": [row]} for row in rows}


async def test_reads_gpu_details_once_per_job_start() -> None:
    rest = FakeRest(jobs=recorded("jobs_plain"), **details())
    one = reader(rest)
    await one.jobs()
    assert len(rest.asked) == 4, "the list, and three running jobs"
    await one.jobs()
    assert rest.asked[4:] == ["jobs"], "nothing started in between"
    again = next(row for row in rest.answers["jobs"]["jobs"] if row["job_state"] == ["RUNNING"])
    again["start_time"]["number"] += 100
    rest.answers[f"job_{again['job_id']}_detailed"]["jobs"][0]["start_time"]["number"] += 100
    jobs = {job.id: job for job in await one.jobs()}
    assert rest.asked[5:] == ["jobs", f"job_{again['job_id']}_detailed"]
    assert jobs[again["job_id"]].gpu_indexes


def many(count: int, **more: Any) -> list[dict[str, Any]]:
    """Running jobs with GPUs, ids from 100."""
    row = next(r for r in recorded("jobs_detailed")["jobs"] if r["job_state"] == ["RUNNING"])
    return [{**row, "job_id": 100 + i, **more} for i in range(count)]


async def test_limits_gpu_detail_requests_per_reading() -> None:
    rows = many(MAX_DETAILS_PER_READ + 3)
    each = {f"job_{row['job_id']}_detailed": {"jobs": [row]} for row in rows}
    rest = FakeRest(jobs={"jobs": [{**row, "gres_detail": []} for row in rows]}, **each)
    one = reader(rest)
    known = [sum(bool(job.gpu_indexes) for job in await one.jobs()) for _ in range(3)]
    assert known == [MAX_DETAILS_PER_READ, len(rows), len(rows)]
    assert sorted(rest.asked) == sorted(["jobs"] * 3 + list(each)), "each once"


async def test_skips_gpu_details_of_array_id_with_many_tasks() -> None:
    rows = many(MOST_SIBLINGS + 1, array_job_id={"set": True, "infinite": False, "number": 100})
    each = {f"job_{row['job_id']}_detailed": {"jobs": [row]} for row in rows[1:]}
    rest = FakeRest(jobs={"jobs": [{**row, "gres_detail": []} for row in rows]}, **each)
    one = reader(rest)
    assert [job.id for job in await one.jobs() if not job.gpu_indexes] == [100]
    rest.answers["jobs"] = {"jobs": rest.answers["jobs"]["jobs"][:MOST_SIBLINGS]}
    rest.answers["job_100_detailed"] = {"jobs": rows}
    assert all(job.gpu_indexes for job in await one.jobs())


class FakeSqueue:
    """squeue over the rows that the list has."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows
        self.glances = 0

    async def remote(self, machine: Any, argv: Sequence[str], **_: Any) -> CommandResult:
        assert argv[:3] == ("env", "SLURM_TIME_FORMAT=%s", "squeue")
        self.glances += 1
        lines = (
            f"{row['job_id']}|{row['job_state'][0]}|{row['nodes']}|30:00|N/A|{row['priority']['number']}|{row['state_reason']}\n"
            for row in self.rows
        )
        return CommandResult(tuple(argv), 0, "".join(lines), "", 0.0)

    async def forward_socket(self, machine: Any, remote_path: str) -> str:
        raise AssertionError("the test has its own Rest")


async def test_requests_only_changed_jobs_of_large_queue() -> None:
    row = next(
        r for r in recorded("jobs_plain")["jobs"] if r["job_state"] == ["PENDING"] and not r["array_job_id"]["number"]
    )
    rows = [json.loads(json.dumps({**row, "job_id": 100 + i})) for i in range(MANY_JOBS + 5)]
    rest, squeue, now = FakeRest(jobs={"jobs": rows}), FakeSqueue(rows), 0.0
    one = SlurmReader(squeue, machine("lab-head"), b"k" * 32, "24.11", clock=lambda: now)
    one._rest = rest  # type: ignore[assignment]

    async def read() -> tuple[dict[int, JobState], list[str]]:
        rest.asked.clear()
        return {job.id: job for job in await one.jobs()}, list(rest.asked)

    assert (await read())[1] == ["jobs"]
    assert (await read())[1] == ["jobs"], "once more: what squeue said before it is not known yet"
    jobs, asked = await read()
    assert (len(jobs), asked) == (MANY_JOBS + 5, [])
    rows[0]["priority"]["number"], rows[1]["state_reason"] = 7, "Resources"
    rows[2]["job_state"], rows[2]["nodes"], rows[2]["comment"] = ["RUNNING"], "lab-1-1", "begins"
    rows.append({**rows[3], "job_id": 9000})
    rest.answers |= {"job_102": {"jobs": [rows[2]]}, "job_9000": {"jobs": [rows[-1]]}}
    rest.answers["job_102_detailed"] = {"jobs": [{**rows[2], "gres_detail": []}]}
    gone = rows.pop(4)["job_id"]
    jobs, asked = await read()
    assert sorted(asked) == ["job_102", "job_102_detailed", "job_9000"]
    assert (jobs[100].priority, jobs[101].reason) == (7, "Resources")
    assert (jobs[102].state, jobs[102].nodes, jobs[102].comment) == ("RUNNING", ("lab-1-1",), "begins")
    assert 9000 in jobs
    assert gone not in jobs
    now = FULL_READ_S
    rows[5]["comment"] = "nothing that squeue's line shows"
    jobs, asked = await read()
    assert asked == ["jobs"]
    assert (jobs[rows[5]["job_id"]].comment, jobs[100].priority) == ("nothing that squeue's line shows", 7)
    for changed in rows[: MAX_CHANGED + 1]:
        changed["nodes"] = "lab-1-2"
    assert (await read())[1] == ["jobs"], "so many that all at once is quicker"


async def test_jobs_by_id_skips_missing_jobs_and_large_arrays() -> None:
    one, forgotten = many(1)[0], NotFound("job 7")
    rest = FakeRest(job_100={"jobs": [one]}, job_7=forgotten, job_200={"jobs": many(MOST_SIBLINGS + 1)})
    assert [job.id for job in await reader(rest).jobs_by_id((100, 7, 200))] == [one["job_id"]]
    assert sorted(rest.asked) == ["job_100", "job_200", "job_7"]


async def test_array_tasks_are_read_without_details() -> None:
    rest = FakeRest(job_100={"jobs": many(3)})
    assert [job.id for job in await reader(rest).array_tasks(100)] == [100, 101, 102]


async def test_reads_reservations_and_ping() -> None:
    one = reader(FakeRest(reservations=recorded("reservations"), ping=recorded("ping")))
    (held,) = await one.reservations()
    assert (held.name, held.nodes, held.users) == ("headway_spares", ("lab-1-2",), ("root",))
    assert await one.ping()
    assert not await reader(FakeRest(ping=Unreachable("x"))).ping()


def test_refuses_unknown_slurm_version() -> None:
    with pytest.raises(Refused, match=r"23\.02"):
        adapter_for("23.02")


@pytest.mark.parametrize(
    ("text", "count", "indexes"),
    [
        ("gpu:h100:8(IDX:0-7)", 8, (0, 1, 2, 3, 4, 5, 6, 7)),
        ("gpu:h100:3(IDX:0,2,5)", 3, (0, 2, 5)),
        ("gpu:h100:0(IDX:N/A)", 0, ()),
        ("gpu:h100:2(IDX:0-1),gpu:l40s:1(IDX:7)", 3, (0, 1, 7)),
        ("gpu:8(S:0-1)", 8, ()),
        ("shard:h100:3(0/8,3/8,0/8)", 0, (1,)),
        ("nic:2(IDX:0-1)", 0, ()),
        ("(null)", 0, ()),
        ("", 0, ()),
    ],
)
def test_parses_gpu_count_and_indexes_from_gres(text: str, count: int, indexes: tuple[int, ...]) -> None:
    assert gpu_count(text) == count
    assert gpu_indexes(text) == indexes


def test_gpus_of_tres_counts_the_total_once() -> None:
    assert gpus_of_tres("cpu=2,mem=200M,gres/gpu=4,gres/gpu:h100=4") == 4
    assert gpus_of_tres("cpu=2") == 0


# ---- Slurm 22.05, where it answers otherwise


def older(name: str) -> list[dict[str, Any]]:
    body = json.loads((RECORDED.parent / "22.05" / f"{name}.json").read_text())
    return list(body[{"jobs_plain": "jobs"}.get(name, name)])


class OlderRest(FakeRest):
    async def get(self, path: str, params: Any = None, hook: Any = None) -> dict[str, Any]:
        key = path.rsplit("v0.0.38", 1)[1].strip("/")
        self.asked.append(key)
        return dict(json.loads(json.dumps(self.answers[key]), object_hook=hook))


def older_reader() -> SlurmReader:
    answers = {"nodes": older("nodes"), "jobs": older("jobs_plain"), "reservations": older("reservations")}
    made = SlurmReader(FakeSacct(), machine("lab-head"), b"k" * 32, "22.05")
    made._rest = OlderRest(**{name: {name: rows} for name, rows in answers.items()})  # type: ignore[assignment]
    return made


async def test_slurm_22_05_node_reservation_comes_from_reservation_list() -> None:
    first, second = await older_reader().nodes()
    assert (first.states, first.reason, first.gpus_used) == (("MIXED", "DRAIN"), "checked by hand", 5)
    assert (first.reservation, second.reservation) == ("", "headway_spares")


async def test_slurm_22_05_jobs_have_same_fields() -> None:
    jobs = await older_reader().jobs()
    running = next(job for job in jobs if job.state == "RUNNING" and job.node_count == 2)
    assert running.gpu_indexes == {"lab-1-1": (0, 1, 2), "lab-1-2": (0, 1, 2)}
    assert (running.gpus, running.time_limit_s) == (6, 1800)
    assert running.stdout == f"/home/alice/logs/train.sbatch-{running.id}.out"
    assert running.stderr == f"/home/alice/logs/train.sbatch-{running.id}.err"
    failed = named(jobs, "fails.sbatch", "FAILED")
    assert (failed.exit_code, failed.stdout, failed.stderr) == (3, f"/home/alice/slurm-{failed.id}.out", failed.stdout)
    task = next(job for job in jobs if job.array_task == "2" and job.state == "RUNNING")
    assert task.stdout == f"/home/alice/slurm-{task.array_job_id}_2.out"
    assert named(jobs, "sweep.sbatch", "PENDING").array_task == "1-1000%4"


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/h/%x-%j.out", "/h/train-7.out"),
        ("/h/%4j", "/h/0007"),
        ("/h/%A_%a", "/h/7_4294967294"),
        ("/h/%u/100%%", "/h/alice/100%"),
    ],
)
def test_fills_file_name_patterns_like_sbatch(pattern: str, path: str) -> None:
    from headway.slurm.adapters.v0_0_38 import fill_filename_pattern

    assert fill_filename_pattern(pattern, job(7)) == path


@pytest.mark.parametrize(
    ("name", "said"), [("22.05", 1_790_000_000), ("24.11", {"set": True, "number": 1_790_000_000})]
)
def test_reads_suspend_time_of_job(name: str, said: object) -> None:
    row = {"job_id": 7, "job_state": ["RUNNING"] if isinstance(said, dict) else "RUNNING", "start_time": said}
    read = adapter_for(name).job_state
    assert read({**row, "suspend_time": said}).suspend_time == 1_790_000_000
    assert read(row).suspend_time == 0


def test_command_of_a_job_is_its_program_without_arguments() -> None:
    """All people see the queue."""
    assert parse_program("/home/alice/x.sh --password=secret 3") == "/home/alice/x.sh"
    assert parse_program("/home/alice/x.sh") == "/home/alice/x.sh"
    assert parse_program(None) == ""
    assert [field.parse for field in v0_0_42.JOB if field.name == "command"] == [parse_program]
